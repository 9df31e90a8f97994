"""Markers are sent until every partition has one, or is known to be deleted."""

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster.znodes import ZnodeError
from barnabas.broker.store.metadata_store import StoreError
from barnabas.broker.transactions.marker_channel import PendingMarker
from barnabas.broker.transactions.marker_sender import (
    AT_ONCE,
    LONGEST_RETRY_MS,
    RETRY_MS,
    WRITTEN_PER_TURN,
    MarkerSender,
)
from barnabas.broker.transactions.marker_writer import NOTHING_OPEN, MarkerWrite
from barnabas.coordinator.transaction.metadata import Markers, Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.coordinator.harness import Time

A, B, OFFSETS = ("a", 0), ("b", 3), ("__consumer_offsets", 7)
PRODUCER = Producer(1000, 4)
Write = tuple[TopicPartition, TxnMarker, Callable[[ErrorCode], None]]


class Rig:
    """A sender with a writer that answers `codes` or waits, and the known partitions."""

    def __init__(self) -> None:
        self.time = Time()
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.held = False
        self.led: set[TopicPartition] = set()
        """The partitions that this broker leads."""
        self.writes: list[Write] = []
        self.known: set[TopicPartition] = {A, B, OFFSETS}
        self.stored: set[TopicPartition] = {A, B, OFFSETS}
        self.store_fails: Exception | None = None
        self.finished: list[tuple[str, Producer]] = []
        self.notes: list[str] = []
        self.sender = MarkerSender(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.time,
            writer=SimpleNamespace(put=lambda *_: False, write_led=self._write_led),
            partition_exists=self._exists,
            finished=lambda key, producer, _: self.finished.append((key, producer)),
            noted=lambda _index, _key, text, *named: self.notes.append(
                " ".join((text, *(f"{topic}-{index}" for topic, index in named)))
            ),
        )

    def partition(self, topic: str, index: int) -> object | None:
        """Answer in place of the metadata cache."""
        return object() if (topic, index) in self.known else None

    def route(self, markers: Iterable[PendingMarker]) -> None:
        """Take markers in place of the routes."""
        for pending in markers:
            self.writes.append((pending.partition, pending.marker, pending.done))
            if not self.held:
                pending.done(self.codes.get(pending.partition, ErrorCode.NONE))

    def _write_led(self, write: MarkerWrite) -> bool:
        if write.partition not in self.led:
            return False
        self.writes.append(write)
        if not self.held:
            write.done(self.codes.get(write.partition, ErrorCode.NONE))
        return True

    def forget_unwanted(self) -> None:
        """Take a resignation in place of the routes."""

    async def _exists(self, topic: str, index: int) -> bool:
        if self.store_fails is not None:
            raise self.store_fails
        return (topic, index) in self.stored

    def send(self, *partitions: TopicPartition, key: str = "x", index: int = 0) -> None:
        markers = Markers(key, PRODUCER, True, frozenset(partitions), 2)
        self.sender.send(index, 9, markers, 0)

    async def turns(self, ms: int = 0) -> None:
        """Fire the timers of that time, and let tasks run."""
        self.time.pass_ms(ms)
        for _ in range(5):
            await asyncio.sleep(0)
            self.time.pass_ms(0)

    @property
    def places(self) -> list[TopicPartition]:
        return [place for place, _, _ in self.writes]


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_transaction_finishes_when_every_partition_has_its_marker(rig: Rig) -> None:
    rig.send(A, B, OFFSETS)
    assert (rig.writes, rig.sender.queued) == ([], 3)
    await rig.turns()
    assert sorted(rig.places) == sorted([A, B, OFFSETS])
    assert {marker for _, marker, _ in rig.writes} == {TxnMarker(1000, 4, 9, True, 2)}
    assert rig.finished == [("x", PRODUCER)]
    assert rig.sender.queued == 0


async def test_transaction_does_not_finish_before_last_marker_is_committed(rig: Rig) -> None:
    rig.held = True
    rig.send(A, B)
    await rig.turns()
    rig.writes[0][2](ErrorCode.NONE)
    assert (rig.finished, rig.sender.queued) == ([], 1)
    rig.writes[1][2](ErrorCode.NONE)
    assert rig.finished == [("x", PRODUCER)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_failed_marker_is_retried(rig: Rig, code: ErrorCode) -> None:
    rig.codes[A] = code
    rig.send(A, B)
    await rig.turns()
    await rig.turns(RETRY_MS - 1)
    assert sorted(rig.places) == [A, B]
    await rig.turns(1)
    assert rig.places.count(A) == 2
    rig.codes.clear()
    await rig.turns(2 * RETRY_MS)
    assert (rig.places.count(A), rig.places.count(B)) == (3, 1)
    assert rig.finished == [("x", PRODUCER)]


async def test_partition_missing_from_cache_only_is_retried(rig: Rig) -> None:
    rig.known.remove(A)
    rig.codes[A] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.send(A)
    await rig.turns()
    assert rig.sender.queued == 1
    rig.codes.clear()
    await rig.turns(RETRY_MS)
    assert rig.places == [A, A]
    assert rig.finished == [("x", PRODUCER)]


async def test_marker_of_partition_missing_from_store_is_dropped(rig: Rig) -> None:
    rig.known.remove(A)
    rig.stored.remove(A)
    rig.codes[A] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.send(A, B)
    await rig.turns()
    assert rig.finished == [("x", PRODUCER)]
    assert "a-0 is deleted" in rig.notes


@pytest.mark.parametrize("error", [StoreError("out of reach"), ZnodeError("damaged")])
async def test_marker_is_retried_while_store_cannot_answer(rig: Rig, error: Exception) -> None:
    rig.known.remove(A)
    rig.stored.remove(A)
    rig.codes[A] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.store_fails = error
    rig.send(A)
    await rig.turns()
    await rig.turns(RETRY_MS)
    assert (rig.finished, rig.places) == ([], [A, A])
    rig.store_fails = None
    await rig.turns(2 * RETRY_MS)
    assert rig.finished == [("x", PRODUCER)]


async def test_marker_of_partition_in_cache_is_never_dropped(rig: Rig) -> None:
    rig.stored.remove(A)
    rig.codes[A] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.send(A)
    await rig.turns()
    await rig.turns(RETRY_MS)
    assert rig.finished == []


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
async def test_fenced_marker_is_logged_and_not_retried(
    rig: Rig, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    rig.codes[A] = code
    rig.send(A)
    await rig.turns()
    await rig.turns(10 * RETRY_MS)
    assert (rig.places, rig.finished, rig.sender.queued) == ([A], [], 0)
    assert rig.notes == [f"marker in a-0 refused for good: {code.name}"]
    said = caplog.text
    for word in ("transactional_id", "PrepareCommit", "a-0", code.name, "DescribeTransactions"):
        assert word in said


async def test_partition_with_nothing_open_that_refuses_its_marker_counts_as_marked(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The transaction stayed in its PREPARE state until another coordinator came."""
    rig.codes[A] = NOTHING_OPEN
    rig.send(A, B)
    await rig.turns()
    assert (rig.places, rig.finished, rig.sender.queued) == ([A, B], [("x", PRODUCER)], 0)
    assert rig.notes == ["no marker in a-0: newer epoch, no transaction open", "marker in b-3"]
    assert "no transaction is open" in caplog.text


async def test_resignation_drops_markers_and_ignores_their_answers(rig: Rig) -> None:
    rig.held = True
    rig.send(A, B)
    rig.send(A, key="y", index=1)
    await rig.turns()
    rig.sender.resigned(0)
    assert rig.sender.queued == 1
    for _, _, done in list(rig.writes):
        done(ErrorCode.NONE)
    assert rig.finished == [("y", PRODUCER)]


async def test_resignation_cancels_retries(rig: Rig) -> None:
    rig.codes[A] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.send(A)
    await rig.turns()
    rig.sender.resigned(0)
    await rig.turns(RETRY_MS)
    assert rig.places == [A]
    assert rig.time.running == 0


async def test_resignation_before_first_write_drops_markers(rig: Rig) -> None:
    rig.send(A)
    rig.sender.resigned(0)
    await rig.turns()
    assert rig.writes == []


async def test_answer_from_before_resignation_does_not_count(rig: Rig) -> None:
    rig.held = True
    rig.send(A)
    await rig.turns()
    rig.sender.resigned(0)
    rig.send(A)
    await rig.turns()
    rig.writes[0][2](ErrorCode.NONE)
    assert rig.finished == []
    rig.writes[1][2](ErrorCode.NONE)
    assert rig.finished == [("x", PRODUCER)]


async def test_repeated_error_of_marker_is_noted_once(rig: Rig) -> None:
    rig.codes[A] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.send(A)
    for _ in range(50):
        await rig.turns(RETRY_MS)
    rig.codes[A] = ErrorCode.KAFKA_STORAGE_ERROR
    for _ in range(50):
        await rig.turns(RETRY_MS)
    assert rig.notes == [
        "marker in a-0 not written yet: NOT_LEADER_OR_FOLLOWER",
        "marker in a-0 not written yet: KAFKA_STORAGE_ERROR",
    ]


async def test_retries_become_rarer_but_never_end(
    rig: Rig,
) -> None:
    rig.codes[A] = ErrorCode.KAFKA_STORAGE_ERROR
    rig.send(A)
    for _ in range(600):
        await rig.turns(RETRY_MS)
    assert 60 <= len(rig.places) <= 70
    rig.codes.clear()
    await rig.turns(LONGEST_RETRY_MS)
    assert rig.finished == [("x", PRODUCER)]


async def test_writing_many_markers_yields_event_loop(rig: Rig) -> None:
    many = [("m", index) for index in range(2 * WRITTEN_PER_TURN + 1)]
    rig.send(*many)
    seen: list[Any] = []
    timer = rig.time.call_later
    rig.time.call_later = lambda seconds, callback: (  # type: ignore[method-assign]
        seen.append(len(rig.writes)),
        timer(seconds, callback),
    )[1]
    await rig.turns()
    assert len(rig.writes) == len(many)
    assert seen == [WRITTEN_PER_TURN, 2 * WRITTEN_PER_TURN]
    assert rig.finished == [("x", PRODUCER)]


async def test_marker_of_led_partition_is_written_in_the_same_call(rig: Rig) -> None:
    rig.led = {A, B}
    rig.send(B, A)
    assert rig.places == [A, B]
    assert rig.finished == [("x", PRODUCER)]
    assert rig.time.running == 0


async def test_transaction_waits_for_the_markers_that_another_broker_writes(rig: Rig) -> None:
    rig.led = {B}
    rig.send(A, B)
    assert (rig.places, rig.finished) == ([B], [])
    await rig.turns()
    assert rig.places == [B, A]
    assert rig.finished == [("x", PRODUCER)]


async def test_marker_that_is_written_in_the_same_call_is_awaited_until_it_is_committed(
    rig: Rig,
) -> None:
    rig.led, rig.held = {A}, True
    rig.send(A)
    assert (rig.places, rig.finished, rig.sender.queued) == ([A], [], 1)
    rig.writes[0][2](ErrorCode.NONE)
    assert rig.finished == [("x", PRODUCER)]


async def test_marker_that_fails_in_the_same_call_is_retried(rig: Rig) -> None:
    rig.led = {A, B}
    rig.codes[A] = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.send(A, B)
    assert (rig.places, rig.finished) == ([A, B], [])
    rig.codes.clear()
    await rig.turns(RETRY_MS)
    assert rig.finished == [("x", PRODUCER)]


async def test_transaction_given_up_in_the_same_call_writes_no_further_marker(rig: Rig) -> None:
    rig.led = {A, B}
    rig.codes[A] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    rig.send(A, B)
    await rig.turns()
    assert (rig.places, rig.finished, rig.sender.queued) == ([A], [], 0)


async def test_markers_of_many_led_partitions_are_written_in_slices(rig: Rig) -> None:
    rig.led = {("t", index) for index in range(AT_ONCE + 1)}
    rig.known |= rig.led
    rig.send(*rig.led)
    assert rig.places == []
    await rig.turns()
    assert rig.places == sorted(rig.led)
