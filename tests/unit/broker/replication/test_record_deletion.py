"""DeleteRecords: deleted is what no replica has any more."""

import asyncio

import pytest

from barnabas.broker.metadata.cache import BrokerNode
from barnabas.broker.replication.in_sync import Attendance
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.record_deletion import delete_records, followed
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.record import Record, build_batch
from tests.unit.broker.replication.replicas import Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v", ())])


async def led(replicas: Replicas) -> Partition:
    """Led here, followed by 1, which has both records."""
    await replicas.lead(isr=(0, 1), replicas=(0, 1))
    alive(replicas, 0, 1)
    partition = replicas.manager.partition("t", 0)
    for _ in range(2):
        partition.append_as_leader(BATCH, now_ms=1)
    replicas.fetched(1, 2)
    return partition


def alive(replicas: Replicas, *brokers: int) -> None:
    replicas.cache._brokers = {each: BrokerNode(each, None, {}) for each in brokers}


def follower_starts_at(partition: Partition, start: int) -> None:
    partition.follower_fetched(1, 2, at=Attendance(0.0), log_start=start, broker_epoch=1)


async def test_a_deletion_is_one_when_the_follower_has_followed() -> None:
    partition = await led(Replicas())
    deletion = delete_records(partition, 1)
    waiting = asyncio.create_task(followed([deletion], 20))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert partition.low_watermark == 0
    follower_starts_at(partition, 1)
    assert await asyncio.wait_for(waiting, 5) == {}
    assert partition.low_watermark == 1


async def test_a_follower_that_does_not_follow_is_told_of_in_time() -> None:
    deletion = delete_records(await led(Replicas()), -1)
    errors = await followed([deletion], 0.01)
    assert errors[deletion].code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_dead_follower_is_not_waited_for() -> None:
    replicas = Replicas()
    partition = await led(replicas)
    alive(replicas, 0)
    assert await followed([delete_records(partition, 2)], 20) == {}


async def test_a_leader_that_is_none_any_more_cannot_say_that_it_is_deleted() -> None:
    partition = await led(Replicas())
    deletion = delete_records(partition, 1)
    waiting = asyncio.create_task(followed([deletion], 20))
    await asyncio.sleep(0)
    partition.resign()
    errors = await asyncio.wait_for(waiting, 5)
    assert errors[deletion].code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_what_is_not_committed_is_not_deleted() -> None:
    partition = await led(Replicas())
    with pytest.raises(KafkaError) as caught:
        delete_records(partition, 3)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
