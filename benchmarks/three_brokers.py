"""Three brokers beside three of Apache Kafka: every record on three replicas, acks=all.

What a cluster costs is the kernel's accounting of its three broker processes; ZooKeeper, which
Kafka's nodes replace by their own quorum, is not counted and idles.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.protocol.messages.metadata import MetadataResponsePartition
from benchmarks import raw
from benchmarks.measures import Cost, Round, percentiles
from benchmarks.systems import WITHIN_S, Trio, administer, create_topics
from benchmarks.whole_clients import at_full_speed

PARTITIONS, RECORD_BYTES = 6, 1024
ONE_BY_ONE = 2_000
AT_REST, SINGLE, KILLED = (
    "three brokers at rest",
    "three replicas: one record at a time",
    "kill -9 of a leader",
)


def loads(megabytes: int) -> list[Callable[[Trio], Round]]:
    """Return the loads of one round."""
    return [
        one_by_one,
        partial(stream, batch_bytes=16 * 1024, megabytes=megabytes),
        partial(stream, batch_bytes=1024 * 1024, megabytes=megabytes),
        gap_after_kill,
    ]


def stream(system: Trio, batch_bytes: int, megabytes: int) -> Round:
    """Measure one librdkafka producer, six partitions."""
    name = f"three replicas: {RECORD_BYTES} B in {batch_bytes // 1024} KB"
    load = {"count": megabytes * 1_000_000 // RECORD_BYTES, "size": RECORD_BYTES}
    with _topic(system, PARTITIONS) as (topic, _, _):
        load |= {"batch_size": batch_bytes, "partitions": PARTITIONS}
        return {name: at_full_speed(system, "produce", topic=topic, **load)}


def one_by_one(system: Trio) -> Round:
    """Measure one record at a time, acknowledged by all replicas in sync."""
    with _topic(system) as (topic, _, port), raw.connect(port) as client:
        request = raw.produce_request(topic, records=1, record_bytes=100)
        raw.accepted(client, request)
        with Cost(*system.pids) as cost:
            taken = client.latencies(request, ONE_BY_ONE)
    cpu_us = cost.cpu / len(taken) * 1e6
    return {SINGLE: percentiles(taken, "ms") | {"cpu_us_per_request": cpu_us}}


def gap_after_kill(system: Trio) -> Round:
    """Measure the time from kill -9 of a leader to the first record that its successor
    acknowledges."""
    with _topic(system) as (topic, leader, port):
        request = raw.produce_request(topic, records=1, record_bytes=100)
        with raw.connect(port) as client:
            raw.accepted(client, request)
        system.nodes[leader].kill()
        with Cost() as cost:
            _, other = until(system, topic, lambda each: each.leader_id not in (-1, leader))
            with raw.connect(other) as client:
                raw.accepted(client, request)
        system.start(leader)
        until(system, topic, all_in_sync)
    return {KILLED: {"seconds": cost.seconds}}


@contextmanager
def _topic(system: Trio, partitions: int = 1) -> Iterator[tuple[str, int, int]]:
    """Have a topic, all replicas in sync, during a block; yield its name, and the id and port of
    the leader of its partition 0."""
    topic = f"topic-{time.time_ns()}"
    create_topics(system.servers, {topic: partitions}, {"min.insync.replicas": "2"})
    yield (topic, *until(system, topic, all_in_sync))
    administer(system.servers, lambda cluster: Admin(cluster).delete_topic(topic))


def until(
    system: Trio, topic: str, done: Callable[[MetadataResponsePartition], bool]
) -> tuple[int, int]:
    """Wait until all partitions of a topic are as they should be; return the id and port of the
    leader of partition 0."""

    async def found(cluster: Cluster) -> tuple[int, int]:
        async with asyncio.timeout(WITHIN_S):
            while True:
                rows = (await cluster.refresh([topic])).topics[0].partitions
                leaders = {row.partition_index: row.leader_id for row in rows if done(row)}
                if len(leaders) == len(rows) > 0 and leaders[0] in cluster.nodes:
                    return leaders[0], cluster.nodes[leaders[0]].port
                await asyncio.sleep(0.01)

    return administer(system.servers, found)


def all_in_sync(partition: MetadataResponsePartition) -> bool:
    return len(partition.isr_nodes) == len(partition.replica_nodes) == 3
