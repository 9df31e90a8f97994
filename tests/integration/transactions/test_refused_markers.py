"""Markers that a partition refuses because a plain batch has taken the epoch of the id further."""

import asyncio

import pytest

from barnabas.client.cluster import TRANSACTION, check
from barnabas.client.cluster import Cluster as Client
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.protocol.messages import add_partitions_to_txn, produce
from barnabas.protocol.records.record import Record, build_batch
from barnabas.testing import Cluster
from barnabas.testing.plugin import barnabas_cluster
from tests.support.newer_producer import NewerProducer
from tests.support.read_committed import committed, create
from tests.support.waiting import eventually

__all__ = ["barnabas_cluster"]

OLDER = 11
"""The last version of Produce that adds no partition."""


async def register(client: Client, producer: NewerProducer, topic: str, count: int) -> None:
    """Add partitions to the transaction of the id `x`, without records."""
    added = add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[*range(count)])
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[added],
    )
    connection = await client.coordinator_connection("x", TRANSACTION)
    answer = await connection.request(add_partitions_to_txn.API, request, version=3)
    for row in answer.results_by_topic_v3_and_below[0].results_by_partition:
        check(row.partition_error_code)


async def write_plainly(client: Client, producer: NewerProducer, topic: str, index: int) -> None:
    """Write a batch without a transaction, two epochs further."""
    records = build_batch(
        [Record(0, 1_700_000_000_000, None, b"plain", ())],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch + 2,
        base_sequence=0,
    )
    data = produce.PartitionProduceData(index=index, records=records)
    request = produce.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
    )
    leader = await client.connection_to(await client.leader(topic, index))
    answer = await leader.request(produce.API, request, version=OLDER)
    check(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("commits", [True, False])
def test_transaction_completes_where_refused_marker_ends_nothing(
    barnabas_cluster: Cluster, commits: bool
) -> None:
    """It stayed in its PREPARE state until another coordinator came, and the id could not go on.

    One of the two partitions is led by the coordinator, the other by another broker.
    """
    cluster = barnabas_cluster
    topic = create(cluster, "t", 3)
    coordinator, other, _ = cluster.running
    cluster.move_coordinator(coordinator, transactional_id="x")
    for index, leader in enumerate((coordinator, other, other)):
        cluster.move_leader(topic, index, leader)
    producer = NewerProducer(cluster.bootstrap_servers, "x", version=OLDER).init()

    async def prepare() -> None:
        async with Client(cluster.bootstrap_servers) as client:
            await client.retrying(lambda: register(client, producer, topic, 3))
            for index in (0, 1):
                await client.retrying(lambda at=index: write_plainly(client, producer, topic, at))

    async def settle() -> None:
        async with Client(cluster.bootstrap_servers) as client:
            admin = TransactionAdmin(client)

            async def is_complete() -> bool:
                described = await admin.describe("x")
                return described.transaction_state == state

            await eventually(is_complete)

    asyncio.run(prepare())
    producer.send(topic, 2, b"in the transaction")
    producer.end(committed=commits)
    state = "CompleteCommit" if commits else "CompleteAbort"
    asyncio.run(settle())
    # A consumer reads partitions in any order.
    assert sorted(committed(cluster, topic, range(3))) == [
        *[b"in the transaction"] * commits,
        *[b"plain"] * 2,
    ]
    NewerProducer(cluster.bootstrap_servers, "x").init()
