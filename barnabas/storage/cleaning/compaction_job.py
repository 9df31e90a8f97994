"""The messages between the broker and the compaction process: a job, and its results."""

from collections.abc import Mapping
from typing import NamedTuple

KEY_COST = 200
"""Approximate memory, in bytes, of one of a job's `max_keys`."""


class CompactionJob(NamedTuple):
    """One log to compact. Sizes in bytes, times in ms."""

    directory: str
    segments: tuple[tuple[int, int], ...]
    """Base offset and size of each segment before `end_offset`, oldest first."""
    first_dirty_offset: int
    end_offset: int
    """Exclusive: the base offset of the first segment that must not be touched."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval: int
    max_keys: int
    max_message_bytes: int
    """It bounds what a batch may decompress to; see `inflation_bound`."""
    bytes_per_second: float
    """Reading and writing together."""
    producers: Mapping[int, tuple[int, int]]
    """The last offset of the last batch, -1 if that is a marker, and the epoch of each live
    producer: the header of that batch must stay."""
    later_segments: tuple[int, ...] = ()
    """Base offsets of the segments after `end_offset`: their transactions may reach back."""


class CleanedGroup(NamedTuple):
    """A finished segment, with suffix CLEANED, that replaces others."""

    base_offset: int
    replaced: tuple[int, ...]
    """Base offsets of the segments that it replaces."""
    size: int


class CompactionResult(NamedTuple):
    """The end of the job: the log is clean up to `end_offset`, exclusive."""

    end_offset: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int


class CompactionFailed(Exception):
    """The job was not completed. `damaged`: the log is damaged, so another try would fail too."""

    def __init__(self, reason: str, *, damaged: bool) -> None:
        super().__init__(reason)
        self.damaged = damaged
