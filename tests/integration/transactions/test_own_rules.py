"""Responses that differ from Kafka's, compared as a whole with and without each rule.

Three rules: requests wait for the markers of the previous transaction (KIP-609), requests on older
connections are fenced (KAFKA-17754), and older clients are told of offsets in open transactions.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.transactions.marker_writer import MarkerWrite, MarkerWriter
from barnabas.coordinator.transaction.waiters import TransactionWaiters
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.messages.end_txn import EndTxnResponse
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.testing import Broker
from tests.support.transactor import (
    IN_TIME_S,
    TV1,
    TV2,
    Protocol,
    Transactor,
    Wire,
    settled,
    until,
)

KEYS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.blocking.max.wait.ms": "10000",
}
NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


# -- waiting --------------------------------------------------------------------------------------


class Markers:
    """Holds COMMIT markers back while `held` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held = False
        self.awaited = threading.Event()
        """Set when a request waits for markers."""
        take, put, enter = MarkerWriter._write, MarkerWriter.put, TransactionWaiters._enter

        def holding(writer: MarkerWriter, write: MarkerWrite) -> None:
            if self.held and write.marker.committed:
                # An error on which the sender retries without end.
                write.done(ErrorCode.REQUEST_TIMED_OUT)
            else:
                take(writer, write)

        def putting(writer: MarkerWriter, place: Any, marker: Any, now_ms: int) -> bool:
            return not (self.held and marker.committed) and put(writer, place, marker, now_ms)

        def entered(room: TransactionWaiters, transactional_id: str) -> Any:
            place = enter(room, transactional_id)
            self.awaited.set()
            return place

        monkeypatch.setattr(MarkerWriter, "_write", holding)
        monkeypatch.setattr(MarkerWriter, "put", putting)
        monkeypatch.setattr(TransactionWaiters, "_enter", entered)


Step = tuple[Protocol, Callable[[Transactor], None], Callable[[Transactor, ErrorCode], Any]]
"""A protocol, a request of the next transaction, and the whole response to it."""


def add_partitions(x: Transactor) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=x.name,
        v3_and_below_producer_id=x.producer_id,
        v3_and_below_producer_epoch=x.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    x.wire.post(request, 3)


def partitions_added(_: Transactor, error: ErrorCode) -> AddPartitionsToTxnResponse:
    result = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=error)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def add_offsets(x: Transactor) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=x.name, producer_id=x.producer_id, producer_epoch=x.epoch, group_id="g"
    )
    x.wire.post(request, 3)


def offsets_added(_: Transactor, error: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)


def init_producer_id(x: Transactor) -> None:
    x.wire.post(InitProducerIdRequest(transactional_id=x.name, transaction_timeout_ms=60_000), 4)


def initialised(x: Transactor, error: ErrorCode) -> InitProducerIdResponse:
    if error:
        return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=x.producer_id, producer_epoch=x.epoch + 1)


def produce(x: Transactor) -> None:
    x.post("t", b"second", sequence=0)


def produced(_: Transactor, error: ErrorCode) -> ProduceResponse:
    # The previous record and its marker have offsets 0 and 1.
    offset, start = (-1, -1) if error else (2, 0)
    partition = PartitionProduceResponse(
        index=0, error_code=error, base_offset=offset, log_start_offset=start
    )
    return ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[partition])]
    )


@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "waiting off"])
@pytest.mark.parametrize(
    "step",
    [
        pytest.param((TV1, add_partitions, partitions_added), id="AddPartitionsToTxn"),
        pytest.param((TV1, add_offsets, offsets_added), id="AddOffsetsToTxn"),
        pytest.param((TV1, init_producer_id, initialised), id="InitProducerId"),
        pytest.param((TV2, produce, produced), id="Produce"),
    ],
)
def test_request_of_the_next_transaction_waits_for_the_previous_markers(
    monkeypatch: pytest.MonkeyPatch, step: Step, waits: bool
) -> None:
    protocol, ask, answer = step
    markers = Markers(monkeypatch)
    keys = KEYS if waits else {**KEYS, "transaction.blocking.max.wait.ms": "0"}
    with Broker(keys) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t")
        x = Transactor(wire, "x", protocol)
        x.init()
        if protocol is TV1:
            assert x.add(("t", 0)) is NONE
        assert x.send("t", b"first", sequence=0).error is NONE
        markers.held = True
        x.end()
        ask(x)
        if waits:
            assert markers.awaited.wait(IN_TIME_S)
            markers.held = False
        assert wire.take() == answer(x, NONE if waits else CONCURRENT)
        markers.held = False


def test_request_waiting_for_markers_too_long_gets_a_retriable_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    markers = Markers(monkeypatch)
    keys = {**KEYS, "transaction.blocking.max.wait.ms": "20"}
    with Broker(keys) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t")
        x = Transactor(wire, "x", TV1)
        x.init()
        x.transact("t", b"first", sequence=0)
        settled(wire, ("t", 0))
        markers.held = True
        x.transact("t", b"second", sequence=1)
        add_partitions(x)
        assert wire.take() == partitions_added(x, CONCURRENT)
        assert markers.awaited.is_set()
        markers.held = False


# -- the guard of older connections ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarded", "version", "error"),
    [
        (True, 4, ErrorCode.PRODUCER_FENCED),
        (True, 2, ErrorCode.PRODUCER_FENCED),
        (True, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (False, 4, NONE),
        (False, 1, NONE),
    ],
)
def test_delayed_end_txn_on_an_older_connection_is_fenced(
    guarded: bool, version: int, error: ErrorCode
) -> None:
    keys = {**KEYS, "transaction.fence.older.connections": str(guarded).lower()}
    with (
        Broker(keys) as broker,
        Wire(broker.bootstrap_servers) as older,
        Wire(broker.bootstrap_servers) as newer,
    ):
        newer.create("t")
        x = Transactor(older, "x", TV1)
        x.init()
        assert x.add(("t", 0)) is NONE
        assert x.send("t", b"first", sequence=0).error is NONE
        held_up = x.ending(committed=True)
        # The client gives up the request and continues on another connection.
        x.wire = newer
        assert newer.ask(x.ending(committed=True), 4) == EndTxnResponse()
        assert x.add(("t", 0)) is NONE
        assert x.send("t", b"second", sequence=1).error is NONE
        assert older.ask(held_up, version) == EndTxnResponse(error_code=error)
        if guarded:
            assert newer.ask(x.ending(committed=False), 4) == EndTxnResponse()
        settled(newer, ("t", 0))
        # Offsets: first, its marker, second.
        values, aborted = newer.read("t")
        assert values == [b"first", b"second"]
        assert aborted == ([(x.producer_id, 2)] if guarded else [])


# -- older clients and offsets in open transactions -----------------------------------------------


def offsets_asked(version: int, *, stable: bool) -> OffsetFetchRequest:
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(group_id="g", topics=topics)
        return OffsetFetchRequest(groups=[asked], require_stable=stable)
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    return OffsetFetchRequest(group_id="g", topics=[topic], require_stable=stable)


def offsets_told(version: int, offset: int, error: ErrorCode) -> OffsetFetchResponse:
    if version >= 8:
        row = OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=offset, error_code=error
        )
        group = OffsetFetchResponseGroup(
            group_id="g", topics=[OffsetFetchResponseTopics(name="t", partitions=[row])]
        )
        return OffsetFetchResponse(groups=[group])
    old = OffsetFetchResponsePartition(partition_index=0, committed_offset=offset, error_code=error)
    topic = OffsetFetchResponseTopic(name="t", partitions=[old])
    # Clients of these versions check the top-level error.
    return OffsetFetchResponse(topics=[topic], error_code=error if 2 <= version < 7 else NONE)


@pytest.fixture(scope="module", params=[True, False], ids=["rule", "rule off"])
def group(request: pytest.FixtureRequest) -> Iterator[tuple[bool, Wire]]:
    """A group with committed offset 1, whose offset 5 is in an open transaction."""
    keys = {**KEYS, "group.unstable.offsets.block.old.clients": str(request.param).lower()}
    with Broker(keys) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t")
        x = Transactor(wire, "x", TV2)
        x.init()
        assert x.commit_offset("g", "t", 1) is NONE
        x.end()
        assert until(lambda: wire.committed("g", "t"), lambda it: it[0] is NONE) == (NONE, 1)
        assert x.commit_offset("g", "t", 5) is NONE
        yield request.param, wire


@pytest.mark.parametrize(
    ("version", "stable", "offset", "error"),
    [
        (1, False, -1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (5, False, -1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (6, False, -1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (7, True, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (9, True, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        # A client that could ask for stable offsets and does not gets the previous offset.
        (7, False, 1, NONE),
        (9, False, 1, NONE),
    ],
)
def test_offset_fetch_of_older_clients_gets_a_retriable_error_for_unstable_offsets(
    group: tuple[bool, Wire], version: int, stable: bool, offset: int, error: ErrorCode
) -> None:
    blocks, wire = group
    if version < 7 and not blocks:
        offset, error = 1, NONE
    answer = wire.ask(offsets_asked(version, stable=stable), version)
    assert answer == offsets_told(version, offset, error)
