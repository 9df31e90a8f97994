"""The producer: it collects records by partition and sends them in batches to the leaders.

An idempotent producer (KIP-98, the default) keeps up to five batches of a partition in flight. Each
batch is written once and in order, no matter how often it is sent.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import unpack_from
from typing import Self

from barnabas.client.cluster import Cluster, TopicInfo, check
from barnabas.client.producing.partition_queue import (
    Delivered,
    EncodedBatch,
    Limits,
    PartitionQueue,
    ProducerIdAndEpoch,
)
from barnabas.client.producing.sender import ProducerSession, Sender
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages import init_producer_id
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import BatchBuilder, Headers

__all__ = ["ALL", "Delivered", "EncodedBatch", "Producer", "ProducerSettings", "encode_batches"]

ALL = -1

_MASK = 0xFFFFFFFF
_MURMUR = 0x5BD1E995


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of a producer; sizes in bytes, times in s. Idempotence needs acks=ALL."""

    acks: int = ALL
    compression: Compression = Compression.NONE
    idempotent: bool = True
    linger: float = 0.0
    batch_size: int = 512 * 1024
    buffer_size: int = 32 * 1024 * 1024
    delivery_timeout: float = 120.0


class Producer:
    """A producer of one cluster; use it as an async context manager, which flushes at the end."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._settings = settings or ProducerSettings()
        self._now = now
        self._next_partition: dict[str, int] = {}
        self._check: Callable[[str, int], None] | None = None
        """A function that raises an error if a partition may not be written now."""
        self._sender = self._make_sender(_IdempotentSession(cluster), transactional=False)

    def _make_sender(self, session: ProducerSession, *, transactional: bool) -> Sender:
        settings = self._settings
        limits = Limits(
            settings.batch_size,
            settings.linger,
            settings.delivery_timeout,
            idempotent=settings.idempotent and settings.acks == ALL,
            transactional=transactional,
        )
        return Sender(
            self._cluster,
            session,
            limits,
            acks=settings.acks,
            compression=settings.compression,
            on_batch=self._rotate,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.flush()
        else:
            await self.abandon()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> "asyncio.Future[Delivered]":
        """Queue a record; the future returns its partition and offset, or raises KafkaError.

        Waits while the buffer is full. `timestamp` is in ms since the epoch.
        """
        info = self._cluster.topics.get(topic) or await self._find(topic)
        if partition is None:
            partition = self._choose(topic, key, len(info.leaders))
        sender = self._sender
        if sender.is_due:
            # The broker works on a batch while the next one is filled, and memory is used again.
            await asyncio.sleep(0)
        while sender.buffered >= self._settings.buffer_size:
            await sender.wait_for_progress()
        if self._check is not None:
            self._check(topic, partition)
        if timestamp is None:
            timestamp = int(self._now() * 1000)
        return sender.append(topic, partition, key, value, timestamp, headers)

    async def send_batch(
        self, topic: str, partition: int, batch: EncodedBatch
    ) -> "asyncio.Future[Delivered]":
        """Queue a whole batch; the future returns the offset of its first record, or raises.

        It is sent as it is, in a separate batch: `compression`, `batch_size` and `linger` do not
        apply. A batch that the broker calls too large is not split. Waits while this batch and the
        unfinished ones do not fit the buffer together. Raises ValueError unless `batch.data` is one
        batch of `batch.count` records.
        """
        _check_whole(batch)
        if topic not in self._cluster.topics:
            await self._find(topic)
        size = len(batch.data)
        if self._sender.is_due:
            await asyncio.sleep(0)
        while self._sender.buffered and self._sender.buffered + size > self._settings.buffer_size:
            await self._sender.wait_for_progress()
        if self._check is not None:
            self._check(topic, partition)
        return self._sender.append_batch(topic, partition, batch)

    async def flush(self) -> None:
        """Wait until every record sent so far is delivered or has failed; raises no error.

        Callbacks that were added to the records' futures have run by then.
        """
        await self._sender.flush()

    async def abandon(self) -> None:
        """Drop every record that is not delivered yet, and cancel its future."""
        await self._sender.abandon()

    async def _find(self, topic: str) -> TopicInfo:
        """Fetch the metadata of an unknown topic; the broker may create the topic."""
        return await self._cluster.retrying(lambda: self._cluster.topic(topic, create=True))

    def _choose(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return partition_for(key, count)
        return self._next_partition.get(topic, 0) % count

    def _rotate(self, queue: PartitionQueue) -> None:
        # Records without a key fill one batch before the next partition is chosen (KIP-480).
        self._next_partition[queue.topic] = queue.partition + 1


class _IdempotentSession:
    """The session outside transactions: a new producer id; each queue raises its own epoch."""

    transactional_id: str | None = None
    adds_partitions_implicitly = False
    error: Exception | None = None

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._identity: ProducerIdAndEpoch | None = None

    def identity(self) -> ProducerIdAndEpoch | None:
        return self._identity

    async def request_identity(self) -> None:
        self._identity = await self._cluster.retrying(self._ask)

    async def _ask(self) -> ProducerIdAndEpoch:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0
        )
        response = await self._cluster.ask(init_producer_id.API, request)
        check(response.error_code)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    def may_send(self, queue: PartitionQueue) -> bool:  # noqa: ARG002
        return True

    def on_failure(self, error: Exception) -> Exception:
        return error


def encode_batches(
    values: Iterable[bytes | None],
    keys: Iterable[bytes | None],
    timestamp: int,
    *,
    batch_size: int,
    headers: Headers = (),
    compression: Compression = Compression.NONE,
) -> Iterator[EncodedBatch]:
    """Yield batches for `Producer.send_batch`, of records with one timestamp and the same headers.

    They have at most `batch_size` bytes before compression, or one larger record. `keys` may be
    endless; the timestamp is in ms.
    """
    batch = BatchBuilder(timestamp)
    for value, key in zip(values, keys, strict=False):
        if not batch.add(key, value, headers=headers, limit=batch_size):
            yield EncodedBatch(batch.build(compression=compression), batch.count)
            batch = BatchBuilder(timestamp)
            batch.add(key, value, headers=headers)
    if batch.count:
        yield EncodedBatch(batch.build(compression=compression), batch.count)


def _check_whole(batch: EncodedBatch) -> None:
    try:
        header = read_header(batch.data)
    except ProtocolError as error:
        raise ValueError(f"the encoded batch is damaged: {error}") from None
    counts = {batch.count, header.record_count, header.last_offset_delta + 1}
    if header.size != len(batch.data) or counts != {max(batch.count, 1)} or header.is_control:
        raise ValueError(
            f"not one batch of {batch.count} records in {len(batch.data)} bytes: the header says"
            f" {header.record_count} records, {header.size} bytes"
        )


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of `data`, with the seed of Kafka's Java client."""
    length = len(data)
    h = 0x9747B28C ^ length
    for k in unpack_from(f"<{length >> 2}I", data):
        k = k * _MURMUR & _MASK
        h = (h * _MURMUR ^ (k ^ k >> 24) * _MURMUR) & _MASK
    if rest := data[length & ~3 :]:
        h = (h ^ int.from_bytes(rest, "little")) * _MURMUR & _MASK
    h = (h ^ h >> 13) * _MURMUR & _MASK
    return h ^ h >> 15


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition that the Java client chooses for `key` in a topic of `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
