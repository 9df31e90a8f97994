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
    batch_size: int
    waiting: deque[_Waiting] = field(default_factory=deque)
    producer: tuple[int, int] = (-1, -1)
    sequence: int = 0
    task: "asyncio.Task[None] | None" = None


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
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._buffered = 0
        self._room = asyncio.Event()
        self._room.set()
        self._turns: dict[str, int] = {}
        self._producer: tuple[int, int] | None = None
        self._asking = asyncio.Lock()

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
        count = await self._count_partitions(topic)
        if partition is None:
            partition = self._choose(topic, key, count)
        await self._room.wait()
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = _Lane(topic, partition, self._settings.batch_size)
            self._lanes[topic, partition] = lane
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(data or b"") + 2 for name, data in headers)
        stamp = int(self._now() * 1000) if timestamp is None else timestamp
        delivered = asyncio.get_running_loop().create_future()
        lane.waiting.append(_Waiting(stamp, key, value, headers, size, delivered))
        self._account(size)
        if lane.task is None:
            lane.task = asyncio.create_task(self._drain(lane))
        return delivered

    async def flush(self) -> None:
        """Waits until everything sent so far is delivered or has failed, as its futures tell."""
        while tasks := self._tasks():
            await asyncio.gather(*tasks)

    async def abandon(self) -> None:
        """Drops what is not delivered yet; its futures are cancelled."""
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for lane in self._lanes.values():
            for record in lane.waiting:
                record.delivered.cancel()
            lane.waiting.clear()

    def _tasks(self) -> "list[asyncio.Task[None]]":
        return [lane.task for lane in self._lanes.values() if lane.task is not None]

    async def _count_partitions(self, topic: str) -> int:
        """Asks for the topic, which may create it, when it is not known."""
        info = self._cluster.topics.get(topic)
        if info is None:
            info = await self._cluster.retrying(lambda: self._cluster.topic(topic, create=True))
        return len(info.leaders)

    def _choose(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return partition_for(key, count)
        return self._turns.get(topic, 0) % count

    async def _drain(self, lane: _Lane) -> None:
        try:
            if self._settings.linger:
                await asyncio.sleep(self._settings.linger)
            while lane.waiting:
                await self._send_batch(lane, self._take(lane))
        finally:
            lane.task = None

    def _take(self, lane: _Lane) -> list[_Waiting]:
        batch = [lane.waiting.popleft()]
        size = batch[0].size
        while lane.waiting and size + lane.waiting[0].size <= lane.batch_size:
            record = lane.waiting.popleft()
            size += record.size
            batch.append(record)
        self._account(-size)
        # Keyless records fill one batch before the next partition has its turn (KIP-480).
        self._turns[lane.topic] = lane.partition + 1
        return batch

    def _account(self, size: int) -> None:
        self._buffered += size
        if self._buffered < self._settings.buffer_size:
            self._room.set()
        else:
            self._room.clear()

    async def _send_batch(self, lane: _Lane, batch: list[_Waiting]) -> None:
        try:
            base = await self._deliver(lane, batch)
        except asyncio.CancelledError:
            for record in batch:
                record.delivered.cancel()
            raise
        except Exception as error:
            if _is_too_large(error) and len(batch) > 1:
                # The topic takes less at once: nothing was written, so halves keep the order.
                lane.batch_size = sum(record.size for record in batch) // 2
                lane.waiting.extendleft(reversed(batch))
                self._account(sum(record.size for record in batch))
            else:
                self._settle(batch, error)
            return
        for index, record in enumerate(batch):
            if not record.delivered.done():
                offset = base + index if base >= 0 else -1
                record.delivered.set_result(Delivered(lane.topic, lane.partition, offset))

    def _settle(self, batch: list[_Waiting], error: Exception) -> None:
        # Whether the batch was written is unknown: a new producer id keeps later ones acceptable.
        self._producer = None
        for record in batch:
            if not record.delivered.done():
                record.delivered.set_exception(error)
                # Whoever drops the future does not care; asyncio need not complain for them.
                record.delivered.exception()

    async def _deliver(self, lane: _Lane, batch: list[_Waiting]) -> int:
        settings = self._settings
        idempotent = settings.idempotent and settings.acks == ALL
        producer = await self._producer_id() if idempotent else (-1, -1)
        if producer != lane.producer:
            lane.producer, lane.sequence = producer, 0
        data = build_batch(
            [Record(i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(batch)],
            compression=settings.compression,
            producer_id=producer[0],
            producer_epoch=producer[1],
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
        topic = await self._cluster.topic(lane.topic)
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
        async with self._asking:
            if self._producer is None:
                self._producer = await self._cluster.retrying(self._init_producer_id)
            return self._producer

    async def _init_producer_id(self) -> tuple[int, int]:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0
        )
        response = await self._cluster.ask(init_producer_id.API, request)
        check(response.error_code)
        return response.producer_id, response.producer_epoch


def _is_too_large(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code in (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    )
