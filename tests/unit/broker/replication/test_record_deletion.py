"""DeleteRecords: records are deleted once no replica has them."""

import asyncio

import pytest

from barnabas.broker.cluster.cache import BrokerNode
from barnabas.broker.replication.isr_state import LastFetch
from barnabas.broker.replication.leader.record_deletion import await_deletions, delete_records
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.record import Record, build_batch
from tests.unit.broker.replication.replicas import Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v", ())])


async def led(replicas: Replicas) -> Partition:
    """Lead a partition with two records, both replicated to follower 1."""
    await replicas.lead(isr=(0, 1), replicas=(0, 1))
    alive(replicas, 0, 1)
    partition = replicas.manager.partition("t", 0)
    for _ in range(2):
        partition.append(BATCH, now_ms=1)
    replicas.fetched(1, 2)
    return partition


def alive(replicas: Replicas, *brokers: int) -> None:
    replicas.cache._brokers = {each: BrokerNode(each, None, {}) for each in brokers}


def follower_starts_at(partition: Partition, start: int) -> None:
    partition.follower_fetched(1, 2, at=LastFetch(0.0), log_start=start, broker_epoch=1)


async def test_deletion_completes_when_the_follower_has_deleted() -> None:
    partition = await led(Replicas())
    deletion = delete_records(partition, 1)
    waiting = asyncio.create_task(await_deletions([deletion], 20))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert partition.low_watermark == 0
    follower_starts_at(partition, 1)
    assert await asyncio.wait_for(waiting, 5) == {}
    assert partition.low_watermark == 1


async def test_deletion_without_the_follower_times_out() -> None:
    deletion = delete_records(await led(Replicas()), -1)
    errors = await await_deletions([deletion], 0.01)
    assert errors[deletion].code is ErrorCode.REQUEST_TIMED_OUT


async def test_dead_follower_is_not_awaited() -> None:
    replicas = Replicas()
    partition = await led(replicas)
    alive(replicas, 0)
    assert await await_deletions([delete_records(partition, 2)], 20) == {}


async def test_lost_leadership_fails_the_deletion() -> None:
    partition = await led(Replicas())
    deletion = delete_records(partition, 1)
    waiting = asyncio.create_task(await_deletions([deletion], 20))
    await asyncio.sleep(0)
    partition.resign()
    errors = await asyncio.wait_for(waiting, 5)
    assert errors[deletion].code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_deletion_beyond_the_high_watermark_is_refused() -> None:
    partition = await led(Replicas())
    with pytest.raises(KafkaError) as caught:
        delete_records(partition, 3)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
