"""The queue against a partition with Kafka's rules of sequences, over an unreliable network."""

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from barnabas.client.producing.partition_queue import (
    LAST_EPOCH,
    MAX_IN_FLIGHT,
    Batch,
    BatchResult,
    Delivered,
    EncodedBatch,
    Limits,
    PartitionQueue,
    ProducerIdAndEpoch,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import HEADER_SIZE, MAX_SEQUENCE, read_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import BatchBuilder, Record, iter_records

SIZE = 10
FOREVER = 1e9


class NoFuture:
    """A stand-in for the future: a queue only passes it on."""

    def done(self) -> bool:
        return True


def no_future() -> "asyncio.Future[Delivered]":
    return NoFuture()  # type: ignore[return-value]


def append(queue: PartitionQueue, number: int, queued_at: float = 0.0) -> None:
    """Append a record of SIZE bytes as a sender does."""
    value = b"%03d" % number
    if queue.open is not None and (size := queue.open.add(None, value, limit=queue.batch_size)):
        queue.pending[-1].size += size
        queue.pending[-1].delivered.append(no_future())
    else:
        records = BatchBuilder(0)
        records.add(None, value)
        queue.append(Batch(queued_at, records, records.size, [no_future()]))


def whole_batch(number: int, count: int, queued_at: float = 0.0) -> Batch:
    """Return a whole batch of the records from `number` on."""
    records = BatchBuilder(0)
    for each in span(number, count):
        records.add(None, b"%03d" % each)
    encoded = EncodedBatch(records.build(), count)
    return Batch(queued_at, encoded, len(encoded.data), [no_future()])


def span(number: int, count: int) -> range:
    return range(number, number + count)


def room(count: int) -> int:
    """Return the size of a batch of so many records."""
    return HEADER_SIZE + count * SIZE


def numbers_in(batches: Iterable[Batch]) -> list[int]:
    numbers: list[int] = []
    for each in batches:
        encoded = each.encoded
        data = encoded.build() if isinstance(encoded, BatchBuilder) else encoded.data
        numbers += [int(record.value or b"") for record in iter_records(data, 0, read_header(data))]
    return numbers


class Sent(NamedTuple):
    """A request on the wire; it keeps the sequence that it was sent with."""

    batch: Batch
    identity: ProducerIdAndEpoch
    sequence: int
    records: tuple[int, ...]


class Partition:
    """The log of a partition, and the broker's state of the only producer."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.identity: ProducerIdAndEpoch | None = None
        self.next = 0
        self.remembered: deque[tuple[int, int]] = deque(maxlen=5)

    def produce(self, sent: Sent, most: int) -> ErrorCode:
        if len(sent.records) > most:
            return ErrorCode.MESSAGE_TOO_LARGE
        if self.identity is not None and sent.identity.epoch < self.identity.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        known = self.identity == sent.identity
        if known and (sent.sequence, len(sent.records)) in self.remembered:
            return ErrorCode.NONE
        expected = self.next if known else 0
        if self.identity is not None and sent.sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not known:
            self.remembered.clear()
        self.identity = sent.identity
        self.remembered.append((sent.sequence, len(sent.records)))
        self.next = (sent.sequence + len(sent.records)) & MAX_SEQUENCE
        self.log += sent.records
        return ErrorCode.NONE


class Course:
    """A random course of events; the seed determines it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.queue = PartitionQueue("t", 0, Limits(batch_size=room(4), delivery_timeout=30.0))
        self.queue.set_producer(ProducerIdAndEpoch(7, 0))
        self.queue.next_sequence = self.chance.choice((0, MAX_SEQUENCE - 30))
        self.partition = Partition()
        self.most = self.chance.choice((1, 3, 4, 4, 4, 4))
        self.wire: deque[Sent] = deque()
        self.stray: list[Sent] = []
        self.count = 0
        self.delivered: list[int] = []
        self.failed: list[int] = []

    def run(self) -> None:
        things = (
            (self.append, 4),
            (self.send, 8),
            (self.arrives, 8),
            (self.is_lost, self.chance.choice((0, 1, 3))),
            (self.is_refused, self.chance.choice((0, 1, 3))),
            (self.comes_late, 2),
            (self.time_passes, 2),
        )
        for thing in self.chance.choices(*zip(*things, strict=True), k=150):  # type: ignore[call-overload]
            thing()
            self.check_invariants()
        self.drain()

    def append(self) -> None:
        if self.chance.random() < 0.2:
            count = self.chance.randint(1, 5)
            self.queue.append(whole_batch(self.count, count, self.now))
            self.count += count
        for _ in range(self.chance.randint(1, 9)):
            append(self.queue, self.count, self.now)
            self.count += 1

    def send(self, flushing: bool | None = None) -> None:
        flushing = self.chance.random() < 0.5 if flushing is None else flushing
        while (batch := self.queue.next_batch(self.now, flushing=flushing)) is not None:
            self.wire.append(Sent(batch, *batch.sent_as, tuple(numbers_in([batch]))))

    def arrives(self, is_answered: bool | None = None) -> None:
        if not self.wire:
            return
        sent = self.wire.popleft()
        code = self.partition.produce(sent, self.most)
        if self.chance.random() < 0.8 if is_answered is None else is_answered:
            self.complete(sent, code)
        else:
            self.complete(sent, ErrorCode.NETWORK_EXCEPTION, uncertain=True)

    def is_lost(self) -> None:
        if self.wire:
            sent = self.wire.popleft()
            self.stray.append(sent)
            self.complete(sent, ErrorCode.NETWORK_EXCEPTION, uncertain=True)

    def is_refused(self) -> None:
        codes = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_RECORD)
        if self.wire:
            self.complete(self.wire.popleft(), self.chance.choice(codes))

    def comes_late(self) -> None:
        if self.stray:
            self.partition.produce(self.stray.pop(0), self.most)

    def time_passes(self) -> None:
        self.now += self.chance.choice((0.1, 1.0, 31.0))

    def complete(self, sent: Sent, code: ErrorCode, *, uncertain: bool = False) -> None:
        numbers = numbers_in([sent.batch])
        result = self.queue.complete(sent.batch, code, self.now, uncertain=uncertain)
        self.failed += numbers_in(self.queue.take_abandoned())
        if result is BatchResult.DELIVERED:
            self.delivered += numbers
        elif result is BatchResult.FAILED:
            self.failed += numbers

    def check_invariants(self) -> None:
        log = self.partition.log
        assert log == sorted(set(log)), "written twice, or overtaken"
        assert set(self.delivered) <= set(log), "delivered and not written"
        assert self.queue.in_flight <= MAX_IN_FLIGHT

    def drain(self) -> None:
        """Check that the queue empties once the network works."""
        for _ in range(300):
            self.now += 1.0
            self.send(flushing=True)
            while self.wire:
                self.arrives(is_answered=True)
                self.check_invariants()
            if not self.queue.is_busy:
                break
        assert sorted(self.delivered + self.failed) == list(range(self.count))


@hypothesis_settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_records_are_written_once_and_in_order_over_any_network(seed: int) -> None:
    Course(seed).run()


def queue_with(count: int, **limits: float) -> PartitionQueue:
    queue = PartitionQueue("t", 0, Limits(batch_size=room(1), **limits))  # type: ignore[arg-type]
    queue.set_producer(ProducerIdAndEpoch(7, 0))
    for number in range(count):
        append(queue, number)
    return queue


def send_all(queue: PartitionQueue, now: float = 0.0) -> list[Batch]:
    batches = []
    while (batch := queue.next_batch(now, flushing=True)) is not None:
        batches.append(batch)
    return batches


def queue_with_state(count: int) -> PartitionQueue:
    """Return a queue whose first batch is delivered, with `count` more pending."""
    queue = queue_with(1 + count)
    (first,) = send_all(queue)
    queue.complete(first, ErrorCode.NONE, 0.0)
    return queue


def test_second_batch_waits_until_broker_has_producer_state() -> None:
    queue = queue_with(3)
    (first,) = send_all(queue)
    queue.complete(first, ErrorCode.NONE, 0.0)
    assert [batch.sequence for batch in send_all(queue)] == [1, 2]


def test_batches_are_sent_again_one_by_one_after_a_failure() -> None:
    queue = queue_with_state(3)
    first, second, third = send_all(queue)
    assert (
        queue.complete(first, ErrorCode.NETWORK_EXCEPTION, 0.0, uncertain=True) is BatchResult.RETRY
    )
    assert queue.complete(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is BatchResult.RETRY
    assert send_all(queue, FOREVER) == [], "the third is still under way"
    assert queue.complete(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is BatchResult.RETRY
    for batch, sequence in ((first, 1), (second, 2), (third, 3)):
        assert send_all(queue, FOREVER) == [batch]
        assert batch.sent_as == (ProducerIdAndEpoch(7, 0), sequence)
        queue.complete(batch, ErrorCode.NONE, 0.0)


def test_lost_producer_state_raises_the_epoch() -> None:
    queue = queue_with_state(2)
    first, second = send_all(queue)
    assert queue.complete(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is BatchResult.RETRY
    assert queue.complete(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is BatchResult.RETRY
    (again,) = send_all(queue)
    assert again is first
    assert again.sent_as == (ProducerIdAndEpoch(7, 1), 0)


def test_transactional_queue_does_not_raise_the_epoch() -> None:
    queue = PartitionQueue("t", 0, Limits(transactional=True))
    queue.set_producer(ProducerIdAndEpoch(7, 0))
    append(queue, 0)
    (batch,) = send_all(queue)
    assert queue.complete(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is BatchResult.FAILED
    assert queue.identity == ProducerIdAndEpoch(7, 0)


def test_uncertain_failed_batch_raises_the_epoch() -> None:
    queue = queue_with(1, delivery_timeout=1.0)
    (batch,) = send_all(queue)
    result = queue.complete(batch, ErrorCode.NETWORK_EXCEPTION, 2.0, uncertain=True)
    assert result is BatchResult.FAILED
    append(queue, 1, 2.0)
    assert send_all(queue, 2.0)[0].sent_as == (ProducerIdAndEpoch(7, 1), 0)


def test_refused_batch_raises_the_epoch_of_later_batches() -> None:
    queue = queue_with_state(3)
    first, second, third = send_all(queue)
    assert queue.complete(first, ErrorCode.INVALID_RECORD, 0.0) is BatchResult.FAILED
    for batch in (second, third):
        result = queue.complete(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
        assert result is BatchResult.RETRY
    assert send_all(queue)[0].sent_as == (ProducerIdAndEpoch(7, 1), 0)
    assert (third.identity, third.sequence) == (ProducerIdAndEpoch(7, 1), 1)


def test_uncertain_batch_is_not_sent_again_with_a_new_epoch() -> None:
    queue = queue_with_state(3)
    first, second, third = send_all(queue)
    queue.complete(first, ErrorCode.INVALID_RECORD, 0.0)
    queue.complete(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert (
        queue.complete(third, ErrorCode.NETWORK_EXCEPTION, 0.0, uncertain=True)
        is BatchResult.FAILED
    )
    assert send_all(queue) == [second]


def test_exhausted_epochs_need_a_new_producer_id() -> None:
    queue = queue_with(1)
    queue.set_producer(ProducerIdAndEpoch(7, LAST_EPOCH))
    (batch,) = send_all(queue)
    assert queue.complete(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is BatchResult.RETRY
    assert queue.is_exhausted
    assert send_all(queue) == []
    queue.set_producer(ProducerIdAndEpoch(8, 0))
    assert send_all(queue)[0].sent_as == (ProducerIdAndEpoch(8, 0), 0)


@pytest.mark.parametrize("flushing", [False, True])
def test_partial_batch_grows_while_another_is_in_flight(flushing: bool) -> None:
    queue = PartitionQueue("t", 0, Limits(batch_size=room(3)))
    queue.set_producer(ProducerIdAndEpoch(7, 0))
    append(queue, 0)
    first = queue.next_batch(0.0)
    assert first is not None
    queue.complete(first, ErrorCode.NONE, 0.0)
    append(queue, 1)
    assert queue.next_batch(0.0) is not None
    append(queue, 2)
    assert (queue.next_batch(0.0, flushing=flushing) is not None) is flushing


def test_split_batch_keeps_its_sequences() -> None:
    queue = PartitionQueue("t", 0, Limits(batch_size=room(4)))
    queue.set_producer(ProducerIdAndEpoch(7, 0))
    for number in range(4):
        append(queue, number)
    (whole,) = send_all(queue)
    assert queue.complete(whole, ErrorCode.MESSAGE_TOO_LARGE, 0.0) is BatchResult.RETRY
    for sequence in (0, 2):
        (half,) = send_all(queue)
        assert (half.sequence, half.count, half.size) == (sequence, 2, room(2))
        queue.complete(half, ErrorCode.NONE, 0.0)
    append(queue, 4)
    assert send_all(queue)[0].sequence == 4


def test_split_batches_have_the_records_and_the_futures_of_the_whole() -> None:
    queue = PartitionQueue("t", 0, Limits())
    queue.set_producer(ProducerIdAndEpoch(7, 0))
    records = [
        Record(0, 1000, b"key", b"value", (("a", None), ("b", b"c"))),
        Record(1, 900, None, b"", ()),
        Record(2, 2000, b"", None, ()),
        Record(3, 1000, None, b"x" * 100, ()),
        Record(4, 1000, None, b"y", (("d", b""),)),
    ]
    futures = [no_future() for _ in records]
    builder = BatchBuilder(records[0].timestamp)
    for each in records:
        builder.add(each.key, each.value, each.timestamp, each.headers)
    queue.append(Batch(0.0, builder, builder.size, futures))
    (whole,) = send_all(queue)
    # As a sender does with its compression.
    whole.encoded = EncodedBatch(builder.build(compression=Compression.GZIP), whole.count)
    assert queue.complete(whole, ErrorCode.MESSAGE_TOO_LARGE, 0.0) is BatchResult.RETRY
    sent, delivered = [], []
    while queue.is_busy:
        (part,) = send_all(queue)
        assert isinstance(part.encoded, BatchBuilder)
        data = part.encoded.build()
        first = read_header(data)._replace(base_offset=part.sequence)
        sent += list(iter_records(data, 0, first))
        delivered += part.delivered
        queue.complete(part, ErrorCode.NONE, 0.0)
    assert sent == records
    assert delivered == futures


def test_pending_batch_is_split_if_the_broker_takes_less_by_then() -> None:
    queue = PartitionQueue("t", 0, Limits(batch_size=room(4)))
    queue.set_producer(ProducerIdAndEpoch(7, 0))
    for number in range(9):
        append(queue, number)
    first = queue.next_batch(0.0)
    assert first is not None
    assert first.count == 4
    assert queue.complete(first, ErrorCode.MESSAGE_TOO_LARGE, 0.0) is BatchResult.RETRY
    sent = []
    while queue.is_busy:
        for batch in send_all(queue):
            sent.append(numbers_in([batch]))
            queue.complete(batch, ErrorCode.NONE, 0.0)
    assert sent == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


def test_linger_delays_a_partial_batch() -> None:
    queue = PartitionQueue("t", 0, Limits(linger=5.0))
    queue.set_producer(ProducerIdAndEpoch(7, 0))
    append(queue, 0)
    assert queue.next_batch(1.0) is None
    assert queue.next_send_time() == 5.0
    assert queue.next_batch(5.0) is not None


def test_whole_batch_is_sent_alone_and_between_its_neighbours() -> None:
    queue = PartitionQueue("t", 0, Limits(batch_size=room(9), linger=5.0))
    queue.set_producer(ProducerIdAndEpoch(7, 0))
    append(queue, 0)
    append(queue, 1)
    queue.append(whole_batch(2, 3))
    append(queue, 5)
    sent = []
    while (batch := queue.next_batch(0.0)) is not None:
        sent.append((batch.sequence, batch.count, numbers_in([batch])))
        queue.complete(batch, ErrorCode.NONE, 0.0)
    assert sent == [(0, 2, [0, 1]), (2, 3, [2, 3, 4])]
    assert queue.next_send_time() == 5.0, "the last record lingers"
    assert send_all(queue, 5.0)[0].sequence == 5


def test_whole_batch_that_is_too_large_fails_and_is_not_split() -> None:
    queue = queue_with(0)
    queue.append(whole_batch(0, 4))
    (batch,) = send_all(queue)
    assert queue.complete(batch, ErrorCode.MESSAGE_TOO_LARGE, 0.0) is BatchResult.FAILED


def test_dropped_queue_returns_its_whole_batches() -> None:
    queue = PartitionQueue("t", 0, Limits(batch_size=room(9)))
    queue.set_producer(ProducerIdAndEpoch(7, 0))
    append(queue, 0)
    queue.append(whole_batch(1, 2))
    append(queue, 3)
    queue.append(whole_batch(4, 1))
    first = queue.next_batch(0.0)
    assert first is not None
    queue.complete(first, ErrorCode.NETWORK_EXCEPTION, 0.0, uncertain=True)
    assert numbers_in(queue.drop()) == [0, 1, 2, 3, 4]
    assert not queue.is_busy
    append(queue, 5)
    assert queue.next_batch(0.0) is not None
    append(queue, 6)
    assert queue.next_batch(0.0) is None, "a whole batch is still counted as pending"
