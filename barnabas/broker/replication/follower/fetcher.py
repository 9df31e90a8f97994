"""The fetcher: replicates partitions from one leader over one connection, one request at a time.

After each await a partition is checked again, and changed only if this fetcher still follows it.
The records of a response are appended in slices, so that a large response does not hold the event
loop.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil
from typing import Any, Final, Protocol

from barnabas.broker.cluster.peers import PeerUnreachable
from barnabas.broker.loop.offload import Offload
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.follower.fetch_session_handler import FetchSessionHandler, Key
from barnabas.broker.replication.follower.follower_state import (
    NOTHING,
    Append,
    BoundsQuery,
    FollowerState,
    RestartLog,
    Retry,
    Step,
    Truncation,
    judge,
    judge_bounds,
)
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quota import ByteRate, ReplicationQuota
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.ports import Clock
from barnabas.metrics.catalogue import FetcherMetrics
from barnabas.protocol.backoff import wait_after
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch, list_offsets
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records.batch import CorruptRecordError
from barnabas.protocol.records.varint import Buffer
from barnabas.protocol.schema import Api
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.log.rearrangement import Rearrangement
from barnabas.storage.log.truncation import start_again, truncate

VERSION: Final = 17
SLICE_S: Final = 0.002
"""Time spent on a response before the event loop runs other work."""
SLICE_BATCHES: Final = 64
PENDING_WAIT_S: Final = 0.1
"""Longest wait of a request for fsyncs and truncations in progress."""
_QUEUE: Final = "logs"
_METADATA_LAG: Final = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors that mean: one of the two brokers has not received the controller's decision yet."""
_PARTITION_ERRORS: Final = (KafkaError, CorruptRecordError)
"""Errors of one partition only; also those of a local log that is damaged where it is truncated."""
_QUIET_FAILURES: Final = 4
"""Metadata-lag errors in a row that are not logged."""
_FIRST_BACKOFF: Final = 1 / 16
"""The first backoff, as a share of the longest: most errors end as soon as the new leader has
received the controller's decision."""
_LATEST, _EARLIEST = -1, -2
Bounds = tuple[int, int]
"""Log start offset and log end offset."""
_log = get_logger(__name__)


class LeaderConnection(Protocol):
    """A connection to the leader, opened on first use; see `barnabas/broker/cluster/peers.py`."""

    async def request(
        self, api: Api, request: object, *, version: int | None = None, timeout: float = 30.0
    ) -> Any: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class FetcherContext:
    """The collaborators that all fetchers of a broker share."""

    broker_id: int
    config: Callable[[], BrokerConfig]
    clock: Clock
    offload: Offload
    quota: ReplicationQuota
    metrics: FetcherMetrics
    broker_epoch: Callable[[], int]
    """The epoch of this broker's registration, by which a leader tells restarts apart (KIP-903)."""


class Backoffs:
    """The partitions that wait after an error, and until when; times are monotonic seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, FollowerState]] = []
        self._order = count()

    def add(self, follower: FollowerState, until: float) -> None:
        heapq.heappush(self._heap, (until, next(self._order), follower))

    def pop_due(self, now: float) -> list[FollowerState]:
        """Remove and return the partitions whose backoff has ended."""
        ended = []
        while self._heap and self._heap[0][0] <= now:
            ended.append(heapq.heappop(self._heap)[2])
        return ended

    def remaining(self, now: float) -> float | None:
        """Return the seconds until the next backoff ends; None without any."""
        return max(0.0, self._heap[0][0] - now) if self._heap else None


class Fetcher:
    """The fetcher of one connection to one leader; it fetches while `run` runs."""

    def __init__(
        self, leader_id: int, connection: LeaderConnection, context: FetcherContext
    ) -> None:
        self.leader_id = leader_id
        self._connection = connection
        self._context = context
        self._session = FetchSessionHandler(context.config().replica_fetch_max_bytes)
        self._followers: dict[Key, FollowerState] = {}
        self._throttled: list[FollowerState] = []
        self._out_of_range: list[FollowerState] = []
        self._bytes_in = context.metrics.bytes_in.cell()
        self._reassignment_bytes_in = context.metrics.reassignment_bytes_in.cell()
        self._backoffs = Backoffs()
        self._pending_work = 0
        """The number of fsyncs and truncations in progress."""
        self._wake = asyncio.Event()
        self._failures = 0
        self._slice_ends = 0.0
        self.requests = ByteRate(6, 10.0)
        """The rate of requests over the last minute."""

    def __len__(self) -> int:
        return len(self._followers)

    def __iter__(self) -> Iterator[FollowerState]:
        return iter(self._followers.values())

    def add(self, follower: FollowerState) -> None:
        """Fetch a partition from now on."""
        self._followers[follower.key] = follower
        self._fetch_next(follower)

    def remove(self, follower: FollowerState) -> None:
        """Stop fetching a partition; its state has been marked as stopped."""
        if self._followers.get(follower.key) is follower:
            del self._followers[follower.key]
            self._changed(follower)

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            try:
                await self._fetch_once()
            except (PeerUnreachable, KafkaError) as error:
                if not self._failures:
                    _log.warning("fetch failed", leader=self.leader_id, reason=str(error))
                await self._restart_session()
            except Exception as error:
                _log.error("fetcher failed", leader=self.leader_id, exc_info=error)
                await self._restart_session()
            else:
                self._failures = 0

    async def close(self) -> None:
        """Close the connection, after `run` has ended."""
        await self._connection.close()

    # -- requests --------------------------------------------------------------------------------

    async def _fetch_once(self) -> None:
        """Send one request and handle its response; without partitions to fetch, wait for one."""
        config = self._context.config()
        for follower in self._backoffs.pop_due(self._context.clock.monotonic()):
            self._release(follower)
        if self._session.begins:
            self._request_flushes()
        await self._await_pending_work()
        self._throttle()
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._context.broker_id, replica_epoch=self._context.broker_epoch()
            ),
            max_wait_ms=self._max_wait_ms(),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            topics=[],
        )
        self._wake.clear()
        if not self._session.build_request(self._followers, request):
            await self._wait_for_work()
            return
        timeout = config.replica_socket_timeout_ms / 1000
        response = await self._connection.request(
            fetch.API, request, version=VERSION, timeout=timeout
        )
        self.requests.record(1, self._context.clock.monotonic())
        if self._session.handle_response(response):
            await self._handle_response(response)
        elif response.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            raise KafkaError(ErrorCode.of(response.error_code))
        if self._out_of_range:
            await self._resolve_out_of_range(timeout)

    def _request_flushes(self) -> None:
        """Request the missing flushes: until then a new session leaves the partition out."""
        for follower in self._followers.values():
            if follower.awaits_flush_only:
                self._fetch_next(follower)

    async def _await_pending_work(self) -> None:
        """Wait shortly for fsyncs and truncations.

        A partition that the request leaves out has to wait for the response, which comes late where
        all other partitions are quiet.
        """
        try:
            async with asyncio.timeout(PENDING_WAIT_S):
                while self._pending_work:
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return

    def _max_wait_ms(self) -> int:
        """Return the request's max_wait_ms, limited by the next backoff and by pending work."""
        longest = self._context.config().replica_fetch_wait_max_ms
        remaining = (
            PENDING_WAIT_S
            if self._pending_work
            else self._backoffs.remaining(self._context.clock.monotonic())
        )
        return longest if remaining is None else min(longest, ceil(remaining * 1000))

    async def _wait_for_work(self) -> None:
        """Wait until a partition has changed, a backoff is over, or the quota may allow more."""
        remaining = self._backoffs.remaining(self._context.clock.monotonic())
        if self._throttled:
            longest = self._context.config().replica_fetch_backoff_ms / 1000
            remaining = longest if remaining is None else min(remaining, longest)
        try:
            async with asyncio.timeout(remaining):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _restart_session(self) -> None:
        """Back off after an error, and begin a new session."""
        self._session.restart()
        backoff = self._backoff(self._failures)
        self._failures += 1
        await asyncio.sleep(backoff)

    def _backoff(self, failures: int) -> float:
        longest = self._context.config().replica_fetch_backoff_ms / 1000
        return wait_after(failures, longest * _FIRST_BACKOFF, longest)

    def _throttle(self) -> None:
        """Leave out-of-sync partitions out of the request while the quota is exceeded (KIP-73)."""
        quota, throttled = self._context.quota, self._throttled
        if quota.exceeded(self._context.clock.monotonic()):
            for follower in self._followers.values():
                topic, index = follower.partition.topic, follower.partition.index
                if follower.lag != 0 and follower.ready and quota.is_throttled(topic, index):
                    follower.hold()
                    throttled.append(follower)
                    self._session.changed(follower.key)
        elif throttled:
            self._throttled = []
            for follower in throttled:
                self._release(follower)

    # -- answers ---------------------------------------------------------------------------------

    async def _handle_response(self, response: FetchResponse) -> None:
        throttled_bytes = 0
        self._begin_slice()
        for topic in response.responses:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                follower, asked = self._followers.get(key), self._session.asked(key)
                if follower is None or asked is None or not follower.answers(asked):
                    # It was moved, truncated or held meanwhile: the response does not fit any more.
                    continue
                await self._handle_answer(follower, answer, asked)
                if size := len(answer.records or NOTHING):
                    throttled_bytes += self._count(follower.partition, size)
                await self._yield_if_due()
        if throttled_bytes:
            self._context.quota.record(throttled_bytes, self._context.clock.monotonic())

    def _count(self, partition: Partition, size: int) -> int:
        """Count received bytes; return those that the quota covers."""
        self._bytes_in.value += size
        if self._context.broker_id in partition.adding:
            self._reassignment_bytes_in.value += size
        return size if self._context.quota.is_throttled(partition.topic, partition.index) else 0

    def _begin_slice(self) -> None:
        self._slice_ends = self._context.clock.monotonic() + SLICE_S

    async def _yield_if_due(self) -> None:
        """Yield to the event loop once the slice of time is used up."""
        if self._context.clock.monotonic() >= self._slice_ends:
            await asyncio.sleep(0)
            self._begin_slice()

    async def _handle_answer(
        self, follower: FollowerState, answer: PartitionData, asked: FetchPartition
    ) -> None:
        try:
            step = judge(follower.partition.log, answer)
            if isinstance(step, Append):
                await self._append(follower, step.records)
                if not follower.stopped:
                    follower.learn(answer)
                    self._after_append(follower, asked)
            else:
                self._apply_step(follower, step)
        except _PARTITION_ERRORS as error:
            self._failed(follower, error)

    async def _append(self, follower: FollowerState, records: Buffer) -> None:
        taken, partition = 0, follower.partition
        while taken < len(records) and not follower.stopped:
            taken += partition.append_as_follower(
                records[taken:],
                now_ms=self._context.clock.now_ms(),
                max_batches=SLICE_BATCHES,
            )
            if taken < len(records):
                await self._yield_if_due()

    def _after_append(self, follower: FollowerState, asked: FetchPartition) -> None:
        """Fetch on from the new log end; without a change the session's request stays as it is."""
        log = follower.partition.log
        if (asked.fetch_offset, asked.log_start_offset) != (
            log.log_end_offset,
            log.log_start_offset,
        ):
            self._fetch_next(follower)

    def _fetch_next(self, follower: FollowerState) -> None:
        """Fetch from the log end, once the log before it is flushed if the topic flushes first."""
        self._changed(follower)
        if not follower.awaits_flush_only:
            return
        partition = follower.partition
        partition.flush_soon()
        end = partition.log.log_end_offset
        if follower.awaited_flush != end:
            follower.awaited_flush = end
            self._pending_work += 1
            partition.add_flush_waiter(end, lambda _: self._flushed(follower, end))

    def _flushed(self, follower: FollowerState, end: int) -> None:
        if follower.awaited_flush == end:
            follower.awaited_flush = None
        self._work_done(follower)

    def _work_done(self, follower: FollowerState) -> None:
        self._pending_work -= 1
        self._changed(follower)

    def _changed(self, follower: FollowerState) -> None:
        self._session.changed(follower.key)
        self._wake.set()

    def _apply_step(self, follower: FollowerState, step: Step) -> None:
        log, now_ms = follower.partition.log, self._context.clock.now_ms()
        match step:
            case Truncation(offset):
                if offset < log.high_watermark:
                    _log.warning("truncated below the high watermark", log=repr(log), to=offset)
                self._change(follower, truncate(log, offset, now_ms=now_ms))
            case RestartLog(offset, records):
                self._change(follower, start_again(log, offset, now_ms=now_ms), records)
            case BoundsQuery():
                follower.hold()
                self._session.changed(follower.key)
                self._out_of_range.append(follower)
            case Retry(error):
                self._failed(follower, KafkaError(error))

    def _failed(self, follower: FollowerState, error: Exception) -> None:
        """Hold a partition for its backoff; for good where its log directory has failed."""
        follower.hold()
        self._session.changed(follower.key)
        if isinstance(error, LogDirFailed):
            return
        metadata_lag = isinstance(error, KafkaError) and error.code in _METADATA_LAG
        if follower.failures == (_QUIET_FAILURES if metadata_lag else 0):
            log = repr(follower.partition.log)
            _log.warning("replication failed", log=log, leader=self.leader_id, reason=str(error))
        backoff = self._backoff(follower.failures)
        follower.failures += 1
        self._backoffs.add(follower, self._context.clock.monotonic() + backoff)
        self._wake.set()

    def _release(self, follower: FollowerState) -> None:
        if not follower.stopped:
            follower.release()
            self._fetch_next(follower)

    # -- work off the event loop -----------------------------------------------------------------

    def _change(
        self, follower: FollowerState, change: Rearrangement, records: Buffer = NOTHING
    ) -> None:
        """Complete a truncation that was begun on a log, append `records`, and fetch on."""
        if change.done:
            self._fetch_next(follower)
            return
        follower.hold()
        self._session.changed(follower.key)
        work = self._complete(follower, change, records)
        self._pending_work += 1
        follower.work = asyncio.get_running_loop().create_task(work)

    async def _complete(
        self, follower: FollowerState, change: Rearrangement, records: Buffer
    ) -> None:
        try:
            while not change.done:
                await self._context.offload.submit(_QUEUE, change.run)
                change.advance()
            await self._append(follower, records)
            self._release(follower)
        except _PARTITION_ERRORS as error:
            self._failed(follower, error)
        finally:
            follower.work = None
            self._work_done(follower)

    async def _resolve_out_of_range(self, timeout: float) -> None:
        """Query the leader's log bounds for followers whose fetch offset was out of range."""
        asking, self._out_of_range = self._out_of_range, []
        try:
            bounds = await ask_bounds(self._connection, self._context.broker_id, asking, timeout)
        except BaseException:
            for follower in asking:
                self._release(follower)
            raise
        for follower, found in zip(asking, bounds, strict=True):
            if follower.stopped:
                continue
            follower.release()
            try:
                if isinstance(found, ErrorCode):
                    raise KafkaError(found)
                self._apply_step(follower, judge_bounds(follower.partition.log, *found))
            except _PARTITION_ERRORS as error:
                self._failed(follower, error)


async def ask_bounds(
    connection: LeaderConnection, broker_id: int, followers: Sequence[FollowerState], timeout: float
) -> list[Bounds | ErrorCode]:
    """Query the leader's log bounds of each partition, or an error (ListOffsets, as a replica).

    Raises PeerUnreachable.
    """
    starts = await _ask(connection, broker_id, followers, _EARLIEST, timeout)
    ends = await _ask(connection, broker_id, followers, _LATEST, timeout)
    return [
        next((each for each in (start, end) if isinstance(each, ErrorCode)), None)
        or (int(start), int(end))
        for start, end in zip(starts, ends, strict=True)
    ]


async def _ask(
    connection: LeaderConnection,
    broker_id: int,
    followers: Sequence[FollowerState],
    timestamp: int,
    timeout: float,
) -> list[int | ErrorCode]:
    topics: dict[str, ListOffsetsTopic] = {}
    for follower in followers:
        partition = follower.partition
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = ListOffsetsTopic(name=partition.topic, partitions=[])
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition.index,
                current_leader_epoch=follower.leader_epoch,
                timestamp=timestamp,
            )
        )
    request = ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))
    response = await connection.request(list_offsets.API, request, timeout=timeout)
    found = {
        (topic.name, each.partition_index): (
            ErrorCode.of(each.error_code) if each.error_code else each.offset
        )
        for topic in response.topics
        for each in topic.partitions
    }
    return [
        found.get((each.partition.topic, each.partition.index), ErrorCode.UNKNOWN_SERVER_ERROR)
        for each in followers
    ]
