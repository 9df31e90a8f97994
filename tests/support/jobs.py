"""Jobs of the pipeline run by the command line, and the records of their topics."""

import asyncio
import os
import subprocess
import sys

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings, Message
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.producer import Producer
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.command_line import ROOT, environment

PARTITIONS = 2
_PATH = os.pathsep.join((str(ROOT / "tests/support/without_pandas"), str(ROOT)))


def command(servers: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas", "pipeline", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(BARNABAS_BOOTSTRAP_SERVER=servers, PYTHONPATH=_PATH),
    )


def finished(servers: str, *arguments: str) -> tuple[int, str, str]:
    process = command(servers, *arguments)
    out, errors = process.communicate(timeout=300)
    return process.returncode, out, errors


def create(servers: str, *topics: str, **configs: str) -> None:
    """Create topics; `configs` have underscores for dots."""
    keys = {key.replace("_", "."): value for key, value in configs.items()}

    async def work() -> None:
        async with Cluster(servers) as cluster:
            for topic in topics:
                await Admin(cluster).create_topic(topic, partitions=PARTITIONS, configs=keys)

    asyncio.run(work())


def produce(servers: str, topic: str, values: list[bytes], timestamp: int | None = None) -> None:
    async def work() -> None:
        async with Cluster(servers) as cluster, Producer(cluster) as producer:
            for number, value in enumerate(values):
                await producer.send(
                    topic, value, key=b"k%d" % number, headers=(("h", b"1"),), timestamp=timestamp
                )

    asyncio.run(work())


def produce_keyed(servers: str, topic: str, values: dict[str, bytes | None]) -> None:
    async def work() -> None:
        async with Cluster(servers) as cluster, Producer(cluster) as producer:
            for key, value in values.items():
                await producer.send(topic, value, key=key.encode())

    asyncio.run(work())


def consume(servers: str, topic: str) -> list[Message]:
    """Return the committed records of a topic."""

    async def work() -> list[Message]:
        async with Cluster(servers) as cluster:
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            ends = await find_offsets(
                cluster, dict.fromkeys(partitions, LATEST), read_committed=True
            )
            consumer = Consumer(cluster, FetchSettings(offset_reset=EARLIEST))
            consumer.assign({each: 0 for each in partitions if ends[each].offset > 0})
            found: list[Message] = []
            while not all(
                consumer.positions[each] >= ends[each].offset for each in consumer.positions
            ):
                found += await consumer.poll()
            return found

    return asyncio.run(work())
