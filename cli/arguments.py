"""The syntax of values on the command line: KEY=VALUE pairs and escapes."""

from collections.abc import Sequence

import click


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Return `key=value` arguments as a mapping; a usage error names the first wrong one."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{pair!r} is not KEY=VALUE")
        parsed[key.strip()] = value
    return parsed


def unescape(text: str) -> bytes:
    r"""Replace escapes such as `\n`, `\t`, `\0` and `\x1f`; return UTF-8 bytes."""
    try:
        # `backslashreplace` turns characters outside Latin-1 into escapes, which are decoded too.
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeError:
        raise click.UsageError(f"{text!r} has an invalid escape") from None
