"""Kept transactions (KIP-939) over three brokers: crashes, moved leaders, and time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.cluster import Cluster as Client
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.client.two_phase import InitialisedProducer, end_transaction, init_producer_id
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.testing import Broker, Cluster
from tests.support.newer_producer import NewerProducer
from tests.support.read_committed import committed, create, ends_of
from tests.support.waiting import until

T = TypeVar("T")
ID = "x"
LATER_S = 3600
TIMEOUT_MS = 60_000
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(configs=TWO_PHASE) as cluster:
        yield cluster


@pytest.fixture
def processes() -> Iterator[Cluster]:
    with Cluster(configs=TWO_PHASE, processes=True) as cluster:
        yield cluster


def ask(cluster: Cluster, call: Callable[[Client], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with Client(cluster.bootstrap_servers) as client:
            return await call(client)

    return asyncio.run(asked())


def keep(cluster: Cluster, *, pins: bool = True) -> InitialisedProducer:
    return ask(
        cluster,
        lambda client: init_producer_id(client, ID, TIMEOUT_MS, two_phase=pins, keep_prepared=True),
    )


def end(cluster: Cluster, producer: Any, *, commits: bool = True) -> ErrorCode:
    """Return the code of EndTxn."""
    try:
        ask(cluster, lambda client: end_transaction(client, ID, producer, committed=commits))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def write(cluster: Cluster, topic: str) -> None:
    """Write a record into each of three partitions, and leave the transaction open."""
    writer = NewerProducer(cluster.bootstrap_servers, ID).init()
    for partition in range(3):
        writer.send(topic, partition, b"%d" % partition)


WRITTEN = [b"0", b"1", b"2"]


@pytest.mark.parametrize("commits", [True, False])
def test_kept_transaction_outlives_crash_of_its_coordinator(
    processes: Cluster, commits: bool
) -> None:
    cluster = processes
    topic = create(cluster, "t", 3)
    write(cluster, topic)
    first = keep(cluster)
    cluster.wait_until_in_sync()
    cluster.kill(cluster.coordinator_of(transactional_id=ID))
    second = keep(cluster)
    assert second.ongoing == first.ongoing
    assert second.client.epoch == first.client.epoch + 1
    assert end(cluster, first.client) is ErrorCode.PRODUCER_FENCED
    assert end(cluster, second.client, commits=commits) is ErrorCode.NONE
    assert end(cluster, second.client, commits=commits) is ErrorCode.NONE
    assert end(cluster, second.client, commits=not commits) is ErrorCode.INVALID_TXN_STATE
    assert sorted(committed(cluster, topic, range(3))) == (WRITTEN if commits else [])


def test_reader_to_the_end_waits_for_an_open_transaction(cluster: Cluster) -> None:
    """`committed` took the last stable offset for the end, and did not wait for the abort below."""
    topic = create(cluster, "t", 3)
    write(cluster, topic)
    assert ends_of(cluster, topic, range(3)) == {0: 1, 1: 1, 2: 1}


def test_only_a_pin_lifts_the_timeout_even_for_the_next_coordinator(cluster: Cluster) -> None:
    topic = create(cluster, "t", 3)
    write(cluster, topic)
    pinned = keep(cluster)
    cluster.jump_transaction_clock(LATER_S)
    coordinator = cluster.coordinator_of(transactional_id=ID)
    other = next(each for each in cluster.running if each != coordinator)
    cluster.move_coordinator(other, transactional_id=ID)
    for partition in range(3):
        cluster.move_leader(topic, partition, coordinator)
    cluster.jump_transaction_clock(LATER_S)
    assert end(cluster, pinned.client) is ErrorCode.NONE
    assert sorted(committed(cluster, topic, range(3))) == WRITTEN
    write(cluster, topic)
    kept = keep(cluster, pins=False)
    cluster.jump_transaction_clock(LATER_S)
    cluster.move_coordinator(coordinator, transactional_id=ID)
    # The reader waits until the coordinator has aborted the transaction.
    assert sorted(committed(cluster, topic, range(3))) == WRITTEN
    assert end(cluster, kept.client) is ErrorCode.INVALID_TXN_STATE


def test_client_of_a_kept_transaction_cannot_write_into_it_without_verification() -> None:
    """With Produce below v12 it could: its epoch is newer than that of the marker, which the leader
    refused for ever."""
    with Broker({**TWO_PHASE, "transaction.partition.verification.enable": "false"}) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        NewerProducer(servers, ID).init().send("t", 0, b"v")
        client = NewerProducer(servers, ID, version=11).keep().keep()
        with pytest.raises(KafkaError) as caught:
            client.send("t", 0, b"of the client")
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE
        client.end(committed=True)
        until(lambda: asyncio.run(described(servers)).transaction_state == "CompleteCommit")


def test_foreign_client_that_knows_the_version_is_not_changed_by_it() -> None:
    """kafka-python sends InitProducerId in the highest version that both know."""
    with Broker(TWO_PHASE) as broker:
        producer = kafka.KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            transactional_id=ID,
            transaction_timeout_ms=TIMEOUT_MS,
        )
        producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.send("t", b"v").get(30)
            end()
        producer.close()
        row = asyncio.run(described(broker.bootstrap_servers))
    assert row.transaction_state in ("PrepareCommit", "CompleteCommit")
    assert row.transaction_timeout_ms == TIMEOUT_MS


async def described(servers: str) -> Any:
    async with Client(servers) as client:
        return await TransactionAdmin(client).describe(ID)
