"""The administration of transactions by our client in a cluster of three brokers."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import TRANSACTION
from barnabas.client.cluster import Cluster as ClientCluster
from barnabas.client.transaction_admin import (
    NO_TIMEOUT_MS,
    TransactionAdmin,
    client_of,
    is_two_phase,
)
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.client.two_phase import end_transaction, init_producer_id
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import find_coordinator
from barnabas.testing import Cluster

DEADLINE = 60.0
KEYS = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(KEYS, processes=True) as brokers:
        yield brokers


@pytest.fixture
async def cluster(brokers: Cluster) -> AsyncIterator[ClientCluster]:
    async with ClientCluster(brokers.bootstrap_servers) as cluster, asyncio.timeout(DEADLINE):
        yield cluster


async def open_transactions(
    cluster: ClientCluster, topic: str, ids: list[str], *, two_phase: bool = False
) -> None:
    """Begin a transaction for each id, in producers that then crash."""
    await Admin(cluster).create_topic(topic, partitions=1)

    async def begin(id: str) -> None:
        producer = TransactionalProducer(cluster, id, two_phase=two_phase)
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send(topic, b"open", partition=0))
        await producer.abandon()

    await asyncio.gather(*(begin(id) for id in ids))


async def test_open_transactions_under_a_prefix_are_found_at_all_coordinators(
    cluster: ClientCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.client.cluster.DESCRIBED_PER_REQUEST", 3)
    ids = [f"under.{n:02d}" for n in range(20)]
    await open_transactions(cluster, "under", [*ids, "underneath", "other"])
    admin = TransactionAdmin(cluster)
    kept = await init_producer_id(cluster, ids[0], 1, keep_prepared=True, two_phase=True)
    found = await admin.open_under("under.")
    assert [each.transactional_id for each in found] == ids
    assert len({await cluster.coordinator(id, TRANSACTION) for id in ids}) == 3
    assert [is_two_phase(each) for each in found] == [True] + [False] * 19
    assert (client_of(found[0]), found[0].transaction_timeout_ms) == (kept.client, NO_TIMEOUT_MS)
    assert (found[0].producer_id, found[0].producer_epoch) == kept.ongoing
    assert client_of(found[1]) == (found[1].producer_id, found[1].producer_epoch)
    for each in found:
        await end_transaction(cluster, each.transactional_id, client_of(each), committed=False)
    before = cluster.requests
    assert await admin.open_under("under.") == []
    # Metadata before and after, and a list from each broker: a batch of a sink waits for them.
    assert cluster.requests - before == 2 + 3
    assert len(await admin.open_under("under")) == 1


async def test_transactions_of_a_coordinator_that_stopped_are_found_at_its_successor(
    brokers: Cluster,
) -> None:
    async with (
        ClientCluster(brokers.bootstrap_servers) as cluster,
        asyncio.timeout(DEADLINE),
    ):
        ids = [f"moved.{n:02d}" for n in range(12)]
        await open_transactions(cluster, "moved", ids)
        admin = TransactionAdmin(cluster)
        gone = await cluster.coordinator(ids[0], TRANSACTION)
        brokers.kill(gone)
        try:
            assert [each.transactional_id for each in await admin.open_under("moved.")] == ids
            assert len(await admin.describe_all(ids)) == 12
        finally:
            await brokers.aio.start_broker(gone)
            await brokers.aio.wait_until_in_sync(DEADLINE)


async def test_describing_leaves_out_ids_that_are_unknown(cluster: ClientCluster) -> None:
    await open_transactions(cluster, "described", ["described"])
    found = await TransactionAdmin(cluster).describe_all(["absent", "described", "described"])
    assert [(id, row.transactional_id) for id, row in found.items()] == [("described",) * 2]
    with pytest.raises(KafkaError) as caught:
        await TransactionAdmin(cluster).describe("absent")
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("version", [3, 6])
async def test_coordinators_are_found_together_or_one_by_one_on_older_brokers(
    brokers: Cluster, version: int
) -> None:
    ids = [f"found.{n}" for n in range(9)]
    async with ClientCluster(brokers.bootstrap_servers) as cluster:
        connection = await cluster.any_connection()
        connection.broker_versions[find_coordinator.API.key] = range(version + 1)
        before = connection.requests
        found = await cluster.retrying(lambda: cluster.coordinators(ids, TRANSACTION))
        assert connection.requests - before == (1 if version == 6 else 9)
        assert await cluster.coordinators(reversed(ids), TRANSACTION) == found
        assert {await cluster.coordinator(id, TRANSACTION) for id in ids} == {*found.values()}
        assert connection.requests - before == (1 if version == 6 else 9)
    for id in ids:
        there = await brokers.aio.coordinator_of(transactional_id=id)
        assert found[id] == there
