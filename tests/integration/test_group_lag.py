"""The lag of groups in a cluster: each coordinator reports it, also for partitions led
elsewhere."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.app import Broker
from barnabas.broker.groups import record_lags
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.operations.group_description import describe_group
from barnabas.protocol.topic_partition import TopicPartition as Place
from tests.support.data_path import running
from tests.support.in_cluster import member, shared_metadata
from tests.support.ports import free_port
from tests.support.transactions_by_hand import older_producer
from tests.support.waiting import eventually

BROKERS = 3
GROUPS = [f"g{number}" for number in range(12)]
"""Enough groups for every broker to coordinate some."""
ENDS = [5, 6, 7]
"""Records of each partition of the topic."""
COMMITTED = 2

Lags = dict[tuple[str, ...], float]


def lags(broker: Broker, name: str = "kafka_consumergroup_lag") -> Lags:
    (samples,) = (family.samples for family in broker.registry.snapshot() if family.name == name)
    return dict(samples)


def in_records(broker: Broker) -> tuple[Lags, Lags]:
    """Return the records to read, and those held back."""
    return (
        lags(broker, "barnabas_consumergroup_records_to_read"),
        lags(broker, "barnabas_consumergroup_records_held_back"),
    )


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
        for each in brokers:
            assert in_records(each) == ({}, {}), "no endpoint shows the metrics"


async def test_records_to_read_and_held_back_are_reported_with_the_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_lags, "INTERVAL_MS", 100)
    own = {
        "offsets_topic_replication_factor": 2,
        "transaction_state_log_replication_factor": 2,
        "transaction_state_log_num_partitions": 2,
    }
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        brokers = [
            await stack.enter_async_context(
                member(store, tmp_path, id, metrics_listener=f"127.0.0.1:{free_port()}", **own)
            )
            for id in range(2)
        ]
        servers = brokers[0].bootstrap_servers
        spread = NewTopic("t", 2, replica_assignment=[[0, 1], [1, 0]])
        await asyncio.to_thread(create, servers, spread)
        producer = await asyncio.to_thread(older_producer, servers, "x")
        await asyncio.to_thread(transact, producer, 3)
        await asyncio.to_thread(producer.commit_transaction, 20)
        await asyncio.to_thread(transact, producer, 2)
        await asyncio.to_thread(commit, servers, "t", 2)
        # Offset 2 is the last record of the first transaction, its marker is at 3.
        keys = {(group, "t", str(index)) for group in GROUPS for index in range(2)}
        expected = dict.fromkeys(keys, 1), dict.fromkeys(keys, 2)
        await eventually(lambda: together(brokers) == expected)
        await asyncio.to_thread(producer.abort_transaction, 20)
        expected = dict.fromkeys(keys, 1), dict.fromkeys(keys, 0)
        await eventually(lambda: together(brokers) == expected)
        told = {key: lag for each in brokers for key, lag in lags(each).items()}
        assert told == dict.fromkeys(keys, 5)


def together(brokers: list[Broker]) -> tuple[Lags, Lags]:
    to_read: Lags = {}
    held_back: Lags = {}
    for each in brokers:
        for all_, own in zip((to_read, held_back), in_records(each), strict=True):
            all_.update(own)
    return to_read, held_back


def transact(producer: Producer, count: int) -> None:
    producer.begin_transaction()
    for partition in range(2):
        for _ in range(count):
            producer.produce("t", b"v", partition=partition)
    assert producer.flush(20) == 0


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


async def test_metrics_and_description_agree_on_offsets_outside_of_their_log(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker, Cluster(broker.bootstrap_servers) as cluster:
        await asyncio.to_thread(create, broker.bootstrap_servers, NewTopic("t", 2))
        await asyncio.to_thread(fill_partitions, broker.bootstrap_servers, 2)
        await Admin(cluster).delete_records({Place("t", 0): 5})
        admin = GroupAdmin(cluster)
        await admin.set_offsets("g", {Place("t", 0): 1, Place("t", 1): 444})
        described = await describe_group(cluster, "g")
        rows = {("g", "t", str(row.partition)): row.lag for row in described.partitions}
        assert rows == {("g", "t", "0"): 9, ("g", "t", "1"): 0}
        assert lags(broker) == rows
        assert described.lag == 9


def fill_partitions(servers: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "acks": "all"})
    for partition in range(partitions):
        for number in range(10):
            producer.produce("t", str(number).encode(), partition=partition)
    assert producer.flush(20) == 0
