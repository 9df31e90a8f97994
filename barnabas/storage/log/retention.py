"""The decisions when a segment rolls and when it is deleted; the log carries them out."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

MAX_RELATIVE_OFFSET = 2**31 - 1


class SegmentFacts(Protocol):
    """The properties of a segment that retention uses; sizes in bytes, times in ms since the
    epoch."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def largest_timestamp(self) -> int:
        """Return the greatest timestamp of the records; of the last change if records have none."""
        ...


def roll_after_ms(config: "TopicConfig", jitter: Callable[[int], int]) -> int:
    """Return how long the next segment may take records; `jitter` draws from 0 to its argument."""
    roll_ms = config.segment_ms
    if config.compacted and config.max_compaction_lag_ms > 0:
        roll_ms = min(roll_ms, config.max_compaction_lag_ms)
    return roll_ms - jitter(min(config.segment_jitter_ms, roll_ms))


class ActiveSegment(Protocol):
    """The properties of the active segment that rolling uses."""

    base_offset: int
    created_ms: int
    size: int
    first_timestamp: int | None
    """The greatest timestamp of the first batch; None while the segment is empty."""
    index_full: bool


def should_roll(
    segment: ActiveSegment,
    incoming: int,
    newest_timestamp: int,
    last_offset: int,
    now_ms: int,
    segment_bytes: int,
    segment_ms: int,
) -> bool:
    """Return whether a segment ends before `incoming` bytes more, up to `last_offset`.

    Its age is measured by the timestamps of records, so that replaying old data rolls as it did the
    first time: from its first record to the newest incoming timestamp; from its creation if records
    have no timestamps. `segment_ms` is already reduced by the segment's jitter.
    """
    size, first = segment.size, segment.first_timestamp
    if first is None or first < 0 or newest_timestamp < 0:
        age = now_ms - segment.created_ms
    else:
        age = newest_timestamp - first
    return (
        size > segment_bytes - incoming
        or (size > 0 and age > segment_ms)
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        or segment.index_full
    )


def deletable_segments(
    segments: Sequence[SegmentFacts],
    *,
    cleanup_policy: Iterable[str],
    retention_ms: int,
    retention_bytes: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """Return how many of the oldest segments are deleted, by log start offset, size and age.

    A log that is only compacted loses just the segments before its start offset. -1 in
    `retention_ms` or `retention_bytes` means no limit. Nothing from the high watermark on is
    deleted. If all segments are deleted, the log rolls a new segment first.
    """
    by_policy = "delete" in cleanup_policy
    excess = sum(segment.size for segment in segments) - retention_bytes
    limit_size = by_policy and retention_bytes >= 0
    limit_age = by_policy and retention_ms >= 0
    count = 0
    for segment, end in zip(segments, _ends(segments, log_end_offset), strict=True):
        is_last = count == len(segments) - 1
        before_start = not is_last and end <= log_start_offset
        too_much = limit_size and excess >= segment.size
        too_old = limit_age and now_ms - segment.largest_timestamp > retention_ms
        if end > high_watermark or (is_last and segment.size == 0):
            break
        if not (before_start or too_much or too_old):
            break
        excess -= segment.size
        count += 1
    return count


def _ends(segments: Sequence[SegmentFacts], log_end_offset: int) -> list[int]:
    return [segment.base_offset for segment in segments[1:]] + [log_end_offset][: len(segments)]
