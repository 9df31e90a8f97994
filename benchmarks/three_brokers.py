"""Three brokers beside three of Apache Kafka: every record on three replicas, acks=all.

What a cluster costs is the kernel's accounting of its three broker processes; ZooKeeper, which
Kafka's nodes replace by their own quorum, is not counted and idles.
"""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.protocol.messages.metadata import MetadataResponsePartition
from benchmarks import raw
from benchmarks.measures import Cost, Round, driven, percentiles, resident_bytes, settled
from benchmarks.systems import BEFORE, OURS, SHARED, THEIRS
from tests.support.brokers.cluster import ProcessCluster
from tests.support.brokers.process import ROOT, BrokerProcess
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.node import DEFAULT, Kafka
from tests.support.zookeeper import ZooKeeperServer

PROPERTIES = {**SHARED, "auto.create.topics.enable": "false"}
"""Settings of both systems; otherwise their defaults apply."""
SESSION = {"zookeeper.session.timeout.ms": "6000"}
TOPIC_CONFIGS = {"min.insync.replicas": "2"}
PARTITIONS = 6
ONE_BY_ONE = 2_000
READY_WITHIN_S, WITHIN_S = 60.0, 300.0
AT_REST, SINGLE, KILLED = (
    "three brokers at rest",
    "three replicas: one record at a time",
    "kill -9 of a leader",
)
_STOP_WITHIN_S = 30.0

Ready = Callable[[MetadataResponsePartition], bool]


def stream_name(batch_bytes: int) -> str:
    """Return the name of the measurement of batches of this size."""
    return f"three replicas: 1024 B in {batch_bytes // 1024} KB"


class ThreeBrokers:
    """A cluster of three brokers, each in its own process."""

    name: str
    bootstrap_servers: str
    nodes: Mapping[int, Kafka] | Mapping[int, BrokerProcess]

    @property
    def pids(self) -> Sequence[int]:
        return [node.pid for node in self.nodes.values()]

    def up(self) -> None:
        """Start all of it, on empty storage."""
        raise NotImplementedError

    def down(self) -> None:
        """End it, and remove its data."""
        raise NotImplementedError

    def kill(self, broker_id: int) -> None:
        """kill -9."""
        self.nodes[broker_id].kill()

    def start(self, broker_id: int) -> None:
        """Start a broker again on its data, and return at once."""
        raise NotImplementedError


class KafkaTrio(ThreeBrokers):
    """Three nodes of Apache Kafka with the JVM options of its own scripts."""

    name = THEIRS

    def __init__(self, directory: Path) -> None:
        self._cluster = KafkaCluster(directory, heap=DEFAULT, properties=PROPERTIES)
        self.bootstrap_servers, self.nodes = self._cluster.bootstrap_servers, self._cluster.nodes

    def up(self) -> None:
        self._cluster.start()

    def down(self) -> None:
        self._cluster.stop()

    def start(self, broker_id: int) -> None:
        threading.Thread(target=Kafka.start, args=(self._cluster.nodes[broker_id],)).start()


class BarnabasTrio(ThreeBrokers):
    """Three processes of `barnabas serve` on a real ZooKeeper."""

    def __init__(
        self, directory: Path, root: Path = ROOT, properties: Mapping[str, str] = {}
    ) -> None:
        """`root` is the checkout whose brokers run, `properties` are more settings."""
        self.name = OURS if root == ROOT else BEFORE
        self._directory = directory
        zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.cluster = ProcessCluster(
            directory, zookeeper, {**PROPERTIES, **SESSION, **properties}, root=root
        )
        self.bootstrap_servers, self.nodes = self.cluster.bootstrap_servers, self.cluster.brokers

    def up(self) -> None:
        self.cluster.zookeeper.start()
        self.cluster.launch()

    def down(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.signal(signal.SIGTERM)
        for broker in self.cluster.brokers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                broker.wait_until_ended(_STOP_WITHIN_S)
            broker.kill()
        self.cluster.zookeeper.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self, broker_id: int) -> None:
        self.cluster.brokers[broker_id].launch()


def loads(megabytes: int) -> list[Callable[[ThreeBrokers], Round]]:
    """Return the loads of one round."""
    return [
        one_by_one,
        partial(stream, batch_bytes=16 * 1024, megabytes=megabytes),
        partial(stream, batch_bytes=1024 * 1024, megabytes=megabytes),
        gap_after_kill,
    ]


def idle(system: ThreeBrokers) -> Round:
    """Measure the memory of each broker at rest."""
    for pid in system.pids:
        settled(pid)
    resident = sum(map(resident_bytes, system.pids)) / len(system.pids)
    return {AT_REST: {"resident_mb": resident / 1e6}}


def stream(system: ThreeBrokers, batch_bytes: int, megabytes: int) -> Round:
    """Measure one librdkafka producer, six partitions."""
    with _topic(system, PARTITIONS) as (topic, _, _):
        load = ["--bootstrap", system.bootstrap_servers, "--topic", topic, "--size", 1024]
        load += ["--count", megabytes * 1_000_000 // 1024, "--batch-size", batch_bytes]
        with Cost(*system.pids) as cost:
            told = driven("librdkafka.py", "produce", *load, "--partitions", PARTITIONS)
    size = told["count"] * 1024
    rates = {"mb_per_s": size / told["seconds"] / 1e6, "cpu_s_per_gb": cost.cpu / size * 1e9}
    return {stream_name(batch_bytes): rates}


def one_by_one(system: ThreeBrokers) -> Round:
    """Measure one record at a time, acknowledged by all replicas in sync."""
    with _topic(system, 1) as (topic, _, port), raw.connect(port) as client:
        request = raw.produce_request(topic, records=1, record_bytes=100)
        raw.acknowledged(client, request)
        with Cost(*system.pids) as cost:
            taken = client.latencies(request, ONE_BY_ONE)
    cpu_us = cost.cpu / len(taken) * 1e6
    return {SINGLE: percentiles(taken, "ms") | {"cpu_us_per_request": cpu_us}}


def gap_after_kill(system: ThreeBrokers) -> Round:
    """Measure the time from kill -9 of a leader to the first record that its successor
    acknowledges."""
    with _topic(system, 1) as (topic, leader, port):
        request = raw.produce_request(topic, records=1, record_bytes=100)
        with raw.connect(port) as client:
            raw.acknowledged(client, request)
        system.kill(leader)
        with Cost() as cost:
            other = asyncio.run(
                until(system, lambda each: each.leader_id not in (-1, leader), topic)
            )
            with raw.connect(other[1]) as client:
                raw.acknowledged(client, request)
        system.start(leader)
        asyncio.run(until(system, all_in_sync, topic))
    return {KILLED: {"seconds": cost.seconds}}


def ready(system: ThreeBrokers) -> None:
    """Return when all three brokers are there."""
    asyncio.run(_ready(system))


async def _ready(system: ThreeBrokers) -> None:
    async with asyncio.timeout(READY_WITHIN_S):
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                async with Cluster(system.bootstrap_servers) as cluster:
                    if len((await cluster.refresh(())).brokers) == len(system.pids):
                        return
            await asyncio.sleep(0.1)


@contextlib.contextmanager
def _topic(system: ThreeBrokers, partitions: int) -> Iterator[tuple[str, int, int]]:
    """Have a topic, all replicas in sync, during a block; yield its name, and the id and port of
    the leader of its partition 0."""
    topic = f"topic-{time.time_ns()}"
    asyncio.run(create(system, [topic], partitions, TOPIC_CONFIGS))
    yield (topic, *asyncio.run(until(system, all_in_sync, topic)))
    asyncio.run(_delete(system, topic))


async def create(
    system: ThreeBrokers, topics: Iterable[str], partitions: int, configs: Mapping[str, str] = {}
) -> None:
    async with Cluster(system.bootstrap_servers, timeout=WITHIN_S) as cluster:
        for topic in topics:
            await Admin(cluster).create_topic(
                topic, partitions=partitions, replication_factor=3, configs=configs
            )


async def _delete(system: ThreeBrokers, topic: str) -> None:
    async with Cluster(system.bootstrap_servers) as cluster:
        await Admin(cluster).delete_topic(topic)


async def until(
    system: ThreeBrokers, ready: Ready, topic: str | None = None, partitions: int = 1
) -> tuple[int, int]:
    """Wait until all partitions of a topic, or at least so many of all topics, are ready; return
    the id and port of the leader of the first one."""
    async with asyncio.timeout(WITHIN_S), Cluster(system.bootstrap_servers) as cluster:
        while True:
            found = (await cluster.refresh(None if topic is None else [topic])).topics
            rows = [row for each in found if not each.is_internal for row in each.partitions]
            if len(rows) >= partitions and all(map(ready, rows)):
                leader = min(rows, key=lambda row: row.partition_index).leader_id
                if leader in cluster.nodes:
                    return leader, cluster.nodes[leader].port
            await asyncio.sleep(0.01 if topic else 0.2)


def all_in_sync(partition: MetadataResponsePartition) -> bool:
    return len(partition.isr_nodes) == len(partition.replica_nodes) == 3
