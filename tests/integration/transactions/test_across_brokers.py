"""Transactions over three brokers whose partition leaders and coordinators move."""

import asyncio
from collections.abc import Iterator
from itertools import cycle
from random import Random

import pytest
from confluent_kafka import Producer

from barnabas.client.admin import UNSAFE_DOWNGRADE, UPGRADE, update_feature
from barnabas.client.cluster import Cluster as Client
from barnabas.testing import Cluster
from barnabas.testing.plugin import barnabas_cluster
from tests.support.newer_producer import NewerProducer
from tests.support.read_committed import DEADLINE, committed, create

__all__ = ["barnabas_cluster"]

PARTITIONS = 6
IDS = ("older", "newer")


class Older:
    """A producer of the older protocol, with the interface of `NewerProducer`."""

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


def finalize(cluster: Cluster, level: int) -> None:
    async def change() -> None:
        async with Client(cluster.bootstrap_servers) as client:
            change = UPGRADE if level == 2 else UNSAFE_DOWNGRADE
            await update_feature(client, "transaction.version", level, change=change)

    asyncio.run(change())


def disturb(cluster: Cluster, topic: str, rng: Random, levels: Iterator[int]) -> None:
    """Move a leader or a coordinator, or change `transaction.version`, of which the brokers learn
    one after another."""
    draw = rng.randrange(5)
    broker = rng.choice(cluster.running)
    if draw < 2:
        cluster.move_leader(topic, rng.randrange(PARTITIONS), broker)
    elif draw < 4:
        cluster.move_coordinator(broker, transactional_id=rng.choice(IDS))
    else:
        finalize(cluster, next(levels))


@pytest.mark.timeout(180)
def test_transactions_stay_atomic_while_leaders_coordinators_and_levels_change(
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
def test_offline_partition_blocks_only_its_own_readers(
    barnabas_cluster: Cluster, version: str, times_out: bool
) -> None:
    """Its transaction, which has timed out long ago, is over when the partition is online again.

    Either its producer has ended it, or another coordinator has aborted it.
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
