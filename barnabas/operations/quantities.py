"""Times, durations and sizes as people write them on the command line."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

_DURATIONS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
"""Milliseconds by unit."""
_SIZES: Final = {
    unit + suffix: 1024**power
    for power, unit in enumerate(("B", "K", "M", "G", "T"))
    for suffix in ((""), ("B"), ("iB"))
    if unit != "B" or not suffix
}
"""Bytes by unit: the units of Kafka's own limits are powers of 1,024, with either name."""
_KEY_UNITS: Final = (
    (".ms", 1),
    (".seconds", _DURATIONS["s"]),
    (".minutes", _DURATIONS["m"]),
    (".hours", _DURATIONS["h"]),
)
_SIZE_KEYS: Final = (".bytes", ".buffer.size", "_byte_rate")
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)")
_ISO_DURATION = re.compile(
    r"P(?:(?P<d>[0-9]+)D)?(?:T(?:(?P<h>[0-9]+)H)?(?:(?P<m>[0-9]+)M)?(?:(?P<s>[0-9]+)S)?)?"
)
TIMES: Final = "a date or time (2026-11-22, 2026-11-22T10:00Z), an age (-1h)"


def parse_time(text: str, now_ms: int | None = None) -> int:
    """Return milliseconds since 1970 of a date, a time, an age such as `-1h`, or milliseconds.

    A time without a zone is UTC. Raises ValueError.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    if text.startswith("-"):
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        return max(now_ms - parse_duration(text[1:]), 0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text} is not {TIMES} or ms since 1970") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration such as `7d`, `1.5h`, `500ms` or, as Kafka's tools take
    it, `P1DT12H`. Raises ValueError."""
    if text.startswith("P") and (found := _ISO_DURATION.fullmatch(text)) and any(found.groups()):
        return sum(int(count or 0) * _DURATIONS[unit] for unit, count in found.groupdict().items())
    return _scaled(text, _DURATIONS, "a duration such as 7d, 90m or 500ms")


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `512MB`, `512MiB` or `1.5G`. Raises ValueError."""
    return _scaled(text, _SIZES, "a size such as 512MB or 1GiB")


def time_text(at_ms: int) -> str:
    """Return milliseconds since 1970 as a date and a time in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")


def duration_text(duration_ms: int) -> str:
    """Return a duration in seconds, from two minutes on in hours, minutes and seconds."""
    if abs(duration_ms) < 2 * _DURATIONS["m"]:
        return f"{duration_ms / 1000:.1f} s"
    return str(timedelta(seconds=duration_ms // 1000))


def size_text(size_bytes: int) -> str:
    """Return a number of bytes with its largest unit, a power of 1,024."""
    amount, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    # 1023.95 would be shown as 1024.0.
    while amount >= 1023.95 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{size_bytes}B" if units[0] == "B" else f"{amount:.1f}{units[0]}"


def kafka_value(key: str, value: str) -> str:
    """Return the value that Kafka takes for a key: 604800000 for `7d` of retention.ms.

    A value without a unit, and one of another kind of key, stays as it is. Raises ValueError for a
    unit that does not fit the key.
    """
    if not _NUMBER.fullmatch(value):
        return value
    if key.endswith(_SIZE_KEYS):
        return str(parse_size(value))
    for suffix, unit in _KEY_UNITS:
        if key.endswith(suffix):
            number, rest = divmod(parse_duration(value), unit)
            if rest:
                raise ValueError(f"{value} is not a whole number of {suffix[1:]}")
            return str(number)
    return value


def _scaled(text: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"{text} is not {expected}")
    whole, _, fraction = match[1].partition(".")
    # Exact: a float has too few digits for a large number of bytes.
    scaled, rest = divmod(int(whole + fraction) * units[match[2]], 10 ** len(fraction))
    if rest:
        raise ValueError(f"{text} is not a whole number")
    return int(scaled)
