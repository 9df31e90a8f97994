"""Times, durations and sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.operations.quantities import (
    duration_text,
    kafka_value,
    parse_duration,
    parse_size,
    parse_time,
    size_text,
    time_text,
)

NOW_MS = 1_764_313_200_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1764288000000", 1_764_288_000_000),
        ("2025-11-28", 1_764_288_000_000),
        ("2025-11-28T00:00", 1_764_288_000_000),
        ("2025-11-28T01:00+01:00", 1_764_288_000_000),
        ("2025-11-28T10:00Z", 1_764_324_000_000),
        ("2025-11-28T10:00:00.250Z", 1_764_324_000_250),
        ("-1h", NOW_MS - 3_600_000),
        ("-1.5d", NOW_MS - 129_600_000),
        ("-9999w", 0),
    ],
)
def test_time_is_a_date_an_age_or_milliseconds(text: str, ms: int) -> None:
    assert parse_time(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "-", "-1", "-1y", "yesterday", "2025-13-01", "1h", "\u0661"])
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a"):
        parse_time(text, NOW_MS)


@given(st.integers(0, 1 << 60), st.sampled_from(["B", "K", "KB", "KiB", "MB", "GiB", "T"]))
def test_size_is_exact(count: int, unit: str) -> None:
    assert parse_size(f"{count}{unit}") == count * 1024 ** "BKMGT".index(unit[0])


@pytest.mark.parametrize("text", ["", "MB", "1mb", "1.5B", "-1MB", "1e3MB", "1 MB", "1XB"])
def test_other_text_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_size(text)


def test_duration_is_exact() -> None:
    found = [parse_duration(each) for each in ("7d", "0.5s", "2w", "P1DT2H3M4S", "PT90M")]
    assert found == [604_800_000, 500, 1_209_600_000, 93_784_000, 5_400_000]


@pytest.mark.parametrize("text", ["", "P", "PT", "P1H", "1", "d", "P1.5D", "-1d"])
def test_other_text_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("key", "value", "sent"),
    [
        ("retention.ms", "7d", "604800000"),
        ("log.retention.hours", "7d", "168"),
        ("segment.bytes", "512MB", "536870912"),
        ("producer_byte_rate", "1MiB", "1048576"),
        ("retention.ms", "604800000", "604800000"),
        ("retention.ms", "-1", "-1"),
        ("cleanup.policy", "7d", "7d"),
        ("follower.replication.throttled.replicas", "0:1,1:2", "0:1,1:2"),
    ],
)
def test_value_of_a_key_is_sent_in_its_unit(key: str, value: str, sent: str) -> None:
    assert kafka_value(key, value) == sent


@pytest.mark.parametrize(
    ("key", "value"), [("retention.ms", "7MB"), ("segment.bytes", "7d"), ("log.roll.hours", "90m")]
)
def test_unit_that_does_not_fit_the_key_is_refused(key: str, value: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        kafka_value(key, value)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0.0 s"),
        (1250, "1.2 s"),
        (119_900, "119.9 s"),
        (120_000, "0:02:00"),
        (90_061_500, "1 day, 1:01:01"),
    ],
)
def test_duration_is_shown_with_its_unit(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_time_is_shown_as_it_can_be_given() -> None:
    assert time_text(1_767_225_600_250) == "2026-01-01 00:00:00.250+00:00"
    assert parse_time(time_text(1_767_225_600_250)) == 1_767_225_600_250


@given(st.integers(0, 1 << 52))
def test_size_is_shown_with_its_largest_unit(size: int) -> None:
    text = size_text(size)
    if size < 1024:
        assert text == f"{size}B"
        return
    number, unit = text[:-3], text[-3:]
    assert abs(float(number) * parse_size(f"1{unit}") - size) <= size * 0.05
    assert len(text) <= len("1023.9KiB")
