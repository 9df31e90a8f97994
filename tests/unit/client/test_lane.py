"""A lane against a partition that follows Kafka's rules of sequences, over a network that loses."""

import asyncio
import random
from collections import deque
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from barnabas.client.lane import (
    LAST_EPOCH,
    MAX_IN_FLIGHT,
    Batch,
    Delivered,
    Fate,
    Identity,
    Lane,
    Limits,
    Waiting,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import MAX_SEQUENCE

SIZE = 10
FOREVER = 1e9


class NoFuture:
    """Lanes only hand futures through."""

    def done(self) -> bool:
        return True


def record(number: int, since: float = 0.0) -> Waiting:
    value = b"%d" % number
    future: asyncio.Future[Delivered] = NoFuture()  # type: ignore[assignment]
    return Waiting(0, None, value, (), SIZE, since, future)


class Sent(NamedTuple):
    """A request on the wire: it keeps the sequence that it left with."""

    batch: Batch
    identity: Identity
    sequence: int
    records: tuple[int, ...]


class Partition:
    """The log, and what a broker remembers of the only producer."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.identity: Identity | None = None
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
    """One random course of things, by its seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.lane = Lane("t", 0, Limits(batch_size=4 * SIZE, delivery_timeout=30.0))
        self.lane.give(Identity(7, 0))
        self.lane.next_sequence = self.chance.choice((0, MAX_SEQUENCE - 30))
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
            self.holds()
        self.empties()

    def append(self) -> None:
        for _ in range(self.chance.randint(1, 9)):
            self.lane.append(record(self.count, self.now))
            self.count += 1

    def send(self, hurry: bool | None = None) -> None:
        hurry = self.chance.random() < 0.5 if hurry is None else hurry
        while (batch := self.lane.take(self.now, hurry=hurry)) is not None:
            numbers = tuple(int(each.value or b"") for each in batch.records)
            self.wire.append(Sent(batch, *batch.sent_as, numbers))

    def arrives(self, is_answered: bool | None = None) -> None:
        if not self.wire:
            return
        sent = self.wire.popleft()
        code = self.partition.produce(sent, self.most)
        if self.chance.random() < 0.8 if is_answered is None else is_answered:
            self.settle(sent, code)
        else:
            self.settle(sent, ErrorCode.NETWORK_EXCEPTION, uncertain=True)

    def is_lost(self) -> None:
        if self.wire:
            sent = self.wire.popleft()
            self.stray.append(sent)
            self.settle(sent, ErrorCode.NETWORK_EXCEPTION, uncertain=True)

    def is_refused(self) -> None:
        codes = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_RECORD)
        if self.wire:
            self.settle(self.wire.popleft(), self.chance.choice(codes))

    def comes_late(self) -> None:
        if self.stray:
            self.partition.produce(self.stray.pop(0), self.most)

    def time_passes(self) -> None:
        self.now += self.chance.choice((0.1, 1.0, 31.0))

    def settle(self, sent: Sent, code: ErrorCode, *, uncertain: bool = False) -> None:
        numbers = [int(each.value or b"") for each in sent.batch.records]
        fate = self.lane.settle(sent.batch, code, self.now, uncertain=uncertain)
        self.failed += [int(each.value or b"") for each in self.lane.reap()]
        if fate is Fate.DELIVERED:
            self.delivered += numbers
        elif fate is Fate.FAILED:
            self.failed += numbers

    def holds(self) -> None:
        log = self.partition.log
        assert log == sorted(set(log)), "written twice, or overtaken"
        assert set(self.delivered) <= set(log), "delivered and not written"
        assert self.lane.flying <= MAX_IN_FLIGHT

    def empties(self) -> None:
        """Once the network works, the lane gets rid of everything."""
        for _ in range(300):
            self.now += 1.0
            self.send(hurry=True)
            while self.wire:
                self.arrives(is_answered=True)
                self.holds()
            if not self.lane.is_busy:
                break
        assert sorted(self.delivered + self.failed) == list(range(self.count))


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_the_network_does_records_are_written_once_and_in_order(seed: int) -> None:
    Course(seed).run()


def lane_of(count: int, **limits: float) -> Lane:
    lane = Lane("t", 0, Limits(batch_size=SIZE, **limits))  # type: ignore[arg-type]
    lane.give(Identity(7, 0))
    for number in range(count):
        lane.append(record(number))
    return lane


def fly(lane: Lane, now: float = 0.0) -> list[Batch]:
    batches = []
    while (batch := lane.take(now, hurry=True)) is not None:
        batches.append(batch)
    return batches


def remembered(count: int) -> Lane:
    """A lane whose first batch is delivered, and `count` more that wait."""
    lane = lane_of(1 + count)
    (first,) = fly(lane)
    lane.settle(first, ErrorCode.NONE, 0.0)
    return lane


def test_a_second_batch_waits_until_the_broker_knows_the_producer() -> None:
    lane = lane_of(3)
    (first,) = fly(lane)
    lane.settle(first, ErrorCode.NONE, 0.0)
    assert [batch.sequence for batch in fly(lane)] == [1, 2]


def test_after_a_failure_batches_go_out_again_one_by_one_in_order() -> None:
    lane = remembered(3)
    first, second, third = fly(lane)
    assert lane.settle(first, ErrorCode.NETWORK_EXCEPTION, 0.0, uncertain=True) is Fate.AGAIN
    assert lane.settle(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is Fate.AGAIN
    assert fly(lane, FOREVER) == [], "the third is still under way"
    assert lane.settle(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is Fate.AGAIN
    for batch, sequence in ((first, 1), (second, 2), (third, 3)):
        assert fly(lane, FOREVER) == [batch]
        assert batch.sent_as == (Identity(7, 0), sequence)
        lane.settle(batch, ErrorCode.NONE, 0.0)


def test_a_broker_that_lost_its_state_gets_a_new_epoch() -> None:
    lane = remembered(2)
    first, second = fly(lane)
    assert lane.settle(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is Fate.AGAIN
    assert lane.settle(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is Fate.AGAIN
    (again,) = fly(lane)
    assert again is first
    assert again.sent_as == (Identity(7, 1), 0)


def test_a_transaction_takes_no_new_epoch_by_itself() -> None:
    lane = Lane("t", 0, Limits(transactional=True))
    lane.give(Identity(7, 0))
    lane.append(record(0))
    (batch,) = fly(lane)
    assert lane.settle(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is Fate.FAILED
    assert lane.identity == Identity(7, 0)


def test_a_batch_given_up_that_may_be_written_costs_an_epoch() -> None:
    lane = lane_of(1, delivery_timeout=1.0)
    (batch,) = fly(lane)
    fate = lane.settle(batch, ErrorCode.NETWORK_EXCEPTION, 2.0, uncertain=True)
    assert fate is Fate.FAILED
    lane.append(record(1, 2.0))
    assert fly(lane, 2.0)[0].sent_as == (Identity(7, 1), 0)


def test_a_batch_that_was_refused_costs_those_behind_it_an_epoch() -> None:
    lane = remembered(3)
    first, second, third = fly(lane)
    assert lane.settle(first, ErrorCode.INVALID_RECORD, 0.0) is Fate.FAILED
    for batch in (second, third):
        fate = lane.settle(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
        assert fate is Fate.AGAIN
    assert fly(lane)[0].sent_as == (Identity(7, 1), 0)
    assert (third.identity, third.sequence) == (Identity(7, 1), 1)


def test_what_may_be_written_is_not_written_again_under_a_new_epoch() -> None:
    lane = remembered(3)
    first, second, third = fly(lane)
    lane.settle(first, ErrorCode.INVALID_RECORD, 0.0)
    lane.settle(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert lane.settle(third, ErrorCode.NETWORK_EXCEPTION, 0.0, uncertain=True) is Fate.FAILED
    assert fly(lane) == [second]


def test_epochs_run_out_and_another_producer_id_takes_over() -> None:
    lane = lane_of(1)
    lane.give(Identity(7, LAST_EPOCH))
    (batch,) = fly(lane)
    assert lane.settle(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is Fate.AGAIN
    assert lane.is_exhausted
    assert fly(lane) == []
    lane.give(Identity(8, 0))
    assert fly(lane)[0].sent_as == (Identity(8, 0), 0)


@pytest.mark.parametrize("hurry", [False, True])
def test_a_partial_batch_grows_while_another_flies(hurry: bool) -> None:
    lane = Lane("t", 0, Limits(batch_size=3 * SIZE))
    lane.give(Identity(7, 0))
    lane.append(record(0))
    first = lane.take(0.0)
    assert first is not None
    lane.settle(first, ErrorCode.NONE, 0.0)
    lane.append(record(1))
    assert lane.take(0.0) is not None
    lane.append(record(2))
    assert (lane.take(0.0, hurry=hurry) is not None) is hurry


def test_halves_of_a_batch_take_the_sequences_of_the_whole() -> None:
    lane = Lane("t", 0, Limits(batch_size=4 * SIZE))
    lane.give(Identity(7, 0))
    for number in range(4):
        lane.append(record(number))
    (whole,) = fly(lane)
    assert lane.settle(whole, ErrorCode.MESSAGE_TOO_LARGE, 0.0) is Fate.AGAIN
    for sequence in (0, 2):
        (half,) = fly(lane)
        assert (half.sequence, len(half.records), half.size) == (sequence, 2, 2 * SIZE)
        lane.settle(half, ErrorCode.NONE, 0.0)
    lane.append(record(4))
    assert fly(lane)[0].sequence == 4


def test_records_linger_for_company() -> None:
    lane = Lane("t", 0, Limits(linger=5.0))
    lane.give(Identity(7, 0))
    lane.append(record(0))
    assert lane.take(1.0) is None
    assert lane.wakes_at() == 5.0
    assert lane.take(5.0) is not None
