"""Each marker is told of exactly once: written and committed, or why not."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.coordination.marker_writer import MarkerWriter, TxnMarker
from barnabas.broker.handlers.write_txn_markers import WriteTxnMarkersHandler
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import write_txn_markers
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import ControlType, Marker, read_marker
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.verification import UNVERIFIED
from tests.unit.broker.handlers.group_handlers import ask
from tests.unit.broker.replication.replicas import Replicas

PID, EPOCH = 1000, 4
NOW_MS = 1_700_000_000_000
OFFSETS = "__consumer_offsets"
ABORT = TxnMarker(PID, EPOCH, 9, False, 0)


class Clock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0


class Groups:
    """The group coordinator's runtime, as far as markers go: its answer is the test's."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.asked: list[tuple[object, ...]] = []

    def write_marker(self, *marker: object) -> Any:
        self.asked.append(marker)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def later(self) -> "asyncio.Future[None]":
        self.answer = asyncio.get_running_loop().create_future()
        future: asyncio.Future[None] = self.answer
        return future


class Rig:
    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.groups = Groups()
        self.writer = MarkerWriter(
            replicas.manager,
            self.groups,  # type: ignore[arg-type]
            Clock(),
        )
        self.told: list[str] = []

    def write(self, topic: str = "t", marker: TxnMarker = ABORT) -> None:
        self.writer.write(topic, 0, marker, lambda code: self.told.append(code.name))

    def open(self, epoch: int = EPOCH) -> None:
        data = build_batch(
            [Record(0, NOW_MS, b"k", b"v")],
            producer_id=PID,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        self.partition.append_as_leader(data, now_ms=NOW_MS, guard=UNVERIFIED, required_acks=1)

    @property
    def partition(self) -> Any:
        return self.replicas.manager.partition("t", 0)

    @property
    def markers(self) -> list[tuple[Marker | None, int, int]]:
        log = self.partition.log
        data = log.read(0, 1 << 20, limit=log.log_end_offset).read_bytes()
        return [
            (read_marker(data, pos, header), header.producer_id, header.producer_epoch)
            for pos, header in iter_headers(data)
            if header.is_control
        ]


@pytest.fixture
async def rig() -> Rig:
    replicas = Replicas()
    await replicas.lead()
    await replicas.lead(topic=OFFSETS, topic_id=bytes(15) + b"o")
    return Rig(replicas)


@pytest.mark.parametrize("committed", [True, False])
async def test_a_marker_is_a_control_batch_of_the_producer(rig: Rig, committed: bool) -> None:
    rig.open()
    rig.write(marker=ABORT._replace(committed=committed))
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    assert rig.markers == [(Marker(kind, 9), PID, EPOCH)]
    assert rig.told == ["NONE"]


async def test_a_marker_counts_when_it_is_committed(rig: Rig) -> None:
    await rig.replicas.lead(epoch=1, isr=(0, 1), replicas=(0, 1))
    rig.write()
    assert (rig.told, len(rig.markers)) == ([], 1)
    rig.replicas.fetched(1, rig.partition.log.log_end_offset)
    assert rig.told == ["NONE"]


async def test_a_leader_that_resigns_says_so_of_markers_that_are_not_committed(rig: Rig) -> None:
    await rig.replicas.lead(epoch=1, isr=(0, 1), replicas=(0, 1))
    rig.write()
    rig.partition.resign()
    assert rig.told == ["NOT_LEADER_OR_FOLLOWER"]
    rig.write()
    assert rig.told == ["NOT_LEADER_OR_FOLLOWER"] * 2


async def test_a_marker_fits_into_every_topic(rig: Rig) -> None:
    """A topic that takes small batches only would keep its last transaction open for good."""
    rig.open()
    rig.replicas.configs["max_message_bytes"] = "1"
    rig.replicas.manager.configure("t", rig.replicas.config("t"))
    rig.write()
    assert rig.told == ["NONE"]


@pytest.mark.parametrize(
    ("marker", "code"),
    [
        (ABORT._replace(producer_epoch=EPOCH - 1), "INVALID_PRODUCER_EPOCH"),
        (ABORT._replace(transaction_version=2), "INVALID_PRODUCER_EPOCH"),
        (ABORT._replace(producer_epoch=EPOCH + 1, transaction_version=2), "NONE"),
    ],
)
async def test_the_log_judges_epochs(rig: Rig, marker: TxnMarker, code: str) -> None:
    rig.open()
    rig.write(marker=marker)
    assert rig.told == [code]


async def test_an_older_coordinator_is_told(rig: Rig) -> None:
    rig.write()
    rig.write(marker=ABORT._replace(coordinator_epoch=8))
    assert rig.told == ["NONE", "TRANSACTION_COORDINATOR_FENCED"]


async def test_unknown_partitions_are_told(rig: Rig) -> None:
    rig.write("u")
    assert rig.told == ["UNKNOWN_TOPIC_OR_PARTITION"]


@pytest.mark.parametrize("topic", ["__transaction_state", "__share_group_state"])
async def test_no_marker_belongs_into_the_brokers_other_topics(rig: Rig, topic: str) -> None:
    rig.write(topic)
    assert rig.told == ["TOPIC_AUTHORIZATION_FAILED"]


async def test_a_fault_is_told_too(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Kept to itself, it cost the sender all the other markers of the same turn."""
    rig.groups.answer = ValueError("a bug")
    rig.write(OFFSETS)
    assert rig.told == ["UNKNOWN_SERVER_ERROR"]
    assert "a bug" in caplog.text


async def test_a_groups_marker_is_told_when_its_state_shows_it(rig: Rig) -> None:
    later = rig.groups.later()
    rig.write(OFFSETS)
    await asyncio.sleep(0)
    assert rig.told == []
    later.set_result(None)
    await asyncio.sleep(0)
    assert rig.told == ["NONE"]
    assert rig.groups.asked == [(0, PID, EPOCH, 9, False, 0)]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (None, "NONE"),
        (KafkaError(ErrorCode.NOT_COORDINATOR), "NOT_COORDINATOR"),
        (KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH), "INVALID_PRODUCER_EPOCH"),
        (asyncio.CancelledError(), "NOT_LEADER_OR_FOLLOWER"),
        (RuntimeError("a bug"), "UNKNOWN_SERVER_ERROR"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
async def test_whatever_becomes_of_a_groups_marker_is_told_once(
    rig: Rig, outcome: BaseException | None, code: str, later: bool
) -> None:
    if not later:
        if isinstance(outcome, asyncio.CancelledError):
            return
        rig.groups.answer = outcome
        rig.write(OFFSETS)
    else:
        future = rig.groups.later()
        rig.write(OFFSETS)
        if outcome is None:
            future.set_result(None)
        elif isinstance(outcome, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(outcome)
        await asyncio.sleep(0)
    assert rig.told == [code]


# -- WriteTxnMarkers


def request(*topics: tuple[str, list[int]], count: int = 1) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=PID + number,
                producer_epoch=EPOCH,
                transaction_result=False,
                coordinator_epoch=0,
                transaction_version=0,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics
                ],
            )
            for number in range(count)
        ]
    )


def codes(answer: Any) -> list[str]:
    return [
        ErrorCode(partition.error_code).name
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", list(write_txn_markers.API.versions))
async def test_every_marker_of_a_request_has_its_own_answer(rig: Rig, version: int) -> None:
    handler = WriteTxnMarkersHandler(rig.writer)
    answer = ask(write_txn_markers, handler, request(("t", [0]), ("u", [3]), count=2), version)
    assert codes(answer) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"] * 2
    assert [producer for _, producer, _ in rig.markers] == [PID, PID + 1]


async def test_the_answer_waits_for_the_last_marker(rig: Rig) -> None:
    later = rig.groups.later()
    handler = WriteTxnMarkersHandler(rig.writer)
    answer = ask(write_txn_markers, handler, request((OFFSETS, [0]), ("t", [0])), 1)
    await asyncio.sleep(0)
    assert not answer.done()
    later.set_exception(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert codes(await answer) == ["INVALID_PRODUCER_EPOCH", "NONE"]


async def test_who_has_gone_away_is_not_answered(rig: Rig) -> None:
    later = rig.groups.later()
    handler = WriteTxnMarkersHandler(rig.writer)
    answer = ask(write_txn_markers, handler, request((OFFSETS, [0])), 1)
    answer.cancel()
    later.set_result(None)
    await asyncio.sleep(0)
    assert answer.cancelled()


async def test_a_request_for_nothing_is_answered_at_once(rig: Rig) -> None:
    handler = WriteTxnMarkersHandler(rig.writer)
    assert codes(ask(write_txn_markers, handler, request(), 1)) == []
