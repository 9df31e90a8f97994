"""Batches from and to Arrow columns, with librdkafka at the other end of Barnabas and of Kafka."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.client import producer as ours
from barnabas.client.batches import FetchSettings, fetch_batches
from barnabas.client.cluster import Cluster
from barnabas.pipeline.columns.decode import decode
from barnabas.pipeline.columns.encode import encode
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.topic_partition import TopicPartition as Partition

NOW_MS = 1_700_000_000_000
PATIENCE = 20.0
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = tuple[bytes | None, bytes | None, int, Sequence[tuple[str, bytes | None]] | None]

ROWS: list[Row] = [
    (b"key", b"value", NOW_MS, None),
    (None, b"without a key", NOW_MS + 70_000, [("trace", b"1"), ("trace", None), ("", b"")]),
    (b"", None, NOW_MS - 5, [("name", "wörter".encode())]),
    (b"k" * 300, bytes(20_000), NOW_MS, None),
] * 25


@pytest.mark.parametrize("codec", list(Compression))
async def test_librdkafka_reads_the_rows_that_we_encode(
    servers: str, cluster: Cluster, topic: str, codec: Compression
) -> None:
    headers = [
        None if each is None else [{"key": key, "value": value} for key, value in each]
        for *_, each in ROWS
    ]
    batches = encode(
        pa.array([row[0] for row in ROWS], pa.binary()),
        pa.array([row[1] for row in ROWS], pa.binary()),
        pa.array(headers, HEADERS),
        pa.array([row[2] for row in ROWS], pa.int64()),
        compression=codec,
        max_batch_bytes=100_000,
    )
    async with ours.Producer(cluster) as producer:
        sent = [await producer.send_batch(topic, 0, each) for each in batches]
    assert len({(await each).offset for each in sent}) == len(sent) > 5
    assert await asyncio.to_thread(consume, servers, topic) == ROWS


@pytest.mark.parametrize("codec", list(Compression))
async def test_rows_that_librdkafka_wrote_are_decoded(
    servers: str, cluster: Cluster, topic: str, codec: Compression
) -> None:
    await asyncio.to_thread(produce, servers, topic, codec)
    partition, position, chunks = Partition(topic, 0), 0, []
    settings = FetchSettings(partition_max_bytes=50_000)
    while position < len(ROWS):
        chunks.append(await fetch_batches(cluster, partition, position, settings))
        position = chunks[-1].next_offset
    rows = decode(chunks, topic, 0, 0, len(ROWS), headers=True, report=pytest.fail)
    found = pa.Table.from_batches(rows).to_pydict()
    assert found["offset"] == list(range(len(ROWS)))
    assert set(found["topic"]) == {topic}
    stamps = [round(stamp.timestamp() * 1000) for stamp in found["timestamp"]]
    headers = [each and [(h["key"], h["value"]) for h in each] for each in found["headers"]]
    assert list(zip(found["key"], found["value"], stamps, headers, strict=True)) == ROWS


def produce(servers: str, topic: str, codec: Compression) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "compression.type": codec.name.lower(), "linger.ms": 20}
    )
    for key, value, timestamp, headers in ROWS:
        given: Any = {} if headers is None else {"headers": list(headers)}
        producer.produce(topic, value, key, partition=0, timestamp=timestamp, **given)
    assert producer.flush(PATIENCE) == 0


def consume(servers: str, topic: str) -> list[Row]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[Row] = []
    while len(rows) < len(ROWS):
        found = consumer.consume(len(ROWS), PATIENCE)
        assert found
        rows += [(m.key(), m.value(), m.timestamp()[1], m.headers()) for m in found]
    consumer.close()
    return rows
