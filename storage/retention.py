"""When a segment ends, and when it goes: decisions only, the log carries them out."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

_MAX_RELATIVE_OFFSET = 2**31 - 1


class SegmentFacts(Protocol):
    """What retention must know of a segment; sizes in bytes, times in ms since the epoch."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def largest_timestamp(self) -> int:
        """Of its records; of its last change where records have none."""
        ...


def roll_after_ms(config: "TopicConfig", jitter: Callable[[int], int]) -> int:
    """How long the next segment may take records; `jitter` draws from 0 to what it is given."""
    roll_ms = config.segment_ms
    if config.compacted and config.max_compaction_lag_ms > 0:
        roll_ms = min(roll_ms, config.max_compaction_lag_ms)
    return roll_ms - jitter(min(config.segment_jitter_ms, roll_ms))


def should_roll(
    size: int,
    incoming: int,
    segment_bytes: int,
    waited_ms: int,
    segment_ms: int,
    relative_offset: int,
    index_full: bool,
) -> bool:
    """Whether a segment of `size` bytes ends before `incoming` more.

    `waited_ms` counts from the segment's first record to the newest timestamp that arrives (from
    its creation where records have none), `segment_ms` is less the segment's jitter, and
    `relative_offset` is what the last incoming record would have.
    """
    return (
        size > segment_bytes - incoming
        or (size > 0 and waited_ms > segment_ms)
        or index_full
        or relative_offset > _MAX_RELATIVE_OFFSET
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
    """How many of the oldest segments go, by log start offset, by size and by age.

    A log that is only compacted loses just what lies before its start offset. -1 in `retention_ms`
    or `retention_bytes` means no limit. Nothing from the high watermark on goes. All of them may:
    then the log rolls a new segment first.
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
