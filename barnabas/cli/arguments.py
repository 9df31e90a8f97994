"""The syntax of values on the command line: KEY=VALUE pairs, times and escapes."""

from collections.abc import Callable, Sequence

import click

from barnabas.operations.quantities import kafka_value, parse_size, parse_time


def time(text: str) -> int:
    """Parse a time to ms since 1970; the type of an option."""
    return _value(parse_time, text)


def age(text: str) -> int:
    """Parse an age to the time in ms since 1970 that is so long ago; the type of an option."""
    return _value(parse_time, f"-{text.removeprefix('-')}")


def size(text: str) -> int:
    """Parse a number of bytes, with a unit or without; the type of an option."""
    return int(text) if text.isdecimal() else _value(parse_size, text)


def _value(parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        # Click would tell the text of the option alone.
        raise click.BadParameter(str(error)) from None


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Return `key=value` arguments as a mapping; a usage error names the first wrong one."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{pair!r} is not KEY=VALUE")
        parsed[key.strip()] = value
    return parsed


def parse_configs(pairs: Sequence[str]) -> dict[str, str]:
    """Return `key=value` arguments with the numbers that Kafka takes: `retention.ms=7d`."""
    try:
        return {key: kafka_value(key, value) for key, value in parse_pairs(pairs).items()}
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def parse_offset_or_time(text: str) -> tuple[int | None, int]:
    """Return an offset and -1, or None and a time in ms, which has a unit, a date or a `@`."""
    if text == "-1" or (text.isascii() and text.isdigit()):
        return int(text), -1
    try:
        return None, parse_time(text.removeprefix("@"))
    except ValueError as error:
        raise click.UsageError(f"{error}, and no offset") from None


def unescape(text: str) -> bytes:
    r"""Replace escapes such as `\n`, `\t`, `\0` and `\x1f`; return UTF-8 bytes."""
    try:
        # `backslashreplace` turns characters outside Latin-1 into escapes, which are decoded too.
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeError:
        raise click.UsageError(f"{text!r} has an invalid escape") from None
