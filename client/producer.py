"""Producing: records gather by partition, each partition has one request under way.

While a request flies, the next batch grows; with one in flight, order needs no more than that, and
idempotence (KIP-98) makes a retry of the same batch harmless.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.client.partitioner import partition_for
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import init_producer_id, produce
from barnabas.protocol.records.batch import MAX_SEQUENCE
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Headers, Record, build_batch

ALL = -1

_RECORD_OVERHEAD = 32


class Delivered(NamedTuple):
    """Where a record went; `offset` is -1 with acks=0."""

    topic: str
    partition: int
    offset: int


class _Waiting(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    size: int
    delivered: "asyncio.Future[Delivered]"


@dataclass(slots=True)
class _Lane:
    """One partition's records on their way."""

    topic: str
    partition: int
    waiting: deque[_Waiting] = field(default_factory=deque)
    sequence: int = 0
    task: "asyncio.Task[None] | None" = None


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How to produce; sizes in bytes, times in s."""

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
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._buffered = 0
        self._room = asyncio.Event()
        self._room.set()
        self._round_robin: dict[str, int] = {}
        self._producer: asyncio.Future[tuple[int, int]] | None = None

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await (self.flush() if kind is None else self.abandon())

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
        if partition is None:
            partition = await self._choose(topic, key)
        await self._room.wait()
        lane = self._lanes.setdefault((topic, partition), _Lane(topic, partition))
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(data or b"") + 2 for name, data in headers)
        stamp = int(self._now() * 1000) if timestamp is None else timestamp
        delivered = asyncio.get_running_loop().create_future()
        lane.waiting.append(_Waiting(stamp, key, value, headers, size, delivered))
        self._buffered += size
        if self._buffered >= self._settings.buffer_size:
            self._room.clear()
        if lane.task is None:
            lane.task = asyncio.create_task(self._drain(lane))
        return delivered

    async def flush(self) -> None:
        """Waits until everything sent so far is delivered or has failed."""
        while tasks := [lane.task for lane in self._lanes.values() if lane.task is not None]:
            await asyncio.gather(*tasks)

    async def abandon(self) -> None:
        """Drops what is not delivered yet; its futures are cancelled."""
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()
            for record in lane.waiting:
                record.delivered.cancel()
            lane.waiting.clear()

    async def _choose(self, topic: str, key: bytes | None) -> int:
        info = await self._cluster.retrying(lambda: self._cluster.topic(topic, create=True))
        count = len(info.leaders)
        if key is not None:
            return partition_for(key, count)
        # Keyless records fill one batch before the next partition has its turn (KIP-480).
        current = self._round_robin.get(topic, 0)
        lane = self._lanes.get((topic, current))
        if lane is not None and len(lane.waiting) * _RECORD_OVERHEAD >= self._settings.batch_size:
            current = (current + 1) % count
        self._round_robin[topic] = current
        return current

    async def _drain(self, lane: _Lane) -> None:
        try:
            if self._settings.linger:
                await asyncio.sleep(self._settings.linger)
            while lane.waiting:
                batch = self._take(lane)
                try:
                    base = await self._deliver(lane, batch)
                except (KafkaError, OSError, TimeoutError) as error:
                    self._settle(batch, error)
                else:
                    for index, record in enumerate(batch):
                        if not record.delivered.done():
                            offset = base + index if base >= 0 else -1
                            record.delivered.set_result(
                                Delivered(lane.topic, lane.partition, offset)
                            )
        finally:
            lane.task = None

    def _take(self, lane: _Lane) -> list[_Waiting]:
        batch = [lane.waiting.popleft()]
        size = batch[0].size
        while lane.waiting and size + lane.waiting[0].size <= self._settings.batch_size:
            record = lane.waiting.popleft()
            size += record.size
            batch.append(record)
        self._buffered -= size
        if self._buffered < self._settings.buffer_size:
            self._room.set()
        return batch

    def _settle(self, batch: list[_Waiting], error: Exception) -> None:
        # Whether the batch was written is unknown: a new producer id keeps later ones acceptable.
        self._producer = None
        for lane in self._lanes.values():
            lane.sequence = 0
        for record in batch:
            if not record.delivered.done():
                record.delivered.set_exception(error)
                # A caller that only flushes still learns of it; one that drops the future may.
                record.delivered.exception()

    async def _deliver(self, lane: _Lane, batch: list[_Waiting]) -> int:
        settings = self._settings
        idempotent = settings.idempotent and settings.acks == ALL
        producer_id, epoch = await self._producer_id() if idempotent else (-1, -1)
        data = build_batch(
            [Record(i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(batch)],
            compression=settings.compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=lane.sequence if idempotent else -1,
        )
        base = await self._cluster.retrying(
            lambda: self._produce(lane, data), timeout=settings.delivery_timeout
        )
        lane.sequence = (lane.sequence + len(batch)) & MAX_SEQUENCE
        return base

    async def _produce(self, lane: _Lane, data: bytes) -> int:
        leader = await self._cluster.leader(lane.topic, lane.partition)
        connection = await self._cluster.connection_to(leader)
        topic = self._cluster.topics[lane.topic]
        by_id = connection.version_for(produce.API) >= 13
        request = produce.ProduceRequest(
            acks=self._settings.acks,
            timeout_ms=int(self._cluster.timeout * 1000),
            topic_data=[
                produce.TopicProduceData(
                    **{"topic_id": topic.topic_id} if by_id else {"name": lane.topic},
                    partition_data=[
                        produce.PartitionProduceData(index=lane.partition, records=data)
                    ],
                )
            ],
        )
        if self._settings.acks == 0:
            await connection.send_only(produce.API, request)
            return -1
        response = await connection.request(
            produce.API, request, timeout=self._cluster.timeout + 5.0
        )
        row = response.responses[0].partition_responses[0]
        if row.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            check(row.error_code, row.error_message or f"{lane.topic}-{lane.partition}")
        return int(row.base_offset)

    async def _producer_id(self) -> tuple[int, int]:
        if self._producer is None:
            # Lanes that ask meanwhile share the one request.
            self._producer = asyncio.get_running_loop().create_future()
            try:
                self._producer.set_result(await self._cluster.retrying(self._init_producer_id))
            except (KafkaError, OSError, TimeoutError) as error:
                failed, self._producer = self._producer, None
                failed.set_exception(error)
                return await failed
        return await self._producer

    async def _init_producer_id(self) -> tuple[int, int]:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0
        )
        response = await self._cluster.ask(init_producer_id.API, request)
        check(response.error_code)
        return response.producer_id, response.producer_epoch
