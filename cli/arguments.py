"""How people write values on a command line."""

from collections.abc import Sequence

import click


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` arguments as a mapping; a usage error names the one that is none."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{pair!r} is not KEY=VALUE")
        parsed[key.strip()] = value
    return parsed


def unescape(text: str) -> bytes:
    r"""Text with escapes such as `\n`, `\t`, `\0` and `\x1f`, as UTF-8 bytes."""
    try:
        # What Latin-1 lacks travels through the decoder as an escape of its own.
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeError:
        raise click.UsageError(f"{text!r} has an escape that cannot be read") from None
