"""The count of a log's records behind a committed offset, from the headers of its batches."""

from functools import partial
from typing import Final

from barnabas.protocol.records.batch import HEADER_SIZE, BatchHeader, CorruptRecordError
from barnabas.protocol.records.compression import inflation_bound
from barnabas.protocol.records.group_lag import AbortedSpan, LagCounter, RecordLag, records_from
from barnabas.protocol.records.record import Record
from barnabas.storage.files.files import File
from barnabas.storage.log.record_steps import Memory, RecordSteps, each_record
from barnabas.storage.log.segment import Segment
from barnabas.storage.log.segments import Segments
from barnabas.storage.log.txn_index import ENTRY_SIZE, CorruptTxnIndexError, search

_CHUNK: Final = 8192
"""Bytes read at once: the headers of a hundred small batches, or one of a large batch."""
_INDEX_PIECE: Final = 256 * ENTRY_SIZE
"""Bytes of an index that are decoded in one step. A segment may have a million transactions."""


def count_records(
    segments: Segments, counter: LagCounter, max_batches: int, max_batch_bytes: int
) -> RecordSteps[RecordLag]:
    """Count the records from the counter's start to its end, in steps.

    Stops after `max_batches` batches. Segments may come and go between the steps. Raises
    ProtocolError if the log or its index is damaged, OSError.
    """
    reached, left = counter.start, max_batches
    while reached < counter.end:
        segment = segments.from_offset(reached)[0]
        # All files are opened before the next pause: the segment may be renamed or deleted then.
        file = segment.file()
        stop = min(segment.next_offset, counter.end)
        # A segment that ends before its successor begins has nothing to offer in the gap.
        after = segments.base_after(segment.base_offset)
        if reached < stop:
            position = segment.position_of(reached)
            yield from _note_aborted(segments, counter, reached, stop)
            left = yield from _count_segment(
                segment, file, position, counter, left, max_batch_bytes
            )
            if left <= 0:
                return counter.result(complete=False)
        reached = counter.end if after is None else after
    return counter.result(complete=True)


def _note_aborted(
    segments: Segments, counter: LagCounter, start: int, end: int
) -> RecordSteps[None]:
    """Tell the counter the aborted transactions that overlap [start, end)."""
    counter.forget_aborted()
    try:
        for encoded in segments.encoded_aborted(start, end):
            for at in range(0, len(encoded), _INDEX_PIECE):
                aborted, _ = search(encoded[at : at + _INDEX_PIECE], start, end)
                counter.abort(AbortedSpan(*txn[:3]) for txn in aborted)
                yield None
    except CorruptTxnIndexError as error:
        raise CorruptRecordError(str(error)) from error


def _count_segment(
    segment: Segment,
    file: File,
    position: int,
    counter: LagCounter,
    left: int,
    max_batch_bytes: int,
) -> RecordSteps[int]:
    """Count the batches from a position to the end of a segment; return how many of `left` are
    left."""
    while position < segment.size:
        chunk = file.read_nowait(_CHUNK, position)
        if chunk is None or len(chunk) < HEADER_SIZE:
            chunk = yield partial(file.read, _CHUNK, position)
        if len(chunk) < HEADER_SIZE:
            raise CorruptRecordError(f"{segment.path('.log')} ends within a header")
        for at, header in segment.headers_in(chunk, position):
            if header.last_offset >= counter.end:
                return left
            if left <= 0:
                return 0
            records = 0
            if counter.is_data(header):
                counted = records_from(header, counter.start)
                if counted is None:
                    counted = yield from _records_in(
                        file, at, header, counter.start, max_batch_bytes
                    )
                records = counted
            counter.add(header, records)
            position = at + header.size
            left -= 1
        yield None
    return left


def _records_in(
    file: File, position: int, header: BatchHeader, start: int, max_batch_bytes: int
) -> RecordSteps[int]:
    """Count the records of one batch that are at `start` or later."""
    counted = 0

    def visit(record: Record) -> None:
        nonlocal counted
        counted += record.offset >= start

    yield Memory(header.size)
    batch = yield partial(file.read, header.size, position)
    bound = inflation_bound(max(max_batch_bytes, header.size))
    yield from each_record(batch, header, bound, visit)
    yield Memory(0)
    return counted
