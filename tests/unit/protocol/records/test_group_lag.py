"""The count of a group's records from batch headers, against a list of single records."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import TRANSACTIONAL, BatchHeader, iter_headers
from barnabas.protocol.records.group_lag import (
    AbortedSpan,
    LagCounter,
    OutOfRange,
    RecordLag,
    offset_lag,
    out_of_range,
    records_from,
)
from barnabas.protocol.records.record import Record, build_batch, iter_records, rewrite_batch

PLAIN = 9
NEVER = 1 << 62


class Batch(NamedTuple):
    """A batch in a log, and the offsets of its records that compaction has left."""

    data: bytes
    header: BatchHeader
    offsets: tuple[int, ...]


def data_batch(base: int, size: int, producer: int, kept: set[int]) -> Batch:
    records = [Record(base + i, 0, b"k", b"v") for i in range(size)]
    whole = build_batch(records, producer_id=producer, transactional=producer != PLAIN)
    ((_, header),) = iter_headers(whole)
    left = [each for each in records if each.offset - base in kept]
    data = rewrite_batch(header, left)
    ((_, header),) = iter_headers(data)
    return Batch(data, header, tuple(each.offset for each in left))


def marker_batch(offset: int, producer: int) -> Batch:
    data = build_batch(
        [Record(offset, 0, b"k", b"v")], producer_id=producer, transactional=True, control=True
    )
    ((_, header),) = iter_headers(data)
    return Batch(data, header, ())


class History(NamedTuple):
    """A log with its transactions as (producer, first offset, marker, committed)."""

    batches: list[Batch]
    transactions: list[tuple[int, int, int, bool]]
    end: int


@st.composite
def histories(draw: st.DrawFn) -> History:
    batches: list[Batch] = []
    open_: dict[int, int] = {}
    transactions, end = [], 0
    for _ in range(draw(st.integers(0, 15))):
        producer = draw(st.sampled_from([1, 2, PLAIN]))
        if producer in open_ and draw(st.booleans()):
            first = open_.pop(producer)
            transactions.append((producer, first, end, draw(st.booleans())))
            batches.append(marker_batch(end, producer))
            end += 1
            continue
        size = draw(st.integers(1, 4))
        kept = draw(st.sets(st.integers(0, size - 1))) if draw(st.booleans()) else set(range(size))
        if producer != PLAIN:
            open_.setdefault(producer, end)
        batches.append(data_batch(end, size, producer, kept))
        # Batches that compaction has emptied may be gone.
        end += size + draw(st.integers(0, 2))
    transactions += [(producer, first, NEVER, False) for producer, first in open_.items()]
    return History(batches, transactions, end)


def counted(history: History, start: int, stable: int, end: int, most: int = 99) -> RecordLag:
    counter = LagCounter(start, stable, end)
    counter.abort(AbortedSpan(p, a, z) for p, a, z, good in history.transactions if not good)
    for batch in history.batches:
        header = batch.header
        if header.next_offset > start and header.last_offset < end:
            if most <= 0:
                return counter.result(complete=False)
            records = records_from(header, start) if counter.is_data(header) else 0
            if records is None:
                records = sum(r.offset >= start for r in iter_records(batch.data, 0, header))
            counter.add(header, records)
            most -= 1
    return counter.result(complete=True)


def expected(history: History, start: int, stable: int, end: int) -> tuple[int, int]:
    """Return the records to read and those held back, each looked at by itself."""
    to_read = held_back = 0
    for batch in history.batches:
        producer = batch.header.producer_id
        for offset in batch.offsets:
            void = any(
                by == producer and first <= offset < marker and not good and marker < end
                for by, first, marker, good in history.transactions
            )
            if start <= offset < end and not void:
                to_read += offset < stable
                held_back += offset >= stable
    return to_read, held_back


@settings(max_examples=500)
@given(history=histories(), data=st.data())
def test_count_equals_that_of_single_records(history: History, data: st.DataObject) -> None:
    ends = [0, *(batch.header.next_offset for batch in history.batches)]
    end = data.draw(st.sampled_from(ends))
    stable = min([first for _, first, marker, _ in history.transactions if marker >= end] + [end])
    start = data.draw(st.integers(0, history.end + 1))
    found = counted(history, start, stable, end)
    assert (found.to_read, found.held_back) == expected(history, start, stable, end)
    assert found.counted_to == max(start, end)


@settings(max_examples=200)
@given(history=histories(), most=st.integers(1, 4))
def test_parts_of_a_bounded_count_add_up(history: History, most: int) -> None:
    end = history.end
    stable = min([first for _, first, marker, _ in history.transactions if marker >= end] + [end])
    start, to_read, held_back = 0, 0, 0
    while start < end:
        part = counted(history, start, stable, end, most)
        assert start < part.counted_to
        start, to_read = part.counted_to, to_read + part.to_read
        held_back += part.held_back
    assert (to_read, held_back) == expected(history, 0, stable, end)


def test_header_alone_does_not_tell_the_records_behind_an_offset_in_a_batch_with_gaps() -> None:
    batch = data_batch(10, 4, PLAIN, {0, 3}).header
    assert [records_from(batch, offset) for offset in (0, 10, 11, 13, 14)] == [2, 2, None, None, 0]
    whole = data_batch(10, 4, PLAIN, {0, 1, 2, 3}).header
    assert [records_from(whole, offset) for offset in (0, 10, 11, 13, 14)] == [4, 4, 3, 1, 0]
    emptied = data_batch(10, 4, PLAIN, set()).header
    assert records_from(emptied, 12) == 0


def test_batch_outside_of_transactions_is_not_aborted_with_those_of_its_producer() -> None:
    """A consumer drops transactional batches only."""
    data = build_batch([Record(1, 0, b"k", b"v")], producer_id=1, transactional=False)
    ((_, header),) = iter_headers(data)
    counter = LagCounter(0, 9, 9)
    counter.abort([AbortedSpan(1, 0, 5)])
    assert counter.is_data(header)
    assert not counter.is_data(header._replace(attributes=TRANSACTIONAL))


def test_offset_behind_the_end_has_no_negative_lag_and_is_named() -> None:
    places = [(each, offset_lag(each, 9), out_of_range(each, 4, 9)) for each in (3, 4, 9, 10, 453)]
    assert places == [
        (3, 6, OutOfRange.BELOW_START),
        (4, 5, None),
        (9, 0, None),
        (10, 0, OutOfRange.BEHIND_END),
        (453, 0, OutOfRange.BEHIND_END),
    ]
