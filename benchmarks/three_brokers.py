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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.protocol.messages.metadata import MetadataResponsePartition
from benchmarks import raw
from benchmarks.measures import Cost, Round, driven, percentiles, resident_bytes, settled
from benchmarks.systems import BEFORE, OURS, SHARED, THEIRS
from tests.support.brokers.cluster import ProcessCluster
from tests.support.brokers.process import ROOT
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.node import DEFAULT, Kafka
from tests.support.zookeeper import ZooKeeperServer

PROPERTIES = {**SHARED, "auto.create.topics.enable": "false"}
"""Settings of both systems; otherwise their defaults apply."""
SESSION = {"zookeeper.session.timeout.ms": "6000"}
TOPIC_CONFIGS = {"min.insync.replicas": "2"}
PARTITIONS = 6
ONE_BY_ONE = 2_000
READY_WITHIN_S = 60.0
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


class ThreeBrokers(Protocol):
    """A cluster of three brokers, each in its own process."""

    name: str
    bootstrap_servers: str

    @property
    def pids(self) -> Sequence[int]: ...

    def up(self) -> None:
        """Start all of it, on empty storage."""
        ...

    def down(self) -> None:
        """End it, and remove its data."""
        ...

    def kill(self, broker_id: int) -> None:
        """kill -9."""
        ...

    def start(self, broker_id: int) -> None:
        """Start a broker again on its data, and return at once."""
        ...


class KafkaTrio:
    """Three nodes of Apache Kafka with the JVM options of its own scripts."""

    name = THEIRS

    def __init__(self, directory: Path) -> None:
        self._cluster = KafkaCluster(directory, heap=DEFAULT, properties=PROPERTIES)
        self.bootstrap_servers = self._cluster.bootstrap_servers
        self.up, self.down = self._cluster.start, self._cluster.stop

    @property
    def pids(self) -> Sequence[int]:
        return [node.pid for node in self._cluster.nodes.values()]

    def kill(self, broker_id: int) -> None:
        self._cluster.nodes[broker_id].kill()

    def start(self, broker_id: int) -> None:
        threading.Thread(target=Kafka.start, args=(self._cluster.nodes[broker_id],)).start()


class BarnabasTrio:
    """Three processes of `barnabas serve` on a real ZooKeeper."""

    def __init__(self, directory: Path, root: Path = ROOT) -> None:
        """`root` is the checkout whose brokers run."""
        self.name = OURS if root == ROOT else BEFORE
        self._directory = directory
        self._cluster = ProcessCluster(
            directory,
            ZooKeeperServer(directory / "zookeeper"),
            {**PROPERTIES, **SESSION},
            root=root,
        )
        self.bootstrap_servers = self._cluster.bootstrap_servers

    @property
    def pids(self) -> Sequence[int]:
        return [broker.pid for broker in self._cluster.brokers.values()]

    def up(self) -> None:
        self._cluster.zookeeper.start()
        self._cluster.launch()

    def down(self) -> None:
        for broker in self._cluster.brokers.values():
            broker.signal(signal.SIGTERM)
        for broker in self._cluster.brokers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                broker.wait_until_ended(_STOP_WITHIN_S)
            broker.kill()
        self._cluster.zookeeper.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def kill(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].kill()

    def terminate(self, broker_id: int) -> None:
        """Send SIGTERM, and wait until the broker has ended."""
        self._cluster.brokers[broker_id].terminate()

    def start(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].launch()


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
    topic = f"stream-{time.time_ns()}"
    asyncio.run(_create(system, topic, PARTITIONS))
    load = ["--bootstrap", system.bootstrap_servers, "--topic", topic, "--size", 1024]
    load += ["--count", megabytes * 1_000_000 // 1024, "--batch-size", batch_bytes]
    with Cost(*system.pids) as cost:
        told = driven("librdkafka.py", "produce", *load, "--partitions", PARTITIONS)
    asyncio.run(_delete(system, topic))
    size = told["count"] * 1024
    rates = {"mb_per_s": size / told["seconds"] / 1e6, "cpu_s_per_gb": cost.cpu / size * 1e9}
    return {stream_name(batch_bytes): rates}


def one_by_one(system: ThreeBrokers) -> Round:
    """Measure one record at a time, acknowledged by all replicas in sync."""
    topic = f"one-{time.time_ns()}"
    _, port = asyncio.run(_create(system, topic, 1))
    with raw.connect(port) as client:
        request = raw.produce_request(topic, records=1, record_bytes=100)
        raw.acknowledged(client, request)
        with Cost(*system.pids) as cost:
            taken = client.latencies(request, ONE_BY_ONE)
    asyncio.run(_delete(system, topic))
    cpu_us = cost.cpu / len(taken) * 1e6
    return {SINGLE: percentiles(taken, "ms") | {"cpu_us_per_request": cpu_us}}


def gap_after_kill(system: ThreeBrokers) -> Round:
    """Measure the time from kill -9 of a leader to the first record that its successor
    acknowledges."""
    topic = f"gap-{time.time_ns()}"
    leader, port = asyncio.run(_create(system, topic, 1))
    request = raw.produce_request(topic, records=1, record_bytes=100)
    with raw.connect(port) as client:
        raw.acknowledged(client, request)
    system.kill(leader)
    with Cost() as cost:
        led = partial(_wait, system, topic, lambda each: each.leader_id not in (-1, leader))
        _, successor = asyncio.run(led())
        with raw.connect(successor) as client:
            raw.acknowledged(client, request)
    system.start(leader)
    asyncio.run(_wait(system, topic, all_in_sync))
    return {KILLED: {"seconds": cost.seconds}}


def ready(system: ThreeBrokers) -> None:
    """Return when all three brokers are there."""
    asyncio.run(_ready(system))


async def _ready(system: ThreeBrokers) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError, TimeoutError):
            async with Cluster(system.bootstrap_servers) as cluster:
                if len((await cluster.refresh(())).brokers) == len(system.pids):
                    return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{system.name} is not ready after {READY_WITHIN_S:g} s")


async def _create(system: ThreeBrokers, topic: str, partitions: int) -> tuple[int, int]:
    """Create a topic, and wait until all replicas are in sync; return the id and port of the
    leader of its partition 0."""
    async with Cluster(system.bootstrap_servers) as cluster:
        await Admin(cluster).create_topic(
            topic, partitions=partitions, replication_factor=3, configs=TOPIC_CONFIGS
        )
        return await _until(cluster, topic, all_in_sync)


async def _delete(system: ThreeBrokers, topic: str) -> None:
    async with Cluster(system.bootstrap_servers) as cluster:
        await Admin(cluster).delete_topic(topic)


async def _wait(system: ThreeBrokers, topic: str, ready: Ready) -> tuple[int, int]:
    async with Cluster(system.bootstrap_servers) as cluster:
        return await _until(cluster, topic, ready)


async def _until(cluster: Cluster, topic: str, ready: Ready) -> tuple[int, int]:
    """Wait until all partitions are ready; return the id and port of partition 0's leader."""
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        rows = (await cluster.refresh([topic])).topics
        partitions = rows[0].partitions if not rows[0].error_code else []
        if partitions and all(map(ready, partitions)):
            leader = next(each.leader_id for each in partitions if not each.partition_index)
            if leader in cluster.nodes:
                return leader, cluster.nodes[leader].port
        await asyncio.sleep(0.01)
    raise TimeoutError(f"{topic} is not ready after {READY_WITHIN_S:g} s")


def all_in_sync(partition: MetadataResponsePartition) -> bool:
    return len(partition.isr_nodes) == len(partition.replica_nodes) == 3
