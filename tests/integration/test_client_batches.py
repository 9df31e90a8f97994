"""Whole batches through our client, out and in: the same tests on Barnabas and on Apache Kafka."""

import asyncio
import random
from typing import Any

import pytest

from barnabas.client.admin import Admin
from barnabas.client.batches import FetchSettings, fetch_batches
from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.client.producer import Delivered, EncodedBatch, Producer, ProducerSettings
from barnabas.client.transactional_producer import AbortableError, TransactionalProducer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import produce
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.schema import Api
from barnabas.protocol.topic_partition import TopicPartition
from tests.integration.reading import values

FETCH = FetchSettings(max_wait=0.1, partition_max_bytes=1000)


def encoded(*sent: bytes, **options: Any) -> EncodedBatch:
    records = [Record(n, 1000 + n, None, value, ()) for n, value in enumerate(sent)]
    return EncodedBatch(bytearray(build_batch(records, **options)), len(records))


def numbered(first: int, count: int = 1) -> EncodedBatch:
    return encoded(*(b"%03d" % n for n in range(first, first + count)))


async def fetched(cluster: Cluster, topic: str, **settings: Any) -> list[tuple[int, bytes | None]]:
    """Return offset and value of each visible record of partition 0."""
    partition, at, found = TopicPartition(topic, 0), 0, []
    wanted = FETCH._replace(**settings)
    while True:
        batches = await fetch_batches(cluster, partition, at, wanted)
        for pos, header in batches.visible:
            rows = iter_records(batches.data, pos, header)
            found += [(row.offset, row.value) for row in rows if row.offset >= at]
        at = batches.next_offset
        if at >= batches.last_stable_offset:
            return found


@pytest.mark.parametrize("codec", list(Compression))
async def test_whole_batches_of_each_codec_are_read_back(
    cluster: Cluster, codec: Compression
) -> None:
    topic = f"whole-{codec.name}"
    await Admin(cluster).create_topic(topic, partitions=1)
    sent = [b"%d" % n * 200 for n in range(9)]
    async with Producer(cluster) as producer:
        first = await producer.send_batch(topic, 0, encoded(*sent[:4], compression=codec))
        alone = await producer.send(topic, sent[4], partition=0)
        second = await producer.send_batch(topic, 0, encoded(*sent[5:], compression=codec))
    assert [each.result() for each in (first, alone, second)] == [
        Delivered(topic, 0, offset) for offset in (0, 4, 5)
    ]
    assert await fetched(cluster, topic) == list(enumerate(sent))


async def test_whole_batches_are_part_of_a_transaction(cluster: Cluster, topic: str) -> None:
    async with TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send_batch(topic, 0, encoded(b"a", b"b"))
        await producer.begin_transaction()
        await (await producer.send_batch(topic, 0, encoded(b"never")))
        dropped = await producer.send_batch(topic, 0, encoded(b"never", b"sent"))
        await producer.abort_transaction()
        with pytest.raises(AbortableError):
            dropped.result()
        async with producer.transaction():
            await producer.send_batch(topic, 0, encoded(b"c"))
    assert await fetched(cluster, topic) == [(0, b"a"), (1, b"b"), (5, b"c")]
    uncommitted = await fetched(cluster, topic, read_committed=False)
    assert uncommitted == [(0, b"a"), (1, b"b"), (3, b"never"), (5, b"c")]


@pytest.mark.parametrize("transactional", [False, True])
async def test_whole_batches_are_written_once_although_responses_are_lost(
    cluster: Cluster, servers: str, transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, chance, lost = f"lossy-batches-{transactional}", random.Random(3), 0
    await Admin(cluster).create_topic(topic, partitions=1)
    whole = Connection.request

    async def request(self: Connection, api: Api, *arguments: Any, **options: Any) -> Any:
        nonlocal lost
        answer = await whole(self, api, *arguments, **options)
        if api is produce.API and chance.random() < 0.3:
            lost += 1
            raise BrokerUnreachable("the answer is lost")
        return answer

    monkeypatch.setattr("barnabas.protocol.backoff.FIRST", 0.01)
    async with Cluster(servers) as own:
        kind = TransactionalProducer(own, topic) if transactional else Producer(own)
        async with kind as producer:
            if isinstance(producer, TransactionalProducer):
                await producer.init_transactions()
                await producer.begin_transaction()
            monkeypatch.setattr(Connection, "request", request)
            for n in range(0, 60, 3):
                await producer.send_batch(topic, 0, numbered(n, 3))
            await producer.flush()
            monkeypatch.undo()
            if isinstance(producer, TransactionalProducer):
                await producer.commit_transaction()
    assert lost
    assert await fetched(cluster, topic) == [(n, b"%03d" % n) for n in range(60)]


async def test_refused_batch_is_not_split_and_leaves_the_bytes_of_sent_requests_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later batches get another sequence, while a request may still wait to be written."""
    topic = "refused"
    await Admin(cluster).create_topic(topic, partitions=1, configs={"max.message.bytes": "500"})
    whole, requests = Connection.request, []

    async def request(self: Connection, api: Api, *arguments: Any, **options: Any) -> Any:
        if api is produce.API:
            records = arguments[0].topic_data[0].partition_data[0].records
            requests.append((records, bytes(records)))
        return await whole(self, api, *arguments, **options)

    monkeypatch.setattr(Connection, "request", request)
    async with Producer(cluster) as producer:
        await (await producer.send_batch(topic, 0, numbered(0)))
        large = await producer.send_batch(topic, 0, encoded(*([bytes(100)] * 8)))
        rest = [await producer.send_batch(topic, 0, numbered(n)) for n in (1, 2, 3)]
    with pytest.raises(
        KafkaError, match=r"9\d\d bytes is too large for refused-0: encode"
    ) as caught:
        large.result()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert [each.result().offset for each in rest] == [1, 2, 3]
    assert len(requests) > 5, "no batch was sent again"
    assert all(bytes(view) == before for view, before in requests)


async def test_unfinished_whole_batches_do_not_exceed_the_buffer(
    cluster: Cluster, topic: str
) -> None:
    size, sent, most = len(encoded(bytes(1000)).data), [], 0
    async with Producer(cluster, ProducerSettings(buffer_size=3 * size + 1)) as producer:
        for n in range(40):
            sent.append(await producer.send_batch(topic, n % 2, encoded(bytes(1000))))
            most = max(most, sum(not each.done() for each in sent))
            await asyncio.sleep(0)
        large = await producer.send_batch(topic, 0, encoded(bytes(5000)))
    assert large.result().offset == 20, "a batch larger than the buffer is sent alone"
    assert most == 3
    assert len(await values(cluster, topic, 41)) == 41


@pytest.mark.parametrize("whole", [True, False])
async def test_full_batch_is_sent_while_others_are_filled(
    cluster: Cluster, topic: str, whole: bool
) -> None:
    """Nothing was sent before the buffer was full, or the program awaited something else."""
    async with Producer(cluster, ProducerSettings(batch_size=1000)) as producer:

        async def send() -> "asyncio.Future[Delivered]":
            if whole:
                return await producer.send_batch(topic, 0, numbered(0))
            return await producer.send(topic, bytes(100), partition=0)

        first = await send()
        for _ in range(100_000):
            if first.done():
                break
            await send()
        assert producer._sender.buffered < 32 * 1024 * 1024
        assert first.done()


async def test_bytes_that_are_not_one_batch_are_refused_before_they_are_sent(
    cluster: Cluster, topic: str
) -> None:
    good = numbered(0, 2)
    control = encoded(b"x", control=True)
    async with Producer(cluster) as producer:
        for data, count, reason in (
            (good.data[:50], 2, "damaged"),
            (good.data[:-1], 2, "damaged"),
            (good.data + b"x", 2, "not one batch"),
            (good.data, 3, "not one batch of 3 records in .* says 2 records"),
            (good.data, 0, "not one batch"),
            (control.data, 1, "not one batch"),
        ):
            with pytest.raises(ValueError, match=reason):
                await producer.send_batch(topic, 0, EncodedBatch(bytearray(data), count))
