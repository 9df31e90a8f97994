"""The sender of the producer: one Produce request to each leader for all its partitions."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, repeat
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.client.producing.partition_queue import (
    TOO_LARGE,
    Batch,
    BatchResult,
    Delivered,
    EncodedBatch,
    Limits,
    PartitionQueue,
    ProducerIdAndEpoch,
)
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages import produce
from barnabas.protocol.records.batch import set_producer
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import BatchBuilder, Headers

_BY_TOPIC_ID = 13
_WITHOUT_ADDING = 11
"""The last version whose batches never add their partition to a transaction (KIP-890)."""
_MAX_REQUEST = 1024 * 1024
"""Bytes of records about which a request is full, as in Kafka (`max.request.size`)."""
_STALE_METADATA = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION,
}

Batches = Sequence[tuple[PartitionQueue, Batch]]

_delivered: Callable[[tuple[str, int, int]], Delivered] = partial(tuple.__new__, Delivered)


class ProducerSession(Protocol):
    """The session in which a sender sends: its producer id and the partitions it may write."""

    @property
    def transactional_id(self) -> str | None:
        """The transactional id of the batches; None outside transactions."""

    @property
    def adds_partitions_implicitly(self) -> bool:
        """Whether leaders add partitions to the transaction themselves (Produce v12 and later)."""

    @property
    def error(self) -> Exception | None:
        """The error that stops the session: all queued records fail with it."""

    def identity(self) -> ProducerIdAndEpoch | None:
        """Return the producer id and epoch; None before `request_identity` has finished."""

    async def request_identity(self) -> None:
        """Get a producer id and epoch; raises the error that prevents it."""

    def may_send(self, queue: PartitionQueue) -> bool:
        """Whether the queue may send now; after False, call `Sender.wakeup` once it may."""

    def on_failure(self, error: Exception) -> Exception:
        """Note that a batch failed; return the error for the futures of its records."""


class _Answer(NamedTuple):
    code: ErrorCode
    error: Exception | None = None
    base_offset: int = -1
    uncertain: bool = False


class Sender:
    """The sender of one producer: its queues and requests in flight; sizes in bytes, times in s."""

    def __init__(
        self,
        cluster: Cluster,
        session: ProducerSession,
        limits: Limits,
        *,
        acks: int,
        compression: Compression,
        on_batch: Callable[[PartitionQueue], None] = lambda queue: None,  # noqa: ARG005
    ) -> None:
        self._cluster = cluster
        self._session = session
        self._limits = limits
        self._acks = acks
        self._compression = compression
        self._on_batch = on_batch
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._new_future: Callable[[], asyncio.Future[Delivered]]
        self._busy: dict[PartitionQueue, None] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._scheduled: asyncio.Handle | None = None
        self._identity_request: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        self._flushing = 0
        self.buffered = 0
        """Bytes of the unfinished records, before compression."""
        self.is_due = False
        """Whether a full batch waits for the event loop, which sends it."""

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> "asyncio.Future[Delivered]":
        """Queue a record; the future returns its offset."""
        queue = self._queues.get((topic, partition)) or self._queue(topic, partition)
        delivered = self._new_future()
        records = queue.open
        if records is not None and (
            size := records.add(key, value, timestamp, headers, queue.batch_size)
        ):
            batch = queue.pending[-1]
            batch.size += size
            batch.delivered.append(delivered)
            self.buffered += size
        else:
            records = BatchBuilder(timestamp)
            records.add(key, value, timestamp, headers)
            self._append(queue, records, records.size, delivered)
        return delivered

    def append_batch(
        self, topic: str, partition: int, batch: EncodedBatch
    ) -> "asyncio.Future[Delivered]":
        """Queue a whole batch; the future returns the offset of its first record."""
        queue = self._queue(topic, partition)
        delivered = self._new_future()
        self._append(queue, batch, len(batch.data), delivered)
        return delivered

    def _append(
        self,
        queue: PartitionQueue,
        encoded: BatchBuilder | EncodedBatch,
        size: int,
        delivered: "asyncio.Future[Delivered]",
    ) -> None:
        now = asyncio.get_running_loop().time()
        queue.append(Batch(now, encoded, size, [delivered]))
        self.buffered += size
        self.is_due = len(queue.pending) > 1
        self._busy[queue] = None
        if self._scheduled is None or isinstance(self._scheduled, asyncio.TimerHandle):
            self._schedule(None)

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = PartitionQueue(topic, partition, self._limits)
            # To ask for the running loop is a system call.
            self._new_future = asyncio.get_running_loop().create_future
        return queue

    def wakeup(self) -> None:
        """Check again which batches can be sent."""
        if self._busy:
            self._schedule(None)

    async def flush(self) -> None:
        """Wait until everything that is queued now is delivered or has failed.

        The callbacks of the futures have run by then.
        """
        wanted = [(queue, queue.completed + queue.unfinished) for queue in self._busy]
        self._flushing += 1
        try:
            self.wakeup()
            while any(queue.completed < count for queue, count in wanted):
                await self.wait_for_progress()
        finally:
            self._flushing -= 1
        # asyncio calls the callbacks of a future in the next iteration. The batches of one response
        # are completed together, and the first of them has woken this task.
        await asyncio.sleep(0)

    async def wait_for_progress(self) -> None:
        """Wait until a record is completed."""
        self._progress.clear()
        await self._progress.wait()

    async def wait_for_answers(self) -> None:
        """Wait until no request is in flight."""
        while self._requests:
            await asyncio.wait(self._requests)

    def drop(self, error: Exception | None) -> bool:
        """Drop every record that is not in flight: its future fails, or is cancelled without error.

        Returns True if some of them had been sent before: the next sequences are then unknown.
        """
        was_sent = any(queue.window for queue in self._busy)
        for queue in list(self._busy):
            self._drop_queue(queue, error)
        return was_sent

    async def abandon(self) -> None:
        """Drop all records, including those in flight."""
        tasks = [*self._requests, *([self._identity_request] if self._identity_request else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.drop(None)
        self._busy.clear()
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    # -- scheduling ------------------------------------------------------------------------------

    def _schedule(self, when: float | None) -> None:
        """Schedule `_run` at a time of the loop's clock, or for its next iteration if None."""
        if isinstance(self._scheduled, asyncio.TimerHandle):
            self._scheduled.cancel()
        elif self._scheduled is not None:
            return
        loop = asyncio.get_running_loop()
        self._scheduled = (
            loop.call_soon(self._run) if when is None else loop.call_at(when, self._run)
        )

    def _run(self) -> None:
        self._scheduled = None
        self.is_due = False
        next_send_time = self._dispatch(asyncio.get_running_loop().time())
        if next_send_time is not None and self._scheduled is None:
            self._schedule(next_send_time)

    def _dispatch(self, now: float) -> float | None:
        """Start the requests that can be sent; return when to check again, or None."""
        for queue in [each for each in self._busy if not each.is_busy]:
            del self._busy[queue]
        if not (self._busy and self._has_identity()):
            return None
        error = self._session.error
        times: list[float] = []
        requests: dict[tuple[int, object, int], list[tuple[PartitionQueue, Batch]]] = defaultdict(
            list
        )
        loads: dict[object, int] = defaultdict(int)
        for queue in list(self._busy):
            if error is not None:
                self._drop_queue(queue, error)
            elif self._session.may_send(queue):
                for index, batch in enumerate(self._next_batches(queue, now)):
                    leader = self._leader(queue) or queue
                    part = loads[leader] // _MAX_REQUEST
                    loads[leader] += batch.size
                    requests[index, leader, part].append((queue, batch))
                if not queue.is_exhausted and (at := queue.next_send_time()) is not None:
                    times.append(at)
        # The second batch of a queue must not be sent before its first.
        for key in sorted(requests, key=itemgetter(0)):
            task = asyncio.create_task(self._send(requests[key]))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
        return min(times, default=None)

    def _next_batches(self, queue: PartitionQueue, now: float) -> Iterator[Batch]:
        if self._limits.idempotent:
            identity = self._session.identity()
            assert identity is not None
            queue.set_producer(identity)
        while True:
            before = len(queue.pending)
            batch = queue.next_batch(now, flushing=self._flushing > 0)
            if batch is None:
                return
            if len(queue.pending) != before:
                self._on_batch(queue)
            yield batch

    def _leader(self, queue: PartitionQueue) -> tuple[int] | None:
        info = self._cluster.topics.get(queue.topic)
        leader = -1 if info is None else info.leaders.get(queue.partition, -1)
        return (leader,) if leader in self._cluster.nodes else None

    def _has_identity(self) -> bool:
        if not self._limits.idempotent:
            return True
        if self._session.identity() is not None and not any(x.is_exhausted for x in self._busy):
            return True
        if self._identity_request is None:
            self._identity_request = asyncio.create_task(self._request_identity())
        return False

    async def _request_identity(self) -> None:
        try:
            await self._session.request_identity()
        except Exception as error:
            # A `flush` waits for the records, whatever the reason.
            self.drop(error)
        finally:
            self._identity_request = None
        self.wakeup()

    # -- requests --------------------------------------------------------------------------------

    async def _send(self, batches: Batches) -> None:
        try:
            answers = await self._exchange(batches)
        except asyncio.CancelledError:
            for queue, batch in batches:
                batch.in_flight = False
                batch.uncertain = True
                self._drop_queue(queue, None)
            raise
        except KafkaError as error:
            answers = [_Answer(error.code, error)] * len(batches)
        except (BrokerUnreachable, TimeoutError) as error:
            answers = [_Answer(ErrorCode.NETWORK_EXCEPTION, error)] * len(batches)
        except Exception as error:
            answers = [_Answer(ErrorCode.UNKNOWN_SERVER_ERROR, error, uncertain=True)] * len(
                batches
            )
        for (queue, batch), answer in zip(batches, answers, strict=True):
            self._complete(queue, batch, answer)
        self.wakeup()

    async def _exchange(self, batches: Batches) -> list[_Answer]:
        """Send a Produce request; return the responses in the order of its batches."""
        first = batches[0][0]
        node = await self._cluster.leader(first.topic, first.partition)
        connection = await self._cluster.connection_to(node)
        version = connection.version_for(produce.API)
        if (
            self._session.transactional_id is not None
            and not self._session.adds_partitions_implicitly
        ):
            version = min(version, _WITHOUT_ADDING)
        by_id = version >= _BY_TOPIC_ID
        names, unknown = await self._names({queue.topic for queue, _ in batches}, by_id=by_id)
        request = self._request([x for x in batches if x[0].topic in names], names, by_id=by_id)
        rows = await self._answers(connection, request, version)
        if isinstance(rows, _Answer):
            return [unknown.get(queue.topic, rows) for queue, _ in batches]
        return [
            unknown.get(queue.topic)
            or _answer(queue, rows.get((names[queue.topic], queue.partition)))
            for queue, _ in batches
        ]

    async def _names(
        self, topics: Iterable[str], *, by_id: bool
    ) -> tuple[dict[str, str | bytes], dict[str, _Answer]]:
        """Return the name or id of each topic on the wire, and the errors of unknown topics."""
        names: dict[str, str | bytes] = {}
        unknown: dict[str, _Answer] = {}
        for topic in topics:
            try:
                names[topic] = (await self._cluster.topic(topic)).topic_id if by_id else topic
            except KafkaError as error:
                unknown[topic] = _Answer(error.code, error)
        return names, unknown

    async def _answers(
        self, connection: Connection, request: produce.ProduceRequest, version: int
    ) -> "_Answer | dict[tuple[str | bytes, int], produce.PartitionProduceResponse]":
        """Return the response rows by topic and partition, or one answer for all batches."""
        if self._acks == 0:
            await connection.send_only(produce.API, request, version=version)
            return _Answer(ErrorCode.NONE)
        try:
            response = await connection.request(
                produce.API, request, version=version, timeout=self._cluster.request_timeout + 5.0
            )
        except (BrokerUnreachable, TimeoutError) as error:
            return _Answer(ErrorCode.NETWORK_EXCEPTION, error, uncertain=True)
        by_id = version >= _BY_TOPIC_ID
        return {
            (topic.topic_id if by_id else topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }

    def _request(
        self, batches: Batches, names: Mapping[str, str | bytes], *, by_id: bool
    ) -> produce.ProduceRequest:
        topics: dict[str, produce.TopicProduceData] = {}
        for queue, batch in batches:
            if queue.topic not in topics:
                name: dict[str, Any] = {"topic_id" if by_id else "name": names[queue.topic]}
                topics[queue.topic] = produce.TopicProduceData(**name, partition_data=[])
            row = produce.PartitionProduceData(index=queue.partition, records=self._encode(batch))
            topics[queue.topic].partition_data.append(row)
        return produce.ProduceRequest(
            transactional_id=self._session.transactional_id,
            acks=self._acks,
            timeout_ms=int(self._cluster.request_timeout * 1000),
            topic_data=list(topics.values()),
        )

    def _encode(self, batch: Batch) -> memoryview:
        """Return the bytes of a batch with its producer and its sequence."""
        identity, sequence = batch.sent_as
        transactional = self._session.transactional_id is not None
        if isinstance(batch.encoded, BatchBuilder):
            data = batch.encoded.build(
                compression=self._compression,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
            batch.encoded = EncodedBatch(data, batch.count)
        elif batch.stamped != batch.sent_as:
            if batch.stamped is not None:
                # A request without a response may still be waiting to be written.
                batch.encoded = replace(batch.encoded, data=bytearray(batch.encoded.data))
            data = batch.encoded.data
            set_producer(data, 0, *identity, sequence, transactional=transactional)
        batch.stamped = batch.sent_as
        return memoryview(batch.encoded.data)

    # -- results ---------------------------------------------------------------------------------

    def _complete(self, queue: PartitionQueue, batch: Batch, answer: _Answer) -> None:
        if answer.code in _STALE_METADATA:
            self._cluster.topics.pop(queue.topic, None)
        now = asyncio.get_running_loop().time()
        result = queue.complete(batch, answer.code, now, uncertain=answer.uncertain)
        if lost := queue.take_abandoned():
            self._resolve(queue, lost, self._failed(answer))
        if result is BatchResult.DELIVERED:
            topic, partition, base = queue.topic, queue.partition, answer.base_offset
            offsets = repeat(-1) if base < 0 else count(base)
            places = map(_delivered, zip(repeat(topic), repeat(partition), offsets))
            for delivered, place in zip(batch.delivered, places, strict=False):
                try:
                    delivered.set_result(place)
                except asyncio.InvalidStateError:
                    # The application has cancelled it.
                    continue
            self._count_completed(queue, batch)
        elif result is BatchResult.FAILED:
            if batch.count > len(batch.delivered) and answer.code in TOO_LARGE:
                answer = answer._replace(error=_too_large(queue, batch, answer.code))
            self._resolve(queue, [batch], self._failed(answer))

    def _failed(self, answer: _Answer) -> Exception:
        return self._session.on_failure(answer.error or KafkaError(answer.code))

    def _drop_queue(self, queue: PartitionQueue, error: Exception | None) -> None:
        self._resolve(queue, queue.drop(), error)

    def _resolve(
        self, queue: PartitionQueue, batches: Iterable[Batch], error: Exception | None
    ) -> None:
        for batch in batches:
            for delivered in batch.delivered:
                if delivered.done():
                    continue
                if error is None:
                    delivered.cancel()
                else:
                    delivered.set_exception(error)
                    # asyncio must not log the exception of a future that the application dropped.
                    delivered.exception()
            self._count_completed(queue, batch)

    def _count_completed(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.completed += len(batch.delivered)
        self.buffered -= batch.size
        self._progress.set()


def _too_large(queue: PartitionQueue, batch: Batch, code: ErrorCode) -> KafkaError:
    name = f"{queue.topic}-{queue.partition}"
    return KafkaError(
        code, f"an encoded batch of {batch.size} bytes is too large for {name}: encode smaller ones"
    )


def _answer(queue: PartitionQueue, row: produce.PartitionProduceResponse | None) -> _Answer:
    if row is None:
        text = f"the broker's answer lacks {queue.topic}-{queue.partition}"
        return _Answer(ErrorCode.UNKNOWN_SERVER_ERROR, ProtocolError(text), uncertain=True)
    code = ErrorCode.of(row.error_code)
    if not row.error_code:
        return _Answer(code, None, row.base_offset)
    text = row.error_message or f"{queue.topic}-{queue.partition}"
    return _Answer(code, KafkaError(code, text), row.base_offset)
