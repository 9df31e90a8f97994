"""Transactions over three brokers, whose partitions and coordinators are led here and there."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from itertools import cycle
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.cluster import Cluster as Client
from barnabas.client.features import UNSAFE_DOWNGRADE, UPGRADE, update_feature
from barnabas.testing import Cluster
from barnabas.testing.plugin import barnabas_cluster
from tests.integration.newer_producer import NewerProducer

__all__ = ["barnabas_cluster"]

PARTITIONS = 6
DEADLINE = 30.0
IDS = ("older", "newer")


def create(cluster: Cluster, topic: str, partitions: int, replicas: int = 3) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(DEADLINE)
    for partition in range(partitions):
        cluster.leader_of(topic, partition)
    return topic


class Older:
    """A producer of the older protocol, with the words of `NewerProducer`."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "transactional.id": transactional_id,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(DEADLINE)
        self._open = False

    def send(self, topic: str, partition: int, value: bytes) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True
        self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(DEADLINE) == 0

    def end(self, *, committed: bool) -> None:
        end = self._producer.commit_transaction if committed else self._producer.abort_transaction
        end(DEADLINE)
        self._open = False


def committed(cluster: Cluster, topic: str, partitions: Iterable[int]) -> list[bytes]:
    """All that read_committed shows: up to the end that there is for whoever reads uncommitted."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "no group: nothing is committed",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
    values: list[bytes] = []
    ends = {
        each: consumer.get_watermark_offsets(TopicPartition(topic, each))[1] for each in partitions
    }
    deadline = time.monotonic() + DEADLINE
    while ends and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            values.append(message.value())
        for place in consumer.position([TopicPartition(topic, each) for each in ends]):
            if place.offset >= ends[place.partition]:
                del ends[place.partition]
    consumer.close()
    assert not ends, f"nobody can read to the end of {sorted(ends)}"
    return values


def finalize(cluster: Cluster, level: int) -> None:
    async def change() -> None:
        async with Client(cluster.bootstrap_servers) as client:
            change = UPGRADE if level == 2 else UNSAFE_DOWNGRADE
            await update_feature(client, "transaction.version", level, change=change)

    asyncio.run(change())


def disturb(cluster: Cluster, topic: str, rng: Random, levels: Iterator[int]) -> None:
    """Somebody else leads or coordinates, or the brokers hear, one after another, of another
    `transaction.version`."""
    draw = rng.randrange(5)
    broker = rng.choice(cluster.running)
    if draw < 2:
        cluster.move_leader(topic, rng.randrange(PARTITIONS), broker)
    elif draw < 4:
        cluster.move_coordinator(broker, transactional_id=rng.choice(IDS))
    else:
        finalize(cluster, next(levels))


@pytest.mark.timeout(180)
def test_no_transaction_is_torn_while_leaders_coordinators_and_levels_change(
    barnabas_cluster: Cluster,
) -> None:
    cluster, rng, levels = barnabas_cluster, Random(7), cycle((1, 2, 0, 2))
    topic = create(cluster, "t", PARTITIONS)
    older, newer = Older(cluster, "older"), NewerProducer(cluster.bootstrap_servers, "newer").init()
    expected = []
    for number in range(24):
        for name, producer in (("older", older), ("newer", newer)):
            values = [b"%s-%d-%d" % (name.encode(), number, at) for at in range(3)]
            for value in values:
                producer.send(topic, rng.randrange(PARTITIONS), value)
                if rng.random() < 0.3:
                    disturb(cluster, topic, rng, levels)
            commits = rng.random() < 0.7
            producer.end(committed=commits)
            expected += values if commits else []
    assert sorted(committed(cluster, topic, range(PARTITIONS))) == sorted(expected)


def producer_of(cluster: Cluster, version: str, transactional_id: str) -> "Older | NewerProducer":
    if version == "older":
        return Older(cluster, transactional_id)
    return NewerProducer(cluster.bootstrap_servers, transactional_id).init()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", ["older", "newer"])
@pytest.mark.parametrize("times_out", [False, True])
def test_a_partition_that_is_offline_holds_up_only_its_own_readers(
    barnabas_cluster: Cluster, version: str, times_out: bool
) -> None:
    """And its transaction is over when it is back, though the time of that one has long passed.

    Whether its producer ended it, or nobody did and somebody else coordinates by then.
    """
    cluster = barnabas_cluster
    alone = create(cluster, "alone", 1, replicas=1)
    safe = create(cluster, "safe", 3)
    away = cluster.leader_of(alone)
    others = [each for each in cluster.running if each != away]
    producer = producer_of(cluster, version, "x")
    for partition in range(3):
        cluster.move_leader(safe, partition, others[partition % 2])
    cluster.move_coordinator(others[0], transactional_id="x")
    producer.send(alone, 0, b"alone")
    for partition in range(3):
        producer.send(safe, partition, b"%d" % partition)
    cluster.stop_broker(away)
    if not times_out:
        producer.end(committed=True)
        assert sorted(committed(cluster, safe, range(3))) == [b"0", b"1", b"2"]
    cluster.jump_transaction_clock(3600)
    if times_out:
        assert committed(cluster, safe, range(3)) == []
        cluster.move_coordinator(others[1], transactional_id="x")
    cluster.start_broker(away)
    before = [] if times_out else [b"alone"]
    assert committed(cluster, alone, [0]) == before
    if times_out:
        producer = producer_of(cluster, version, "x")
    producer.send(alone, 0, b"next")
    producer.end(committed=True)
    assert committed(cluster, alone, [0]) == [*before, b"next"]
