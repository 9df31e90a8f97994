"""The lag of groups: by offsets, as Kafka's tools show it, and in records.

The records are those that read_committed consumers will still be given, counted from headers.

Kafka's lag is a difference of offsets. It also counts markers, records of aborted transactions, and
offsets whose records were compacted or deleted. This module counts records: headers have their
number, and the transaction index of a log has the aborted ones.
"""

from bisect import bisect_right
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from barnabas.protocol.records.batch import BatchHeader


class OutOfRange(StrEnum):
    """The place of a committed offset that its log does not hold."""

    BELOW_START = "below_start"
    """Below the log start: the consumers continue at the offset of `auto.offset.reset`."""
    BEHIND_END = "behind_end"
    """Behind the high watermark: the log was truncated, or the topic was created again."""
    GONE = "gone"
    """In a partition that does not exist."""


def out_of_range(committed: int, start: int, end: int) -> OutOfRange | None:
    """Return where a committed offset is, if it is outside of the log [start, end]."""
    if committed > end:
        return OutOfRange.BEHIND_END
    return OutOfRange.BELOW_START if committed < start else None


def offset_lag(committed: int, end: int) -> int:
    """Return Kafka's lag: the offsets from a committed one to the high watermark.

    It is 0 behind the end, where Kafka's tools show a negative number.
    """
    return max(end - committed, 0)


class AbortedSpan(NamedTuple):
    """An aborted transaction: the data of `producer_id` in [first_offset, last_offset]."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""


class RecordLag(NamedTuple):
    """The counted records between a committed offset and the high watermark."""

    to_read: int
    """Records below the last stable offset that a read_committed consumer will be given."""
    held_back: int
    """Records between last stable offset and high watermark whose transaction is not aborted."""
    counted_to: int
    """The offset before which everything is counted; the high watermark if all is counted."""
    batches: int
    """The batches that were looked at."""


def records_from(header: BatchHeader, offset: int) -> int | None:
    """Return how many records of a batch are at `offset` or later.

    None if the header cannot tell: `offset` is inside of a batch that compaction has left gaps in.
    """
    if offset <= header.base_offset or not header.record_count:
        return header.record_count
    if offset > header.last_offset:
        return 0
    if header.record_count == header.last_offset_delta + 1:
        return header.next_offset - offset
    return None


class LagCounter:
    """A count of the records in [start, end), from the headers of one log in offset order.

    `last_stable_offset` and `end`, the high watermark, belong to one moment. Transactions that are
    aborted by markers in [start, end) must be known (`abort`) before their first batch is added.
    """

    def __init__(self, start: int, last_stable_offset: int, end: int) -> None:
        self.start = start
        self.end = end
        self._last_stable_offset = last_stable_offset
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self._to_read = 0
        self._held_back = 0
        self._counted_to = start
        self._batches = 0

    def abort(self, spans: Iterable[AbortedSpan]) -> None:
        """Add aborted transactions that overlap the batches which are added next, those of a
        producer in their order."""
        for span in spans:
            # A marker that is not committed yet may be lost, and then the records are undecided.
            if span.last_offset < self.end:
                known = self._aborted.setdefault(span.producer_id, [])
                known.append((span.first_offset, span.last_offset))

    def forget_aborted(self) -> None:
        """Forget the aborted transactions, before those of the next batches are added."""
        self._aborted = {}

    def is_data(self, header: BatchHeader) -> bool:
        """Return whether the batch has records that are not aborted."""
        if header.is_control or not header.record_count:
            return False
        spans = self._aborted.get(header.producer_id) if header.is_transactional else None
        if not spans:
            return True
        before = bisect_right(spans, (header.base_offset, self.end)) - 1
        return before < 0 or spans[before][1] < header.base_offset

    def add(self, header: BatchHeader, records: int) -> None:
        """Count a batch: `records` of it are at `start` or later, 0 if it is not data."""
        self._counted_to = max(self._counted_to, header.next_offset)
        self._batches += 1
        if header.last_offset >= self._last_stable_offset:
            self._held_back += records
        else:
            self._to_read += records

    def result(self, *, complete: bool) -> RecordLag:
        """Return the count; `complete` if the last batch below `end` has been added."""
        counted_to = max(self.end, self.start) if complete else self._counted_to
        return RecordLag(self._to_read, self._held_back, counted_to, self._batches)
