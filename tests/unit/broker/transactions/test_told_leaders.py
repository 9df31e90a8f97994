"""A coordinator tells the leaders on other brokers which producers are about to write.

It is a message without a response, over the connection of the coordinator's markers.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.handlers import expect_producers as handler
from barnabas.broker.transactions.remote_coordinators import RemoteCoordinators
from barnabas.client.connection import Connection
from barnabas.protocol.messages import (
    expect_producers,
    find_coordinator,
    metadata,
    write_txn_markers,
)
from barnabas.protocol.messages.expect_producers import ExpectedProducer, ExpectProducersRequest
from barnabas.storage.producers.state import ProducerStateManager
from tests.support.data_path import Client
from tests.support.in_cluster import BROKERS, CLIENTS, connected_to, member, shared_metadata
from tests.support.mutants import finds, hunt
from tests.support.waiting import eventually
from tests.unit.broker.transactions.transactor import ONE_PARTITION, Transactor

PRODUCE = 11
"""The last version of Produce whose producers add their partitions themselves."""
ALONE = {
    **ONE_PARTITION,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
    "default_replication_factor": 1,
}
REFUSED = "INVALID_PRODUCER_ID_MAPPING"
"""The answer of a coordinator that does not know a producer."""


def expected(
    producer_id: int = 7, topic: str = "t", coordinator_epoch: int = 0
) -> ExpectedProducer:
    return ExpectedProducer(
        transactional_id="x",
        principal=None,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=coordinator_epoch,
        topic=topic,
        partition_index=0,
    )


# -- a broker that is told ---------------------------------------------------------------------


class Told:
    """A broker, the connections of another one to it, and a producer that no coordinator knows."""

    def __init__(self, broker: Broker, client: Client, stack: AsyncExitStack) -> None:
        self._broker = broker
        self._stack = stack
        self.producer = Transactor(client)
        self.producer.producer_id, self.producer.epoch = 7, 0

    async def line(self) -> Connection:
        """Return a new connection of the other broker."""
        client = connected_to(self._broker, BROKERS, client_id="broker-0")
        return (await self._stack.enter_async_context(client)).connection

    async def tell(self, line: Connection, producer: ExpectedProducer) -> None:
        """Send the message, and wait until it is handled."""
        request = ExpectProducersRequest(producers=[producer])
        line.submit(expect_producers.API, request, 0, None)
        await line.request(metadata.API, metadata.MetadataRequest(topics=None))

    async def mark(self, line: Connection) -> None:
        marker = write_txn_markers.WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=True,
            topics=[write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=0,
        )
        request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
        answer = await line.request(write_txn_markers.API, request)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0

    async def write(self) -> str:
        self.producer.sequences.clear()
        return await self.producer.produce(version=PRODUCE)


@asynccontextmanager
async def told() -> AsyncIterator[Told]:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        store = await stack.enter_async_context(shared_metadata(directory / "store"))
        broker = await stack.enter_async_context(member(store, directory, **ALONE))
        client = await stack.enter_async_context(connected_to(broker, CLIENTS))
        await client.create("t")
        await Transactor(client).init()
        yield Told(broker, client, stack)


async def test_partition_that_was_told_asks_no_coordinator() -> None:
    async with told() as it:
        line = await it.line()
        assert await it.write() == REFUSED
        await it.tell(line, expected())
        assert await it.write() == "NONE"


async def test_marker_voids_what_a_partition_was_told() -> None:
    async with told() as it:
        line = await it.line()
        await it.tell(line, expected())
        await it.mark(line)
        assert await it.write() == REFUSED


@finds(handler.handle, "origins.is_outdated(context)", "False")
async def test_message_over_a_connection_before_the_one_of_markers_is_void() -> None:
    """It was delayed: the transaction may have ended meanwhile."""
    async with told() as it:
        earlier, later = await it.line(), await it.line()
        await it.mark(later)
        await it.tell(earlier, expected())
        assert await it.write() == REFUSED
        await it.tell(later, expected())
        assert await it.write() == "NONE"


@finds(ProducerStateManager.expect, "or coordinator_epoch < entry.coordinator_epoch")
async def test_earlier_coordinator_is_not_believed_after_a_marker_of_a_later_one() -> None:
    async with told() as it:
        line = await it.line()
        await it.mark(line)
        await it.tell(line, expected(coordinator_epoch=-1))
        assert await it.write() == REFUSED


async def test_unknown_partition_is_skipped() -> None:
    async with told() as it:
        line = await it.line()
        await it.tell(line, expected(topic="gone"))
        await it.tell(line, expected())
        assert await it.write() == "NONE"


# -- both ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [False, True])
async def test_transactions_that_cross_brokers_ask_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """A transaction that may be kept for another client is asked about each time."""
    questions: list[Any] = []
    ask = RemoteCoordinators.ask

    def asked(others: RemoteCoordinators, *question: Any) -> Any:
        questions.append(question)
        return ask(others, *question)

    monkeypatch.setattr(RemoteCoordinators, "ask", asked)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        store = await enter(shared_metadata(tmp_path / "store"))
        keys = {**ALONE, "transaction_two_phase_commit_enable": str(keeps).lower()}
        brokers = [await enter(member(store, tmp_path, each, **keys)) for each in (0, 1)]
        clients = [await enter(connected_to(each, CLIENTS)) for each in brokers]
        await clients[0].create("t", len(brokers))
        here = await coordinator_of("x", clients[0])
        there = 1 - here
        leading = brokers[there]._replication.replicas.leading
        (partition,) = [each for each in leading if each.topic == "t"]
        producer, writer = await Transactor(clients[here]).init(), Transactor(clients[there])
        writer.producer_id, writer.epoch = producer.producer_id, producer.epoch
        for number in range(3):
            assert await producer.add(("t", partition.index)) == ["NONE"]
            if number and not keeps:
                # The first transaction finds no connection: its marker opens one.
                await eventually(
                    lambda: partition.log.producers.entries[writer.producer_id].verification
                )
            assert await writer.produce(index=partition.index, version=PRODUCE) == "NONE"
            assert await producer.end(version=3) == "NONE"
            assert await producer.settled() == "CompleteCommit"
        assert len(questions) == (3 if keeps else 1)
        assert partition.log.last_stable_offset == 6


async def coordinator_of(transactional_id: str, client: Client) -> int:
    request = find_coordinator.FindCoordinatorRequest(
        coordinator_keys=[transactional_id], key_type=1
    )

    async def found() -> Any:
        answer = await client.connection.request(find_coordinator.API, request)
        return answer.coordinators if not answer.coordinators[0].error_code else None

    (coordinator,) = await eventually(found)
    return int(coordinator.node_id)


test_missing_check_is_found = hunt(globals())
