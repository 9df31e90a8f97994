"""Carries batches: one request to each leader for all its partitions that have some to send."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.client.lane import Batch, Delivered, Fate, Identity, Lane, Limits, Waiting
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages import produce
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch

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

Cargo = Sequence[tuple[Lane, Batch]]


class Author(Protocol):
    """Who sends: gives identities, and rules which partitions may be written now."""

    @property
    def transactional_id(self) -> str | None:
        """The id that transactional batches are written under; None outside transactions."""

    @property
    def adds_by_writing(self) -> bool:
        """Whether leaders add partitions to the transaction by themselves: Produce v12 on."""

    @property
    def error(self) -> Exception | None:
        """Why nothing more is to be sent: what waits gets this error."""

    def identity(self) -> Identity | None:
        """The producer id and epoch; None where `obtain` has to be awaited first."""

    async def obtain(self) -> None:
        """Sees to it that there is an identity; raises what prevents it."""

    def admits(self, lane: Lane) -> bool:
        """Whether the lane may send now; whoever says no calls `Sender.kick` when it may."""

    def failed(self, error: Exception) -> Exception:
        """A batch came to nothing; returns what its futures are told."""


class _Answer(NamedTuple):
    code: ErrorCode
    error: Exception | None = None
    base_offset: int = -1
    uncertain: bool = False


class Sender:
    """The lanes of one producer and the requests under way; sizes in bytes, times in s."""

    def __init__(
        self,
        cluster: Cluster,
        author: Author,
        limits: Limits,
        *,
        acks: int,
        compression: Compression,
        cut: Callable[[Lane], None] = lambda lane: None,  # noqa: ARG005
    ) -> None:
        self._cluster = cluster
        self._author = author
        self._limits = limits
        self._acks = acks
        self._compression = compression
        self._cut = cut
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._busy: dict[Lane, None] = {}
        self._flights: set[asyncio.Task[None]] = set()
        self._turn: asyncio.Handle | None = None
        self._obtaining: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._hurrying = 0
        self.buffered = 0
        """Bytes of records that wait to be sent."""

    def append(self, topic: str, partition: int, record: Waiting) -> None:
        """Queues a record."""
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = Lane(topic, partition, self._limits)
        lane.append(record)
        self.buffered += record.size
        self._busy[lane] = None
        if self._turn is None or isinstance(self._turn, asyncio.TimerHandle):
            self._look_at(None)

    def kick(self) -> None:
        """Looks again for what can be sent."""
        if self._busy:
            self._look_at(None)

    async def flush(self) -> None:
        """Waits until all that is queued by now is delivered or has failed."""
        wanted = [(lane, lane.appended) for lane in self._busy]
        self._hurrying += 1
        try:
            self.kick()
            while any(lane.ended < count for lane, count in wanted):
                await self.moved()
        finally:
            self._hurrying -= 1

    async def moved(self) -> None:
        """Waits until a record has met its end, or left the buffer."""
        self._moved.clear()
        await self._moved.wait()

    async def landed(self) -> None:
        """Waits for the answers of what is under way."""
        while self._flights:
            await asyncio.wait(self._flights)

    def drop(self, error: Exception | None) -> bool:
        """Gives up what is not under way: futures get `error`, or are cancelled where it is None.

        True if some of it has been under way before: the next sequences are unknown then.
        """
        was_sent = any(lane.window for lane in self._busy)
        for lane in list(self._busy):
            self._give_up(lane, error)
        return was_sent

    async def abandon(self) -> None:
        """Drops all records, those under way too."""
        tasks = [*self._flights, *([self._obtaining] if self._obtaining else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.drop(None)
        self._busy.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    # -- what can be sent ------------------------------------------------------------------------

    def _look_at(self, when: float | None) -> None:
        """Looks for what can be sent at a time of the loop's clock, or with its next turn."""
        if isinstance(self._turn, asyncio.TimerHandle):
            self._turn.cancel()
        elif self._turn is not None:
            return
        loop = asyncio.get_running_loop()
        self._turn = loop.call_soon(self._look) if when is None else loop.call_at(when, self._look)

    def _look(self) -> None:
        self._turn = None
        wakes_at = self._dispatch(asyncio.get_running_loop().time())
        if wakes_at is not None and self._turn is None:
            self._look_at(wakes_at)

    def _dispatch(self, now: float) -> float | None:
        """Starts what can fly; returns when to look again if nothing happens before."""
        if not self._has_identity():
            return None
        error = self._author.error
        wakes: list[float] = []
        flights: dict[tuple[int, object, int], list[tuple[Lane, Batch]]] = defaultdict(list)
        loads: dict[object, int] = defaultdict(int)
        for lane in list(self._busy):
            if not lane.is_busy:
                del self._busy[lane]
            elif error is not None:
                self._give_up(lane, error)
            elif self._author.admits(lane):
                for turn, batch in enumerate(self._take(lane, now)):
                    leader = self._leader(lane) or lane
                    part = loads[leader] // _MAX_REQUEST
                    loads[leader] += batch.size
                    flights[turn, leader, part].append((lane, batch))
                if not lane.is_exhausted and (at := lane.wakes_at()) is not None:
                    wakes.append(at)
        # A lane's second batch must not leave before its first.
        for key in sorted(flights, key=itemgetter(0)):
            task = asyncio.create_task(self._fly(flights[key]))
            self._flights.add(task)
            task.add_done_callback(self._flights.discard)
        return min(wakes, default=None)

    def _take(self, lane: Lane, now: float) -> Iterator[Batch]:
        if self._limits.idempotent:
            identity = self._author.identity()
            assert identity is not None
            lane.give(identity)
        while True:
            before = lane.waiting_size
            batch = lane.take(now, hurry=self._hurrying > 0)
            if batch is None:
                return
            if lane.waiting_size < before:
                self._leaves_buffer(before - lane.waiting_size)
                self._cut(lane)
            yield batch

    def _leader(self, lane: Lane) -> tuple[int] | None:
        info = self._cluster.topics.get(lane.topic)
        leader = -1 if info is None else info.leaders.get(lane.partition, -1)
        return (leader,) if leader in self._cluster.nodes else None

    def _has_identity(self) -> bool:
        if not self._limits.idempotent:
            return True
        if self._author.identity() is not None and not any(x.is_exhausted for x in self._busy):
            return True
        if self._obtaining is None:
            self._obtaining = asyncio.create_task(self._obtain())
        return False

    async def _obtain(self) -> None:
        try:
            await self._author.obtain()
        except (KafkaError, BrokerUnreachable, TimeoutError) as error:
            self.drop(error)
        finally:
            self._obtaining = None
        self.kick()

    # -- flights ---------------------------------------------------------------------------------

    async def _fly(self, cargo: Cargo) -> None:
        try:
            answers = await self._exchange(cargo)
        except asyncio.CancelledError:
            for lane, batch in cargo:
                batch.flying = False
                batch.uncertain = True
                self._give_up(lane, None)
            raise
        except KafkaError as error:
            answers = [_Answer(error.code, error)] * len(cargo)
        except (BrokerUnreachable, TimeoutError) as error:
            answers = [_Answer(ErrorCode.NETWORK_EXCEPTION, error)] * len(cargo)
        except Exception as error:
            answers = [_Answer(ErrorCode.UNKNOWN_SERVER_ERROR, error, uncertain=True)] * len(cargo)
        for (lane, batch), answer in zip(cargo, answers, strict=True):
            self._settle(lane, batch, answer)
        self.kick()

    async def _exchange(self, cargo: Cargo) -> list[_Answer]:
        """Sends a request; the answers in the order of its cargo."""
        first = cargo[0][0]
        node = await self._cluster.leader(first.topic, first.partition)
        connection = await self._cluster.connection_to(node)
        version = connection.version_for(produce.API)
        if self._author.transactional_id is not None and not self._author.adds_by_writing:
            version = min(version, _WITHOUT_ADDING)
        by_id = version >= _BY_TOPIC_ID
        names, unknown = await self._names({lane.topic for lane, _ in cargo}, by_id=by_id)
        request = self._request([x for x in cargo if x[0].topic in names], names, by_id=by_id)
        rows = await self._answers(connection, request, version)
        if isinstance(rows, _Answer):
            return [unknown.get(lane.topic, rows) for lane, _ in cargo]
        return [
            unknown.get(lane.topic) or _answer(lane, rows.get((names[lane.topic], lane.partition)))
            for lane, _ in cargo
        ]

    async def _names(
        self, topics: Iterable[str], *, by_id: bool
    ) -> tuple[dict[str, str | bytes], dict[str, _Answer]]:
        """What each topic is called on the wire, and the error of those that are not known."""
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
        """Rows by topic and partition, or what holds for all."""
        if self._acks == 0:
            await connection.send_only(produce.API, request, version=version)
            return _Answer(ErrorCode.NONE)
        try:
            response = await connection.request(
                produce.API, request, version=version, timeout=self._cluster.timeout + 5.0
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
        self, cargo: Cargo, names: Mapping[str, str | bytes], *, by_id: bool
    ) -> produce.ProduceRequest:
        topics: dict[str, produce.TopicProduceData] = {}
        for lane, batch in cargo:
            if lane.topic not in topics:
                name: dict[str, Any] = {"topic_id" if by_id else "name": names[lane.topic]}
                topics[lane.topic] = produce.TopicProduceData(**name, partition_data=[])
            row = produce.PartitionProduceData(index=lane.partition, records=self._encode(batch))
            topics[lane.topic].partition_data.append(row)
        return produce.ProduceRequest(
            transactional_id=self._author.transactional_id,
            acks=self._acks,
            timeout_ms=int(self._cluster.timeout * 1000),
            topic_data=list(topics.values()),
        )

    def _encode(self, batch: Batch) -> bytes:
        identity, sequence = batch.sent_as
        return build_batch(
            [
                Record(i, r.timestamp, r.key, r.value, r.headers)
                for i, r in enumerate(batch.records)
            ],
            compression=self._compression,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            transactional=self._author.transactional_id is not None,
        )

    # -- ends ------------------------------------------------------------------------------------

    def _settle(self, lane: Lane, batch: Batch, answer: _Answer) -> None:
        if answer.code in _STALE_METADATA:
            self._cluster.topics.pop(lane.topic, None)
        now = asyncio.get_running_loop().time()
        fate = lane.settle(batch, answer.code, now, uncertain=answer.uncertain)
        if lost := lane.reap():
            self._tell(lane, lost, self._failed(answer))
        if fate is Fate.DELIVERED:
            for index, record in enumerate(batch.records):
                if not record.delivered.done():
                    offset = answer.base_offset + index if answer.base_offset >= 0 else -1
                    record.delivered.set_result(Delivered(lane.topic, lane.partition, offset))
            self._ended(lane, len(batch.records))
        elif fate is Fate.FAILED:
            self._tell(lane, batch.records, self._failed(answer))

    def _failed(self, answer: _Answer) -> Exception:
        return self._author.failed(answer.error or KafkaError(answer.code))

    def _give_up(self, lane: Lane, error: Exception | None) -> None:
        self._leaves_buffer(lane.waiting_size)
        self._tell(lane, lane.drop(), error)

    def _tell(self, lane: Lane, records: Sequence[Waiting], error: Exception | None) -> None:
        for record in records:
            if record.delivered.done():
                continue
            if error is None:
                record.delivered.cancel()
            else:
                record.delivered.set_exception(error)
                # Whoever drops the future does not care; asyncio need not complain for them.
                record.delivered.exception()
        self._ended(lane, len(records))

    def _ended(self, lane: Lane, count: int) -> None:
        lane.ended += count
        self._moved.set()

    def _leaves_buffer(self, size: int) -> None:
        self.buffered -= size
        self._moved.set()


def _answer(lane: Lane, row: produce.PartitionProduceResponse | None) -> _Answer:
    if row is None:
        text = f"the broker's answer lacks {lane.topic}-{lane.partition}"
        return _Answer(ErrorCode.UNKNOWN_SERVER_ERROR, ProtocolError(text), uncertain=True)
    code = ErrorCode.of(row.error_code)
    if not row.error_code:
        return _Answer(code, None, row.base_offset)
    text = row.error_message or f"{lane.topic}-{lane.partition}"
    return _Answer(code, KafkaError(code, text), row.base_offset)
