"""The lag of groups in records, counted by leaders and by reading, against a real consumer."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas.client import group_lag
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_lag import Bound, GroupLag, find_lags
from barnabas.client.producer import Producer
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.command_line import Cli
from tests.support.lag_histories import BROKER, compare, without_count
from tests.support.transactions_by_hand import older_producer

PARTITIONS = 50
"""The partitions of each of two topics: a hundred histories for each protocol and way."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BROKER) as broker:
        yield broker


@pytest.fixture(params=["leader", "reading"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Count at the leader; or by reading, as from a leader that does not know our field."""
    if request.param == "reading":
        monkeypatch.setattr(group_lag, "ListOffsetsPartition", without_count)
    return str(request.param)


async def lag_of(cluster: Cluster, topic: str, offset: int, bound: Bound | None = None) -> GroupLag:
    place = TopicPartition(topic, 0)
    return (await find_lags(cluster, {place: offset}, bound))[place]


@pytest.mark.parametrize("level", [1, 2])
async def test_counts_equal_those_of_a_consumer_in_random_histories(
    broker: Broker, level: int
) -> None:
    await compare(broker.bootstrap_servers, level, PARTITIONS)


async def test_finished_transactional_topic_has_nothing_to_read_at_lag_1(
    broker: Broker, way: str
) -> None:
    topic = f"finished-{way}"
    async with Cluster(broker.bootstrap_servers) as cluster:
        await Admin(cluster).create_topic(topic, partitions=1, replication_factor=1)
        async with TransactionalProducer(cluster, topic) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send(topic, b"a", partition=0)
        assert await lag_of(cluster, topic, 1) == GroupLag(2, 1, 0, 0, True, None)
        assert await lag_of(cluster, topic, 0) == GroupLag(2, 2, 1, 0, True, None)


async def test_records_behind_an_open_transaction_are_held_back_by_it(
    broker: Broker, way: str
) -> None:
    topic = f"open-{way}"
    async with Cluster(broker.bootstrap_servers) as cluster:
        await Admin(cluster).create_topic(topic, partitions=1, replication_factor=1)
        async with Producer(cluster) as plain, TransactionalProducer(cluster, topic) as producer:
            await producer.init_transactions()
            await (await plain.send(topic, b"before", partition=0))
            await producer.begin_transaction()
            await (await producer.send(topic, b"open", partition=0))
            await (await plain.send(topic, b"behind", partition=0))
            by = producer.identity.producer_id
            assert await lag_of(cluster, topic, 0) == GroupLag(3, 3, 1, 2, True, by)
            assert await lag_of(cluster, topic, 1) == GroupLag(3, 2, 0, 2, True, by)
            assert await lag_of(cluster, topic, 2) == GroupLag(3, 1, 0, 1, True, by)
            assert await lag_of(cluster, topic, 3) == GroupLag(3, 0, 0, 0, True, None)
            await producer.abort_transaction()
        assert await lag_of(cluster, topic, 0) == GroupLag(4, 4, 2, 0, True, None)


async def test_deleted_records_are_not_to_read(broker: Broker, way: str) -> None:
    topic = f"deleted-{way}"
    place = TopicPartition(topic, 0)
    async with Cluster(broker.bootstrap_servers) as cluster:
        await Admin(cluster).create_topic(topic, partitions=1, replication_factor=1)
        async with Producer(cluster) as plain:
            for _ in range(10):
                await plain.send(topic, b"v", partition=0)
        await Admin(cluster).delete_records({place: 7})
        assert await lag_of(cluster, topic, 2) == GroupLag(10, 8, 3, 0, True, None)
        await Admin(cluster).delete_records({place: -1})
        assert await lag_of(cluster, topic, 2) == GroupLag(10, 8, 0, 0, True, None)
        assert await lag_of(cluster, topic, 12) == GroupLag(10, 0, 0, 0, True, None)


async def test_count_beyond_the_bound_is_a_lower_one(
    broker: Broker, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"bounded-{way}"
    monkeypatch.setattr(
        group_lag,
        "FetchSettings",
        partial(group_lag.FetchSettings, partition_max_bytes=400),  # type: ignore[attr-defined]
    )
    async with Cluster(broker.bootstrap_servers) as cluster:
        change = ("group.lag.counted.batches", ConfigOperation.SET, "5")
        await Admin(cluster).alter_configs(ConfigResourceType.BROKER, "", [change])
        await Admin(cluster).create_topic(topic, partitions=1, replication_factor=1)
        async with Producer(cluster) as plain, TransactionalProducer(cluster, topic) as producer:
            await producer.init_transactions()
            for _ in range(30):
                await (await plain.send(topic, b"v", partition=0))
            await producer.begin_transaction()
            await (await producer.send(topic, b"open", partition=0))
            by = producer.identity.producer_id
            assert await lag_of(cluster, topic, 0) == GroupLag(31, 31, 30, 1, True, by)
            some = await lag_of(cluster, topic, 0, Bound(answers=2, read_bytes=800))
            assert some.to_read is not None
            assert 5 <= some.to_read < 30
            assert some == GroupLag(31, 31, some.to_read, 1, False, by)
            await producer.abort_transaction()
        back = ("group.lag.counted.batches", ConfigOperation.DELETE, None)
        await Admin(cluster).alter_configs(ConfigResourceType.BROKER, "", [back])


@pytest.fixture
def cli(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Cli:
    return Cli(broker.bootstrap_servers, (monkeypatch, capfdbinary), tmp_path)


def test_command_names_the_transaction_that_holds_a_group_back(cli: Cli) -> None:
    topic, group = "described", "readers of described"
    cli("topics", "create", topic, "-p", "1", "-r", "1")
    producer = older_producer(cli.servers, "holder")
    producer.begin_transaction()
    producer.produce(topic, b"first", partition=0)
    producer.commit_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(20)
    commit(cli.servers, group, topic, 1)
    described = cli.json("groups", "describe", group)
    totals = [described[name] for name in ("lag", "to_read", "held_back", "exact")]
    assert totals == [2, 0, 1, True]
    (row,) = described["partitions"]
    producer_id = row.pop("producer_id")
    assert row == {
        "topic": topic,
        "partition": 0,
        "offset": 1,
        "end": 3,
        "lag": 2,
        "to_read": 0,
        "held_back": 1,
        "exact": True,
        "held_back_by": "holder",
        "member": None,
        "host": None,
        "out_of_range": None,
    }
    (listed,) = cli.json("transactions", "list", "--producer-id", str(producer_id))
    assert listed["transactional_id"] == "holder"
    *_, head, line = cli("groups", "describe", group).decode().splitlines()
    shown = dict(zip(head.split("\t"), line.split("\t"), strict=True))
    assert (shown["lag"], shown["to_read"], shown["held_back"]) == ("2", "0", "1")
    assert shown["held_back_by"] == "holder"
    producer.abort_transaction(20)
    (row,) = cli.json("groups", "describe", group, "--exact")["partitions"]
    assert (row["lag"], row["to_read"], row["held_back"], row["exact"]) == (3, 0, 0, True)
    assert (row["held_back_by"], row["producer_id"]) == (None, None)


def commit(servers: str, group: str, topic: str, offset: int) -> None:
    async def work() -> None:
        async with Cluster(servers) as cluster:
            await GroupAdmin(cluster).set_offsets(group, {TopicPartition(topic, 0): offset})

    asyncio.run(work())
