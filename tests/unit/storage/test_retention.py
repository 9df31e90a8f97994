"""When segments roll and when they are deleted."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.log.retention import deletable_segments, should_roll


@dataclass
class Facts:
    base_offset: int
    size: int = 100
    largest_timestamp: int = 1000


def segments(*sizes: int, **fields: int) -> list[Facts]:
    return [Facts(10 * i, size, **fields) for i, size in enumerate(sizes)]


def count(log: list[Facts], **changes: Any) -> int:
    facts: dict[str, Any] = {
        "cleanup_policy": ("delete",),
        "retention_ms": -1,
        "retention_bytes": -1,
        "log_start_offset": 0,
        "log_end_offset": 10 * len(log),
        "high_watermark": 10 * len(log),
        "now_ms": 1000,
    }
    return deletable_segments(log, **{**facts, **changes})


def test_without_limits_everything_stays() -> None:
    assert count(segments(100, 100, 100)) == 0


@pytest.mark.parametrize(("limit", "gone"), [(300, 0), (299, 0), (200, 1), (199, 1), (0, 3)])
def test_segment_is_dropped_if_the_rest_still_reaches_the_size_limit(limit: int, gone: int) -> None:
    assert count(segments(100, 100, 100), retention_bytes=limit) == gone


@pytest.mark.parametrize(("now", "gone"), [(1500, 0), (1501, 3)])
def test_age_counts_from_the_youngest_record(now: int, gone: int) -> None:
    assert count(segments(1, 1, 1), retention_ms=500, now_ms=now) == gone


def test_segments_after_a_young_one_stay() -> None:
    log = segments(1, 1, 1)
    log[1].largest_timestamp = 9000
    assert count(log, retention_ms=500, now_ms=2000) == 1


def test_segments_above_the_high_watermark_stay() -> None:
    assert count(segments(1, 1, 1), retention_ms=0, now_ms=9000, high_watermark=19) == 1


def test_an_empty_active_segment_stays() -> None:
    assert count(segments(100, 0), retention_ms=0, now_ms=9000) == 1


@pytest.mark.parametrize(("start", "gone"), [(9, 0), (10, 1), (25, 2), (30, 2)])
def test_segments_before_the_log_start_go_except_the_active_one(start: int, gone: int) -> None:
    assert count(segments(1, 1, 1), log_start_offset=start) == gone


@pytest.mark.parametrize("policy", [("compact",), ()])
def test_compacted_log_loses_only_segments_before_its_start(
    policy: tuple[str, ...],
) -> None:
    limits = {"cleanup_policy": policy, "retention_ms": 0, "retention_bytes": 0, "now_ms": 9000}
    assert count(segments(1, 1, 1), **limits) == 0
    assert count(segments(1, 1, 1), log_start_offset=10, **limits) == 1


def test_both_policies_together_delete() -> None:
    limits = {"cleanup_policy": ("compact", "delete"), "retention_ms": 0, "now_ms": 9000}
    assert count(segments(1, 1), **limits) == 2


@given(st.lists(st.integers(0, 100), max_size=6), st.integers(0, 400))
def test_retention_by_size_leaves_at_least_the_limit(sizes: list[int], limit: int) -> None:
    log = segments(*sizes)
    gone = count(log, retention_bytes=limit)
    kept = sum(sizes[gone:])
    assert kept >= min(limit, sum(sizes))
    if gone < len(log) - 1:
        assert kept - sizes[gone] < limit


@dataclass
class Active:
    """A segment at each of its limits, except for the batch that arrives."""

    base_offset: int = 1000
    created_ms: int = 5_000
    size: int = 900
    first_timestamp: int | None = 100
    index_full: bool = False


def rolls(segment: Active, **change: int) -> bool:
    arriving = {"incoming": 100, "newest_timestamp": 150, "last_offset": 1000 + 2**31 - 1}
    return should_roll(
        segment, **{**arriving, "now_ms": 5_050, "segment_bytes": 1000, "segment_ms": 50, **change}
    )


def test_a_segment_stays_at_each_of_its_limits() -> None:
    assert not rolls(Active())
    assert not rolls(Active(first_timestamp=None))
    assert not rolls(Active(), newest_timestamp=-1)


@pytest.mark.parametrize(
    "change",
    [{"incoming": 101}, {"newest_timestamp": 151}, {"last_offset": 1000 + 2**31}],
    ids=str,
)
def test_a_segment_ends_past_any_limit(change: dict[str, int]) -> None:
    assert rolls(Active(), **change)


def test_a_segment_ends_where_its_index_is_full() -> None:
    assert rolls(Active(index_full=True))


def test_without_timestamps_a_segment_ages_from_its_creation() -> None:
    assert rolls(Active(first_timestamp=-1), now_ms=5_051)
    assert rolls(Active(), newest_timestamp=-1, now_ms=5_051)
    assert not rolls(Active(), now_ms=10**9)


def test_an_empty_segment_does_not_end_by_age() -> None:
    assert not rolls(Active(size=0), newest_timestamp=10**9)
