"""CPU time of our client for batches and for records: `python -m benchmarks.client_batches`.

Prints milliseconds of the client's CPU time per MiB, the minimum of several rounds, on one broker
in a process of its own.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import process_time

from barnabas.client.admin import Admin
from barnabas.client.batches import FetchSettings, fetch_batches
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import EncodedBatch, Producer
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.topic_partition import TopicPartition
from benchmarks import raw
from benchmarks.systems import Barnabas, Running

MIB = 1 << 20
BATCHES = 64
BATCH_BYTES = 900_000
RECORD_BYTES = 1000
ROUNDS = 5
FETCH = FetchSettings(partition_max_bytes=4 * MIB)

Load = Callable[[Cluster, TopicPartition], Awaitable[int]]

VALUES = [os.urandom(RECORD_BYTES) for _ in range(BATCH_BYTES // RECORD_BYTES)]
BATCH = build_batch([Record(n, 1, None, value) for n, value in enumerate(VALUES)])


async def send_batches(cluster: Cluster, place: TopicPartition) -> int:
    """Send whole batches; return their bytes."""
    async with Producer(cluster) as producer:
        for _ in range(BATCHES):
            await producer.send_batch(*place, EncodedBatch(bytearray(BATCH), len(VALUES)))
    return BATCHES * len(BATCH)


async def send_records(cluster: Cluster, place: TopicPartition) -> int:
    """Send the same records one by one; return their bytes."""
    topic, partition = place
    async with Producer(cluster) as producer:
        for _ in range(BATCHES // 8):
            for value in VALUES:
                await producer.send(topic, value, partition=partition)
    return BATCHES // 8 * len(BATCH)


async def read_batches(cluster: Cluster, place: TopicPartition) -> int:
    """Fetch the partition as whole batches; return their bytes."""
    at = total = 0
    while True:
        found = await fetch_batches(cluster, place, at, FETCH)
        total, at = total + len(found.data), found.next_offset
        if at >= found.high_watermark:
            return total


async def read_records(cluster: Cluster, place: TopicPartition) -> int:
    """Read the partition record by record; return their bytes."""
    consumer = Consumer(cluster, FETCH)
    consumer.assign({place: EARLIEST})
    total = 0
    while not total or not consumer.at_end(place):
        total += sum(len(each.value or b"") for each in await consumer.poll())
    return total


async def measure(cluster: Cluster, load: Load, place: TopicPartition) -> float:
    """Return the milliseconds of CPU time per MiB."""
    before = process_time()
    size = await load(cluster, place)
    return (process_time() - before) * 1e3 / (size / MIB)


async def run(servers: str) -> None:
    """Measure each load in turn, and print the best of its rounds."""
    best: dict[str, float] = {}
    async with Cluster(servers) as cluster:
        for number in range(ROUNDS):
            topic = f"batches-{number}"
            await Admin(cluster).create_topic(topic, partitions=2)
            for load in (send_batches, send_records, read_batches, read_records):
                place = TopicPartition(topic, int(load in (send_records, read_records)))
                cost = await measure(cluster, load, place)
                best[load.__name__] = min(cost, best.get(load.__name__, cost))
    for name, cost in best.items():
        print(f"{name.replace('_', ' '):14} {cost:7.2f} ms/MiB")


def main() -> None:
    """Start a broker and measure."""
    with tempfile.TemporaryDirectory() as directory, Running(Barnabas(Path(directory))) as broker:
        port = broker.system.port
        raw.connect(port).close()
        asyncio.run(run(f"127.0.0.1:{port}"))


if __name__ == "__main__":
    main()
