"""The segments of one log in offset order: finding and reading across their seams."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from barnabas.protocol.records.batch import BatchHeader, CorruptRecordError
from barnabas.protocol.records.record import Record, iter_records
from barnabas.storage.log_slice import FileRange, LogSlice
from barnabas.storage.scan import rebuild_indexes
from barnabas.storage.segment import Segment
from barnabas.storage.txn_index import AbortedTxn, search

_base_offset = attrgetter("base_offset")


class TimestampAndOffset(NamedTuple):
    """A record found by its time in ms; `leader_epoch` is its batch's."""

    timestamp: int
    offset: int
    leader_epoch: int


class Segments:
    """At least one segment, oldest first; the last one is active."""

    __slots__ = ("_segments",)

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size(self) -> int:
        """Bytes of all segments, without their indexes."""
        return sum(segment.size for segment in self._segments)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that has `offset`, and those after it."""
        return self._segments[self._index(offset) :]

    def add(self, segment: Segment) -> None:
        """A new active segment."""
        self._segments.append(segment)

    def remove_oldest(self, count: int) -> list[Segment]:
        removed, self._segments = self._segments[:count], self._segments[count:]
        return removed

    def remove_newest(self) -> Segment:
        return self._segments.pop()

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Puts `new` where the neighbours `old` were."""
        start = self._segments.index(old[0])
        self._segments[start : start + len(old)] = new

    def batch_start(self, offset: int) -> int:
        """`offset`, or the base offset of the batch that reaches over it."""
        located = self.from_offset(offset)[0].locate(offset)
        return offset if located is None else min(offset, located[1].base_offset)

    def read(self, offset: int, max_bytes: int, *, limit: int, min_one: bool) -> LogSlice:
        """Whole batches from the one that reaches `offset`, all below `limit`, in `max_bytes`;
        with `min_one` the first batch whatever its size.

        An index that lies is rebuilt. Raises CorruptRecordError where the log itself is damaged.
        """
        ranges: list[FileRange] = []
        reached = offset
        segments = self._segments
        index = self._index(offset)
        while index < len(segments) and reached < limit:
            segment = segments[index]
            index += 1
            first = min_one and not ranges
            try:
                start, end, after = _stretch(segment, reached, limit, max_bytes, first)
            except CorruptRecordError:
                if ranges:
                    # The next read begins here, and finds out.
                    break
                rebuild_indexes(segment)
                start, end, after = _stretch(segment, reached, limit, max_bytes, first)
            reached = after
            if end > start:
                ranges.append((segment.file(), start, end - start))
            if end < segment.size:
                break
            max_bytes -= end - start
        return LogSlice(offset, reached, tuple(ranges))

    def find_timestamp(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        """The first record from `start_offset` on that is not older than `timestamp`."""
        for segment in self.from_offset(start_offset):
            if segment.max_timestamp >= timestamp:
                found = _inflate_find_timestamp(segment, timestamp, start_offset)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record that has the greatest timestamp of all."""
        segment = max(self._segments, key=attrgetter("max_timestamp"))
        located = segment.locate(segment.max_timestamp_offset)
        if located is None or segment.max_timestamp < 0:
            return None
        position, header = located
        for record in _inflate(segment, position, header):
            if record.timestamp == header.max_timestamp:
                return _found(record, header)
        raise CorruptRecordError(f"no record has the greatest timestamp of {header}")

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap [start_offset, end_offset)."""
        aborted: list[AbortedTxn] = []
        for segment in self.from_offset(start_offset):
            found, complete = search(iter(segment.txn_index.read()), start_offset, end_offset)
            aborted += found
            if complete:
                break
        return aborted

    def _index(self, offset: int) -> int:
        return max(bisect_right(self._segments, offset, key=_base_offset) - 1, 0)


def _stretch(
    segment: Segment, offset: int, limit: int, max_bytes: int, first: bool
) -> tuple[int, int, int]:
    """Start and end of the whole batches to read, and an offset before which they end; the
    `first` one has any size.

    Raises CorruptRecordError.
    """
    start, bound = segment.position_of(offset), segment.position_of(limit)
    last = min(limit, segment.next_offset)
    if start >= bound:
        return start, start, last
    end, after = segment.fit(start, bound, max_bytes)
    if end == start and first:
        _, header = next(segment.headers(start))
        end, after = start + header.size, header.next_offset
    return start, end, last if after is None else after


def _inflate_find_timestamp(
    segment: Segment, timestamp: int, start_offset: int
) -> TimestampAndOffset | None:
    position = segment.position_of(max(segment.time_index.lookup(timestamp), start_offset))
    for at, header in segment.headers(position):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in _inflate(segment, at, header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return _found(record, header)
    return None


def _inflate(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    return iter_records(segment.read_batch(position, header), 0, header)


def _found(record: Record, header: BatchHeader) -> TimestampAndOffset:
    return TimestampAndOffset(record.timestamp, record.offset, header.partition_leader_epoch)
