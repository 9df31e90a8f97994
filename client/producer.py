"""Producing: records gather by partition and leave in batches, each to its partition's leader.

An idempotent producer (KIP-98, the default) keeps up to five batches of a partition under way; none
is written twice or overtakes another, however often it is sent.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.client.cluster import Cluster, TopicInfo, check
from barnabas.client.lane import Delivered, Identity, Lane, Limits, Waiting
from barnabas.client.partitioner import partition_for
from barnabas.client.sender import Author, Sender
from barnabas.protocol.messages import init_producer_id
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Headers

__all__ = ["ALL", "Delivered", "Producer", "ProducerSettings"]

ALL = -1

_RECORD_OVERHEAD = 32


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How to produce; sizes in bytes, times in s. Only with acks=ALL can it be idempotent."""

    acks: int = ALL
    compression: Compression = Compression.NONE
    idempotent: bool = True
    linger: float = 0.0
    batch_size: int = 512 * 1024
    buffer_size: int = 32 * 1024 * 1024
    delivery_timeout: float = 120.0


class Producer:
    """Sends records to a cluster; use as an async context manager, which flushes at the end."""

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
        self._turns: dict[str, int] = {}
        self._sender = self._make_sender(_Idempotent(cluster), transactional=False)

    def _make_sender(self, author: Author, *, transactional: bool) -> Sender:
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
            author,
            limits,
            acks=settings.acks,
            compression=settings.compression,
            cut=self._next_turn,
        )

    async def __aenter__(self) -> "Producer":
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
        """Queues a record; the future tells where it went, or raises KafkaError.

        Waits while the buffer is full. `timestamp` is in ms since the epoch.
        """
        info = self._cluster.topics.get(topic) or await self._find(topic)
        if partition is None:
            partition = self._choose(topic, key, len(info.leaders))
        while self._sender.buffered >= self._settings.buffer_size:
            await self._sender.moved()
        self._check(topic, partition)
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        if headers:
            size += sum(len(name) + len(data or b"") + 2 for name, data in headers)
        stamp = int(self._now() * 1000) if timestamp is None else timestamp
        loop = asyncio.get_running_loop()
        delivered = loop.create_future()
        record = Waiting(stamp, key, value, headers, size, loop.time(), delivered)
        self._sender.append(topic, partition, record)
        return delivered

    async def flush(self) -> None:
        """Waits until everything sent so far is delivered or has failed, as its futures tell."""
        await self._sender.flush()

    async def abandon(self) -> None:
        """Drops what is not delivered yet; its futures are cancelled."""
        await self._sender.abandon()

    def _check(self, topic: str, partition: int) -> None:
        """Raises what forbids to send to this partition now."""

    async def _find(self, topic: str) -> TopicInfo:
        """Asks for a topic that is not known, which may create it."""
        return await self._cluster.retrying(lambda: self._cluster.topic(topic, create=True))

    def _choose(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return partition_for(key, count)
        return self._turns.get(topic, 0) % count

    def _next_turn(self, lane: Lane) -> None:
        # Keyless records fill one batch before the next partition has its turn (KIP-480).
        self._turns[lane.topic] = lane.partition + 1


class _Idempotent:
    """A producer outside transactions: a fresh producer id, whose epochs each lane counts."""

    transactional_id: str | None = None
    adds_by_writing = False
    error: Exception | None = None

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._identity: Identity | None = None

    def identity(self) -> Identity | None:
        return self._identity

    async def obtain(self) -> None:
        self._identity = await self._cluster.retrying(self._ask)

    async def _ask(self) -> Identity:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0
        )
        response = await self._cluster.ask(init_producer_id.API, request)
        check(response.error_code)
        return Identity(response.producer_id, response.producer_epoch)

    def admits(self, lane: Lane) -> bool:  # noqa: ARG002
        return True

    def failed(self, error: Exception) -> Exception:
        return error
