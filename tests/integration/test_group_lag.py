"""The lag of groups in a cluster: each coordinator reports it, also for partitions led
elsewhere."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.app import Broker
from tests.support.in_cluster import member, shared_metadata
from tests.support.waiting import eventually

BROKERS = 3
GROUPS = [f"g{number}" for number in range(12)]
"""Enough groups for every broker to coordinate some."""
ENDS = [5, 6, 7]
"""Records of each partition of the topic."""
COMMITTED = 2

Lags = dict[tuple[str, ...], float]


def lags(broker: Broker) -> Lags:
    (samples,) = (
        family.samples
        for family in broker.registry.snapshot()
        if family.name == "kafka_consumergroup_lag"
    )
    return dict(samples)


def create(servers: str, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics([*topics]).values():
        made.result(20)


def fill(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "acks": "all"})
    for partition, end in enumerate(ENDS):
        for number in range(end):
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(20) == 0


def commit(servers: str, topic: str, partitions: int) -> None:
    offsets = [TopicPartition(topic, index, COMMITTED) for index in range(partitions)]
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": servers, "log_level": 0, "group.id": group})
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()


async def test_lag_of_a_partition_led_by_another_broker_is_reported(tmp_path: Path) -> None:
    """It was reported only if the group's coordinator also led the partition."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        brokers = [
            await stack.enter_async_context(member(store, tmp_path, broker_id))
            for broker_id in range(BROKERS)
        ]
        servers = brokers[0].bootstrap_servers
        spread = NewTopic("t", BROKERS, replica_assignment=[[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        await asyncio.to_thread(create, servers, spread)
        await asyncio.to_thread(fill, servers, "t")
        await asyncio.to_thread(commit, servers, "t", len(ENDS))
        expected = {
            (group, "t", str(partition)): float(end - COMMITTED)
            for group in GROUPS
            for partition, end in enumerate(ENDS)
        }
        # A follower knows the log end offset as of its last fetch.
        await eventually(
            lambda: {key: lag for each in brokers for key, lag in lags(each).items()} == expected
        )
        assert all(lags(each) for each in brokers), "every broker coordinates some of the groups"


async def test_the_lag_of_a_partition_without_a_replica_on_the_coordinator_is_left_out(
    tmp_path: Path,
) -> None:
    one_coordinator = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1}
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        brokers = [
            await stack.enter_async_context(member(store, tmp_path, broker_id, **one_coordinator))
            for broker_id in range(2)
        ]
        servers = brokers[0].bootstrap_servers
        apart = NewTopic("t", 2, replica_assignment=[[0], [1]])
        await asyncio.to_thread(create, servers, apart)
        await asyncio.to_thread(commit, servers, "t", 2)
        ((coordinator, told),) = (
            (broker_id, lags(each)) for broker_id, each in enumerate(brokers) if lags(each)
        )
        assert set(told) == {(group, "t", str(coordinator)) for group in GROUPS}
