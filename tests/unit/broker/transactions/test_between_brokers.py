"""Requests between brokers, on the inter-broker listener."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.broker.handlers import add_partitions_to_txn as adding
from barnabas.broker.handlers import write_txn_markers as marking
from barnabas.broker.replication.partition import Partition
from barnabas.broker.transactions.marker_writer import MarkerWriter
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.messages import add_partitions_to_txn, find_coordinator, metadata
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.data_path import Client
from tests.support.in_cluster import BROKERS, CLIENTS, connected_to, member, shared_metadata
from tests.unit.broker.transactions.transactor import ONE_PARTITION, Transactor, flat, name

ALONE = {
    **ONE_PARTITION,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with shared_metadata(tmp_path / "store") as store, member(store, tmp_path, **ALONE) as it:
        yield it


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    async with connected_to(broker, CLIENTS) as client:
        await client.create("t", 3)
        yield client


@pytest.fixture
async def between(broker: Broker, client: Client) -> AsyncIterator[Client]:  # noqa: ARG001
    async with connected_to(broker, BROKERS) as between:
        yield between


@pytest.fixture
async def producer(client: Client) -> Transactor:
    return await Transactor(client).init()


@pytest.fixture
def unreplicated(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that stops the followers of a topic: nothing in it is committed any
    more."""

    def stop(topic: str) -> None:
        add_waiter, put = Partition.add_waiter, MarkerWriter.put

        def wait(partition: Partition, offset: int, waiter: Any) -> None:
            if partition.topic != topic:
                add_waiter(partition, offset, waiter)

        def commits(
            writer: MarkerWriter, place: TopicPartition, marker: TxnMarker, now_ms: int
        ) -> bool:
            return place.topic != topic and put(writer, place, marker, now_ms)

        monkeypatch.setattr(Partition, "add_waiter", wait)
        monkeypatch.setattr(MarkerWriter, "put", commits)

    return stop


async def ask(line: Client, *asked: add_partitions_to_txn.AddPartitionsToTxnTransaction) -> Any:
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=list(asked))
    answer = await line.connection.request(add_partitions_to_txn.API, request, version=5)
    return {
        each.transactional_id: flat(each.topic_results) for each in answer.results_by_transaction
    }


async def test_add_partitions_to_txn_of_brokers_is_not_served_to_clients(
    client: Client, between: Client, producer: Transactor
) -> None:
    assert client.connection.broker_versions[24] == range(4)
    assert between.connection.broker_versions[24] == range(6)
    with pytest.raises(BrokerUnreachable):
        await ask(client, producer.asked_by_leader(("t", 0)))


@pytest.mark.parametrize(("key_type", "topic"), [(0, CONSUMER_OFFSETS), (1, TRANSACTION_STATE)])
async def test_find_coordinator_fails_until_replication_factor_can_be_met(
    tmp_path: Path, key_type: int, topic: str
) -> None:
    """The replication factor of Kafka's default, 3, is never reduced in a cluster."""
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type)
    async with shared_metadata(tmp_path / "store") as store:
        async with member(store, tmp_path) as broker, connected_to(broker, CLIENTS) as client:
            (found,) = (await client.connection.request(find_coordinator.API, request)).coordinators
            assert name(found.error_code) == "COORDINATOR_NOT_AVAILABLE"
            known = await client.connection.request(
                metadata.API, metadata.MetadataRequest(topics=None)
            )
            assert topic not in [each.name for each in known.topics]
        async with member(store, tmp_path, **ALONE) as broker, connected_to(broker, CLIENTS) as it:
            (found,) = (await it.connection.request(find_coordinator.API, request)).coordinators
            assert (name(found.error_code), found.node_id) == ("NONE", 0)


async def test_leader_adds_and_verifies_partitions(between: Client, producer: Transactor) -> None:
    asked = producer.asked_by_leader(("t", 0))
    assert await ask(between, asked) == {"x": ["NONE"]}
    asked = producer.asked_by_leader(("t", 0), ("t", 1), verify_only=True)
    assert await ask(between, asked) == {"x": ["NONE", "TRANSACTION_ABORTABLE"]}


async def test_leader_gets_concurrent_transactions_without_delay(
    between: Client, client: Client, producer: Transactor, unreplicated: Callable[[str], None]
) -> None:
    """Every transaction of the same request gets an answer."""
    other = await Transactor(client, "y").init()
    assert await producer.produce() == "NONE"
    unreplicated("t")
    assert await producer.end() == "NONE"
    async with asyncio.timeout(adding.PATIENCE_S / 2):
        assert await ask(
            between, producer.asked_by_leader(("t", 1)), other.asked_by_leader(("t", 1))
        ) == {"x": ["CONCURRENT_TRANSACTIONS"], "y": ["NONE"]}


async def test_slow_followers_of_transaction_log_delay_leader_for_bounded_time(
    between: Client,
    producer: Transactor,
    unreplicated: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adding, "PATIENCE_S", 0.02)
    unreplicated("__transaction_state")
    stranger = Transactor(producer.client, "stranger")
    asked = producer.asked_by_leader(("t", 0)), stranger.asked_by_leader(("t", 0))
    assert await ask(between, *asked) == {
        "x": ["COORDINATOR_NOT_AVAILABLE"],
        "stranger": ["INVALID_PRODUCER_ID_MAPPING"],
    }


async def test_marker_with_slow_followers_is_answered_with_request_timed_out(
    between: Client,
    producer: Transactor,
    unreplicated: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coordinator sends it again; a second marker does no harm."""
    monkeypatch.setattr(marking, "PATIENCE_S", 0.02)
    assert await producer.produce() == "NONE"
    unreplicated("t")
    coordinator = speaking_for(producer, between)
    for _ in range(2):
        assert await coordinator.mark() == "REQUEST_TIMED_OUT"


async def test_markers_over_superseded_connection_are_not_written(
    broker: Broker, producer: Transactor
) -> None:
    """Such markers were delayed and sent again meanwhile. An operator may use any connection."""
    async with (
        connected_to(broker, BROKERS, "broker-0") as older,
        connected_to(broker, BROKERS, "broker-0") as newer,
        connected_to(broker, CLIENTS, "broker-0") as operator,
    ):
        lines = (older, newer, older, operator)
        told = [await speaking_for(producer, line).mark() for line in lines]
    assert told == ["NONE", "NONE", "NETWORK_EXCEPTION", "NONE"]


async def test_only_brokers_of_the_cluster_supersede_connections(
    broker: Broker, producer: Transactor
) -> None:
    for client_id in ("broker-7", "broker-", "broker-" + 5000 * "9", "c"):
        async with (
            connected_to(broker, BROKERS, client_id) as older,
            connected_to(broker, BROKERS, client_id) as newer,
        ):
            told = [await speaking_for(producer, line).mark() for line in (older, newer, older)]
        assert told == ["NONE", "NONE", "NONE"]


async def test_marker_of_a_coordinator_epoch_of_the_future_is_not_written(
    between: Client, producer: Transactor
) -> None:
    """It would fence the coordinator of the producer for good."""
    assert await producer.produce() == "NONE"
    forger = speaking_for(producer, between)
    assert await forger.mark(coordinator_epoch=2**31 - 1) == "COORDINATOR_NOT_AVAILABLE"
    assert await producer.end() == "NONE"
    assert await producer.settled() == "CompleteCommit"


async def test_marker_of_operator_has_no_time_limit(
    client: Client,
    producer: Transactor,
    unreplicated: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka's Admin would treat REQUEST_TIMED_OUT as a failure."""
    monkeypatch.setattr(marking, "PATIENCE_S", 0.02)
    assert await producer.produce() == "NONE"
    unreplicated("t")
    operator = speaking_for(producer, client)
    marked = asyncio.ensure_future(operator.mark())
    _, waiting = await asyncio.wait({marked}, timeout=0.1)
    assert waiting
    marked.cancel()


def speaking_for(producer: Transactor, line: Client) -> Transactor:
    """Return a stand-in for another broker: its own connection, and the same producer's
    transaction."""
    other = Transactor(line)
    other.producer_id, other.epoch = producer.producer_id, producer.epoch
    return other
