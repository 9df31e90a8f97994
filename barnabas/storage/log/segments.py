"""The segments of one log in offset order: searching and reading across their boundaries."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from barnabas.config.key import ARRAY_MAX
from barnabas.protocol.records.batch import BatchHeader, CorruptRecordError
from barnabas.protocol.records.compression import inflation_bound
from barnabas.protocol.records.record import Record
from barnabas.storage.files.errors import lacks_descriptors
from barnabas.storage.files.files import File
from barnabas.storage.log.log_slice import FileRange, LogSlice
from barnabas.storage.log.record_steps import Memory, RecordSteps, each_record, longest_call
from barnabas.storage.log.scan import rebuild_indexes
from barnabas.storage.log.segment import Segment
from barnabas.storage.log.txn_index import ENTRY_SIZE, decode
from barnabas.storage.producers.entry import AbortedTxn

_base_offset = attrgetter("base_offset")
_HEADERS_PER_STEP = 256


class ReadLimits(NamedTuple):
    """The limits of a topic for the batches of its log that are decompressed again."""

    batch_bytes: int
    """`max.message.bytes`: see `inflation_bound`."""
    record_bytes: int = ARRAY_MAX
    """`max.decompressed.message.bytes`."""


class TimestampAndOffset(NamedTuple):
    """A record found by its time in ms; `leader_epoch` is that of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class Segments:
    """At least one segment, oldest first; the last one is active."""

    __slots__ = ("_segments", "active")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self.active = self._segments[-1]
        """The segment that takes appends."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size(self) -> int:
        """Return the bytes of all segments, without their indexes."""
        return sum(segment.size for segment in self._segments)

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment that contains `offset`, and those after it."""
        return self._segments[self._index(offset) :]

    def base_after(self, base_offset: int) -> int | None:
        """Return the base offset of the first segment that begins after `base_offset`."""
        index = bisect_right(self._segments, base_offset, key=_base_offset)
        return self._segments[index].base_offset if index < len(self._segments) else None

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        self._segments.append(segment)
        self.active = segment

    def remove_oldest(self, count: int) -> list[Segment]:
        removed, self._segments = self._segments[:count], self._segments[count:]
        return removed

    def remove_newest(self) -> Segment:
        removed = self._segments.pop()
        self.active = self._segments[-1]
        return removed

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace the neighbouring segments `old` by `new`."""
        start = self._segments.index(old[0])
        self._segments[start : start + len(old)] = new
        self.active = self._segments[-1]

    def batch_start(self, offset: int) -> int:
        """Return the base offset of the batch that contains `offset`; `offset` itself in a gap."""
        located = self.from_offset(offset)[0].locate(offset)
        return offset if located is None else min(offset, located[1].base_offset)

    def read(self, offset: int, max_bytes: int, *, limit: int, min_one: bool) -> LogSlice:
        """Read whole batches from the one that reaches `offset`, below `limit`, at most
        `max_bytes`.

        With `min_one` the first batch may be larger than that. A wrong index is rebuilt. Raises
        CorruptRecordError if the log itself is damaged.
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
                    # The next read begins here and reports the damage.
                    break
                rebuild_indexes(segment)
                start, end, after = _stretch(segment, reached, limit, max_bytes, first)
            if end > start:
                try:
                    ranges.append((segment.file_to_send(), start, end - start))
                except OSError as error:
                    if ranges and lacks_descriptors(error):
                        break
                    raise
            reached = after
            if end < segment.size:
                break
            max_bytes -= end - start
        return LogSlice(offset, reached, tuple(ranges))

    def holding(self, offset: int) -> Segment:
        """Return the segment that contains `offset`."""
        return self._segments[self._index(offset)]

    def find_timestamp(
        self, timestamp: int, start_offset: int, limits: ReadLimits
    ) -> RecordSteps[TimestampAndOffset | None]:
        """Return the first record from `start_offset` on that is not older than `timestamp`.

        Segments may come and go between the steps.
        """
        index = self._index(start_offset)
        while index < len(self._segments):
            segment = self._segments[index]
            if segment.max_timestamp >= timestamp:
                found = yield from _find_timestamp(segment, timestamp, start_offset, limits)
                if found is not None:
                    return found
            index = bisect_right(self._segments, segment.base_offset, key=_base_offset)
        return None

    def find_max_timestamp(self, limits: ReadLimits) -> RecordSteps[TimestampAndOffset | None]:
        """Return the first record with the greatest timestamp of all.

        In a log without timestamps it is the first record, whose timestamp is -1.
        """
        segment = max(self._segments, key=attrgetter("max_timestamp"))
        located = segment.locate(segment.max_timestamp_offset)
        if located is None:
            return None
        position, header = located
        if not header.record_count:
            # Compaction has left the header of a producer's last batch. Kafka finds nothing then.
            return None
        greatest = header.max_timestamp
        found = yield from _first_record(
            segment.file(), position, header, limits, lambda r: r.timestamp == greatest
        )
        if found is None:
            raise CorruptRecordError(f"no record has the maximum timestamp of its batch, {header}")
        return found

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap [start_offset, end_offset)."""
        aborted: list[AbortedTxn] = []
        for segment in self.from_offset(start_offset):
            found, complete = segment.txn_index.search(start_offset, end_offset)
            aborted += found
            if complete:
                break
        return aborted

    def encoded_aborted(self, start_offset: int, end_offset: int) -> list[bytes]:
        """Return the encoded transactions among which are those that overlap [start_offset,
        end_offset). Raises CorruptTxnIndexError."""
        encoded = []
        for segment in self.from_offset(start_offset):
            if data := segment.txn_index.read_encoded():
                encoded.append(data)
                if decode(data[-ENTRY_SIZE:])[-1].last_stable_offset >= end_offset:
                    break
        return encoded

    def _index(self, offset: int) -> int:
        return max(bisect_right(self._segments, offset, key=_base_offset) - 1, 0)


def _stretch(
    segment: Segment, offset: int, limit: int, max_bytes: int, first: bool
) -> tuple[int, int, int]:
    """Return the positions where the whole batches to read start and end, and an offset before
    which they end.

    The `first` batch may have any size. Raises CorruptRecordError.
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


def _find_timestamp(
    segment: Segment, timestamp: int, start_offset: int, limits: ReadLimits
) -> RecordSteps[TimestampAndOffset | None]:
    position = segment.position_of(max(segment.time_index.lookup(timestamp), start_offset))
    # Opened before the first pause: a segment may be renamed or deleted meanwhile.
    file = segment.file()
    for number, (at, header) in enumerate(segment.headers(position)):
        if number % _HEADERS_PER_STEP == _HEADERS_PER_STEP - 1:
            yield None
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        found = yield from _first_record(
            file,
            at,
            header,
            limits,
            lambda r: r.timestamp >= timestamp and r.offset >= start_offset,
        )
        if found is not None:
            return found
    return None


def _first_record(
    file: File,
    position: int,
    header: BatchHeader,
    limits: ReadLimits,
    is_wanted: Callable[[Record], bool],
) -> RecordSteps[TimestampAndOffset | None]:
    """Return the first wanted record of a batch."""
    found: TimestampAndOffset | None = None

    def visit(record: Record) -> bool:
        nonlocal found
        if is_wanted(record):
            found = TimestampAndOffset(
                record.timestamp, record.offset, header.partition_leader_epoch
            )
        return found is not None

    # Work that may have long calls waits for them without memory for which other work waits.
    yield Memory(header.size, longest_call(header))
    batch = file.read(header.size, position)
    bound = inflation_bound(max(limits.batch_bytes, header.size))
    yield from each_record(batch, header, bound, visit, max_record=limits.record_bytes)
    return found
