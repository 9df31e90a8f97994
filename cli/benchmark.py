"""`barnabas benchmark`: what this client gets out of a cluster, with a progress bar."""

import asyncio
import os
import time
from typing import Any

import click

from barnabas.cli.common import Target, cluster_options, progress
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.producer import Delivered, Producer, ProducerSettings
from barnabas.protocol.records.compression import Compression

_CODECS = {codec.name.lower(): codec for codec in Compression}


@click.command()
@click.argument("topic", default="barnabas-benchmark")
@click.option("-n", "--records", default=100_000, show_default=True)
@click.option("-s", "--size", default=1024, show_default=True, help="Bytes of a value.")
@click.option("-B", "--batch-size", default=512 * 1024, show_default=True, help="Bytes of a batch.")
@click.option("-z", "--compression", type=click.Choice(list(_CODECS)), default="none")
@click.option("-a", "--acks", type=click.Choice(["all", "1", "0"]), default="all")
@click.option("--keep", is_flag=True, help="Keep the topic afterwards.")
@cluster_options
def benchmark(
    target: Target,
    topic: str,
    records: int,
    size: int,
    batch_size: int,
    compression: str,
    acks: str,
    keep: bool,
) -> None:
    """Produce records to TOPIC, consume them again, and print rates and latencies.

    TOPIC is created if it is not there, and deleted again if this command created it.
    """
    settings = ProducerSettings(
        acks=-1 if acks == "all" else int(acks),
        compression=_CODECS[compression],
        batch_size=batch_size,
    )

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        admin = Admin(cluster)
        await cluster.refresh()
        created = topic not in cluster.topics
        if created:
            await admin.create_topic(topic, partitions=1)
        try:
            start = (await find_offsets(cluster, {(topic, 0): LATEST}))[topic, 0].offset
            produced = await _produce(cluster, settings, topic, records, os.urandom(size))
            consumed = await _consume(cluster, topic, start, records)
        finally:
            if created and not keep:
                await admin.delete_topic(topic)
        return [produced, consumed]

    columns = ["phase", "records", "seconds", "records/s", "MB/s", "p50 ms", "p99 ms"]
    target.show(columns, target.run(work))


def _row(phase: str, records: int, size: int, seconds: float) -> dict[str, Any]:
    return {
        "phase": phase,
        "records": records,
        "seconds": round(seconds, 3),
        "records/s": round(records / seconds),
        "MB/s": round(size / seconds / 1e6, 1),
    }


async def _produce(
    cluster: Cluster, settings: ProducerSettings, topic: str, count: int, value: bytes
) -> dict[str, Any]:
    latencies: list[float] = []
    with progress("produce", count) as advance:
        began = time.perf_counter()
        async with Producer(cluster, settings) as producer:
            for index in range(count):
                sent = time.perf_counter()
                delivered = await producer.send(topic, value, partition=0)

                def note(_: asyncio.Future[Delivered], sent: float = sent) -> None:
                    latencies.append(time.perf_counter() - sent)

                delivered.add_done_callback(note)
                if index % 500 == 0:
                    # Lets the socket work while the records pile up.
                    await asyncio.sleep(0)
                    advance(index)
        seconds = time.perf_counter() - began
        advance(count)
    latencies.sort()
    return {
        **_row("produce", count, count * len(value), seconds),
        "p50 ms": round(latencies[len(latencies) // 2] * 1000, 2),
        "p99 ms": round(latencies[len(latencies) * 99 // 100] * 1000, 2),
    }


async def _consume(cluster: Cluster, topic: str, start: int, count: int) -> dict[str, Any]:
    consumer = Consumer(
        cluster, FetchSettings(partition_max_bytes=4 * 1024 * 1024, offset_reset=EARLIEST)
    )
    consumer.assign({(topic, 0): start})
    seen = size = 0
    with progress("consume", count) as advance:
        began = time.perf_counter()
        while seen < count:
            messages = await consumer.poll()
            seen += len(messages)
            size += sum(len(message.value or b"") for message in messages)
            advance(seen)
        seconds = time.perf_counter() - began
    return _row("consume", seen, size, seconds)
