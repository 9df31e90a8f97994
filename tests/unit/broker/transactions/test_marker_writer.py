"""The outcome of each marker is reported exactly once: written and committed, or the error."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.handlers import write_txn_markers as handler
from barnabas.broker.server.context import RequestContext
from barnabas.broker.transactions.marker_origins import MarkerOrigins
from barnabas.broker.transactions.marker_writer import (
    NOTHING_OPEN,
    MarkerWrite,
    MarkerWriter,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import write_txn_markers
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import TxnMarker, read_marker
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.security.principal import ANONYMOUS
from barnabas.storage.producers.verification import UNVERIFIED
from tests.support.steps import taken
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
    """The group coordinator's runtime, reduced to markers: the test sets its answer."""

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
        self.write_all(marker, topic=topic)

    def write_all(self, *markers: TxnMarker, topic: str = "t") -> None:
        taken(
            self.writer.write(
                MarkerWrite(
                    TopicPartition(topic, 0), each, lambda code: self.told.append(code.name)
                )
                for each in markers
            )
        )

    def write_led(self, topic: str = "t", index: int = 0) -> bool:
        write = MarkerWrite(
            TopicPartition(topic, index), ABORT, lambda code: self.told.append(code.name)
        )
        return self.writer.write_led(write)

    def open(self, epoch: int = EPOCH) -> None:
        data = build_batch(
            [Record(0, NOW_MS, b"k", b"v")],
            producer_id=PID,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        self.partition.append(data, now_ms=NOW_MS, guard=UNVERIFIED, required_acks=1)

    @property
    def partition(self) -> Any:
        return self.replicas.manager.partition("t", 0)

    @property
    def markers(self) -> list[TxnMarker | None]:
        log = self.partition.log
        data = log.read(0, 1 << 20, limit=log.log_end_offset).read_bytes()
        return [
            read_marker(data, pos, header)
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
    assert rig.markers == [TxnMarker(PID, EPOCH, 9, committed)]
    assert rig.told == ["NONE"]


async def test_marker_is_done_once_committed(rig: Rig) -> None:
    await rig.replicas.lead(epoch=1, isr=(0, 1), replicas=(0, 1))
    rig.write()
    assert (rig.told, len(rig.markers)) == ([], 1)
    rig.replicas.fetched(1, rig.partition.log.log_end_offset)
    assert rig.told == ["NONE"]


async def test_markers_of_one_partition_are_written_in_their_order(rig: Rig) -> None:
    rig.open()
    markers = [ABORT._replace(producer_id=PID + each) for each in range(3)]
    rig.write_all(*markers)
    assert rig.markers == markers
    assert rig.told == ["NONE"] * 3


async def test_refused_marker_leaves_the_others_of_its_partition_alone(rig: Rig) -> None:
    rig.open()
    old, other = ABORT._replace(producer_epoch=EPOCH - 1), ABORT._replace(producer_id=PID + 1)
    rig.write_all(other, old, ABORT._replace(producer_id=-1), ABORT)
    assert rig.told == ["NONE", "INVALID_PRODUCER_EPOCH", "INVALID_REQUEST", "NONE"]
    assert rig.markers == [other, ABORT]


async def test_resignation_fails_uncommitted_markers(rig: Rig) -> None:
    await rig.replicas.lead(epoch=1, isr=(0, 1), replicas=(0, 1))
    rig.write()
    rig.partition.resign()
    assert rig.told == ["NOT_LEADER_OR_FOLLOWER"]
    rig.write()
    assert rig.told == ["NOT_LEADER_OR_FOLLOWER"] * 2


async def test_marker_ignores_max_message_bytes(rig: Rig) -> None:
    """Otherwise a topic with small batches only would keep its last transaction open for good."""
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
async def test_epoch_of_marker_is_checked_by_log(rig: Rig, marker: TxnMarker, code: str) -> None:
    rig.open()
    rig.write(marker=marker)
    assert rig.told == [code]


async def test_refused_marker_with_nothing_open_is_told_apart(rig: Rig) -> None:
    rig.write(marker=ABORT._replace(producer_epoch=EPOCH + 2))
    rig.write()
    assert rig.told == ["NONE", NOTHING_OPEN.name]
    assert len(rig.markers) == 1


@pytest.mark.parametrize("inter_broker", [True, False])
async def test_only_a_coordinator_learns_that_nothing_is_open(rig: Rig, inter_broker: bool) -> None:
    rig.write(marker=ABORT._replace(producer_epoch=EPOCH + 2))
    parts = rig.writer, MarkerOrigins(MetadataCache("cluster")), False
    context = RequestContext(
        27, 2, 0, "c", ANONYMOUS, "INTERNAL", "127.0.0.1", 1, 0, inter_broker=inter_broker
    )
    asked = request(("t", [0]))
    answer: Any = handler.handle(*parts, asked, context)
    assert codes(answer) == ["INVALID_PRODUCER_EPOCH"]
    assert answer.markers[0].topics[0].partitions[0].nothing_open == inter_broker


async def test_marker_of_older_coordinator_is_fenced(rig: Rig) -> None:
    rig.write()
    rig.write(marker=ABORT._replace(coordinator_epoch=8))
    assert rig.told == ["NONE", "TRANSACTION_COORDINATOR_FENCED"]


async def test_marker_for_unknown_partition_is_refused(rig: Rig) -> None:
    rig.write("u")
    assert rig.told == ["UNKNOWN_TOPIC_OR_PARTITION"]


@pytest.mark.parametrize("topic", ["__transaction_state", "__share_group_state"])
async def test_marker_for_other_internal_topics_is_refused(rig: Rig, topic: str) -> None:
    rig.write(topic)
    assert rig.told == ["TOPIC_AUTHORIZATION_FAILED"]


async def test_fault_is_answered_with_unknown_server_error(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The writer does not raise a fault: that would cost the sender all other markers of the same
    batch."""
    rig.groups.answer = ValueError("a bug")
    rig.write(OFFSETS)
    assert rig.told == ["UNKNOWN_SERVER_ERROR"]
    assert "a bug" in caplog.text


async def test_marker_of_groups_is_done_once_replayed(rig: Rig) -> None:
    later = rig.groups.later()
    rig.write(OFFSETS)
    await asyncio.sleep(0)
    assert rig.told == []
    later.set_result(None)
    await asyncio.sleep(0)
    assert rig.told == ["NONE"]
    assert rig.groups.asked == [(0, TxnMarker(PID, EPOCH, 9, False, 0))]


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
async def test_outcome_of_marker_of_groups_is_reported_once(
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
        ErrorCode.of(partition.error_code).name
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", list(write_txn_markers.API.versions))
async def test_every_marker_of_a_request_has_its_own_answer(rig: Rig, version: int) -> None:
    parts = rig.writer, MarkerOrigins(MetadataCache("cluster")), False
    answer = ask(handler, parts, request(("t", [0]), ("u", [3]), count=2), version)
    assert codes(answer) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"] * 2
    assert [marker and marker.producer_id for marker in rig.markers] == [PID, PID + 1]


async def test_the_answer_waits_for_the_last_marker(rig: Rig) -> None:
    later = rig.groups.later()
    parts = rig.writer, MarkerOrigins(MetadataCache("cluster")), False
    answer = ask(handler, parts, request((OFFSETS, [0]), ("t", [0])), 1)
    await asyncio.sleep(0)
    assert not answer.done()
    later.set_exception(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert codes(await answer) == ["INVALID_PRODUCER_EPOCH", "NONE"]


async def test_cancelled_request_is_not_answered(rig: Rig) -> None:
    later = rig.groups.later()
    parts = rig.writer, MarkerOrigins(MetadataCache("cluster")), False
    answer = ask(handler, parts, request((OFFSETS, [0])), 1)
    answer.cancel()
    later.set_result(None)
    await asyncio.sleep(0)
    assert answer.cancelled()


async def test_request_without_markers_is_answered_at_once(rig: Rig) -> None:
    parts = rig.writer, MarkerOrigins(MetadataCache("cluster")), False
    assert codes(ask(handler, parts, request(), 1)) == []


async def test_rest_of_request_is_not_written_after_a_later_connection_sent_markers(
    rig: Rig,
) -> None:
    rig.open()
    cache: Any = SimpleNamespace(brokers={1})
    parts = rig.writer, MarkerOrigins(cache), False
    context = RequestContext(
        27, 1, 0, "broker-1", ANONYMOUS, "INTERNAL", "127.0.0.1", 1, 0, inter_broker=True
    )
    steps: Any = handler.handle(*parts, request(("t", [0]), count=handler.FEW), context)  # type: ignore[attr-defined]
    next(steps)
    context.connection_id += 1
    assert not parts[1].is_outdated(context)
    context.connection_id -= 1
    answer, _ = taken(steps)
    assert codes(answer) == ["NETWORK_EXCEPTION"] * handler.FEW  # type: ignore[attr-defined]
    assert rig.markers == []


# -- in the call of the decision -------------------------------------------------------------------


async def test_led_partition_takes_its_marker_at_once(rig: Rig) -> None:
    rig.open()
    assert rig.write_led()
    assert (rig.markers, rig.told) == ([TxnMarker(PID, EPOCH, 9, False)], ["NONE"])
    assert rig.partition.log.producers.entry(PID).current_txn_first_offset is None


async def test_marker_of_led_partition_waits_for_its_followers(rig: Rig) -> None:
    await rig.replicas.lead(epoch=1, isr=(0, 1), replicas=(0, 1))
    assert rig.write_led()
    assert (rig.told, len(rig.markers)) == ([], 1)
    rig.replicas.fetched(1, rig.partition.log.log_end_offset)
    assert rig.told == ["NONE"]


async def test_marker_of_led_offsets_goes_through_the_group_shard(rig: Rig) -> None:
    """KAFKA-17507."""
    answer = rig.groups.later()
    assert rig.write_led(OFFSETS)
    assert (rig.groups.asked, rig.told) == ([(0, ABORT)], [])
    answer.set_result(None)
    await asyncio.sleep(0)
    assert rig.told == ["NONE"]


async def test_partition_of_another_leader_takes_no_marker_here(rig: Rig) -> None:
    assert not rig.write_led("unknown")
    await rig.replicas.lead(epoch=1, leader=1, isr=(0, 1), replicas=(0, 1))
    assert not rig.write_led()
    assert rig.told == []
