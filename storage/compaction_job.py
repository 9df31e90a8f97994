"""What the broker and the process that compacts tell each other: a job, and what came of it."""

from collections.abc import Mapping
from typing import NamedTuple

KEY_COST = 200
"""Bytes of memory that one of a job's `max_keys` takes, about."""


class CompactionJob(NamedTuple):
    """One log to compact. Sizes in bytes, times in ms."""

    directory: str
    segments: tuple[tuple[int, int], ...]
    """Base offset and size of each segment before `end_offset`, oldest first."""
    first_dirty_offset: int
    end_offset: int
    """Exclusive: the base offset of the first segment that may not be touched."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval: int
    max_keys: int
    bytes_per_second: float
    """Of reading and writing together."""
    producers: Mapping[int, tuple[int, int]]
    """Of each live producer the last offset of its last batch, -1 where its last is a marker, and
    its epoch: the header of that batch must stay."""
    later_segments: tuple[int, ...] = ()
    """Base offsets of the segments after `end_offset`: their transactions may reach back."""


class CleanedGroup(NamedTuple):
    """A segment is written, with suffix CLEANED, that takes the place of others."""

    base_offset: int
    replaced: tuple[int, ...]
    """Base offsets of the segments it was made from."""
    size: int


class Compacted(NamedTuple):
    """The whole job is done: the log is clean up to `end_offset`, exclusive."""

    end_offset: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int


class CompactionFailed(Exception):
    """The job did not come to its end. `damaged`: the log is at fault, so will be the next try."""

    def __init__(self, reason: str, *, damaged: bool) -> None:
        super().__init__(reason)
        self.damaged = damaged
