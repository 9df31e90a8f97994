"""Three brokers beside three of Apache Kafka: every record on three replicas, acks=all.

What a cluster costs is the kernel's accounting of its three broker processes; ZooKeeper, which
Kafka's nodes replace by their own quorum, is not counted and idles.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.protocol.messages.metadata import MetadataResponsePartition
from benchmarks import raw
from benchmarks.systems import cpu_seconds, resident_bytes, settled

PARTITIONS = 6
ONE_BY_ONE = 2_000
READY_WITHIN_S = 60.0
HERE = Path(__file__).parent
TOPIC_CONFIGS = {"min.insync.replicas": "2"}

Figures = dict[str, float]
Round = dict[str, Figures]
Ready = Callable[[MetadataResponsePartition], bool]


class ThreeBrokers(Protocol):
    """A cluster that runs."""

    name: str
    bootstrap_servers: str

    @property
    def pids(self) -> Sequence[int]: ...

    def kill(self, broker_id: int) -> None:
        """kill -9."""
        ...

    def start(self, broker_id: int) -> None:
        """Again, on its data; returns at once."""
        ...

    def up(self) -> None:
        """Start all of it, on empty storage."""
        ...

    def down(self) -> None:
        """End it, and remove its data."""
        ...


def idle(system: ThreeBrokers) -> Round:
    """Memory of each broker at rest."""
    for pid in system.pids:
        settled(pid)
    resident = sum(map(resident_bytes, system.pids)) / len(system.pids)
    return {"three brokers at rest": {"resident_mb": resident / 1e6}}


def stream(system: ThreeBrokers, record_bytes: int, batch_bytes: int, megabytes: int) -> Round:
    """One librdkafka producer, six partitions."""
    topic = f"stream-{time.time_ns()}"
    asyncio.run(_create(system, topic, PARTITIONS))
    records = megabytes * 1_000_000 // record_bytes
    before = _cpu(system)
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, str(HERE / "librdkafka.py"), "produce"]
        command += ["--bootstrap", system.bootstrap_servers, "--topic", topic]
        command += ["--records", str(records), "--size", str(record_bytes)]
        command += ["--batch-size", str(batch_bytes), "--partitions", str(PARTITIONS)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, check=True)
    told = json.loads(done.stdout)
    cpu = _cpu(system) - before
    asyncio.run(_delete(system, topic))
    name = f"three replicas: {record_bytes} B in {batch_bytes // 1024} KB"
    return {
        name: {
            "mb_per_s": told["bytes"] / told["seconds"] / 1e6,
            "cpu_s_per_gb": cpu / told["bytes"] * 1e9,
        }
    }


def one_by_one(system: ThreeBrokers) -> Round:
    """Latencies of one record at a time, acknowledged by all replicas in sync."""
    topic = f"one-{time.time_ns()}"
    leader = asyncio.run(_create(system, topic, 1))
    with raw.connect(leader[1]) as client:
        request = raw.produce_request(topic, records=1, record_bytes=100)
        raw.acknowledged(client, request)
        before = _cpu(system)
        taken = client.latencies(request, ONE_BY_ONE)
        cpu = _cpu(system) - before
    asyncio.run(_delete(system, topic))
    return {
        "three replicas: one record at a time": {
            "p50_ms": taken[len(taken) // 2] * 1e3,
            "p99_ms": taken[len(taken) * 99 // 100] * 1e3,
            "cpu_us_per_request": cpu / len(taken) * 1e6,
        }
    }


def gap_after_kill(system: ThreeBrokers) -> Round:
    """Seconds from kill -9 of a leader to the first record that its successor acknowledges."""
    topic = f"gap-{time.time_ns()}"
    leader, port = asyncio.run(_create(system, topic, 1))
    request = raw.produce_request(topic, records=1, record_bytes=100)
    with raw.connect(port) as client:
        raw.acknowledged(client, request)
    system.kill(leader)
    began = time.perf_counter()
    other = partial(_wait, system, topic, lambda each: each.leader_id not in (-1, leader))
    _, successor = asyncio.run(other())
    with raw.connect(successor) as client:
        raw.acknowledged(client, request)
    seconds = time.perf_counter() - began
    system.start(leader)
    asyncio.run(_wait(system, topic, _all_in_sync))
    return {"kill -9 of a leader": {"seconds": seconds}}


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


def loads(megabytes: int) -> list[Callable[[ThreeBrokers], Round]]:
    """Return the loads of one round."""
    return [
        one_by_one,
        partial(stream, record_bytes=1024, batch_bytes=16 * 1024, megabytes=megabytes),
        partial(stream, record_bytes=1024, batch_bytes=1024 * 1024, megabytes=megabytes),
        gap_after_kill,
    ]


def _cpu(system: ThreeBrokers) -> float:
    return sum(map(cpu_seconds, system.pids))


async def _create(system: ThreeBrokers, topic: str, partitions: int) -> tuple[int, int]:
    """Return the topic, all replicas in sync; the id and port of the leader of its partition 0."""
    async with Cluster(system.bootstrap_servers) as cluster:
        await Admin(cluster).create_topic(
            topic, partitions=partitions, replication_factor=3, configs=TOPIC_CONFIGS
        )
        return await _until(cluster, topic, _all_in_sync)


async def _delete(system: ThreeBrokers, topic: str) -> None:
    async with Cluster(system.bootstrap_servers) as cluster:
        await Admin(cluster).delete_topic(topic)


async def _wait(system: ThreeBrokers, topic: str, ready: Ready) -> tuple[int, int]:
    async with Cluster(system.bootstrap_servers) as cluster:
        return await _until(cluster, topic, ready)


async def _until(cluster: Cluster, topic: str, ready: Ready) -> tuple[int, int]:
    """Wait until a topic is as `ready` wants it; the id and port of partition 0's leader."""
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


def _all_in_sync(partition: MetadataResponsePartition) -> bool:
    return len(partition.isr_nodes) == len(partition.replica_nodes) == 3
