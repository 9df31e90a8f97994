"""One line to a leader: fetches all that is followed over it, one request at a time.

Between two awaits a partition is looked at, and acted on only if it is followed still. What an
answer brings is appended in slices, so that a large one does not hold the event loop.
"""

import asyncio
from collections.abc import Iterator
from math import ceil
from typing import Final

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.peers.peer import PeerUnreachable
from barnabas.broker.replication import pauses
from barnabas.broker.replication.fetching_session import FetchingSession, Key
from barnabas.broker.replication.follower import (
    NOTHING,
    Append,
    AskBounds,
    Following,
    Retry,
    StartAgain,
    Step,
    Truncate,
    judge,
    judge_bounds,
)
from barnabas.broker.replication.leader_bounds import ask_bounds
from barnabas.broker.replication.means import Line, Means
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.pauses import Pauses
from barnabas.broker.replication.quota import ByteRate
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from barnabas.protocol.records.batch import CorruptRecordError
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.errors import LogDirFailed
from barnabas.storage.rearrangement import Rearrangement
from barnabas.storage.truncation import start_again, truncate

VERSION: Final = 17
SLICE_S: Final = 0.002
"""How long an answer is worked on before others have their turn."""
SLICE_BATCHES: Final = 64
SETTLE_S: Final = 0.1
"""How long a request waits for fsyncs and cuts of logs that are under way."""
_LANE: Final = "logs"
_HEARSAY: Final = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""One of the two brokers has not heard yet what the controller decided."""
_OF_ONE_PARTITION: Final = (KafkaError, CorruptRecordError)
"""Errors that hold up no other partition: also of a log here that is damaged where it is cut."""
_PATIENCE: Final = 4
"""Times in a row that this is nothing to tell anybody."""
_log = get_logger(__name__)


class Fetcher:
    """Fetches from one leader over one line, as long as `run` runs."""

    def __init__(self, leader_id: int, line: Line, means: Means) -> None:
        self.leader_id = leader_id
        self._line = line
        self._means = means
        self._session = FetchingSession(means.config().replica_fetch_max_bytes)
        self._followings: dict[Key, Following] = {}
        self._throttled: list[Following] = []
        self._out_of_range: list[Following] = []
        self._bytes_in = means.metrics.bytes_in.cell()
        self._reassignment_bytes_in = means.metrics.reassignment_bytes_in.cell()
        self._pauses = Pauses()
        self._unsettled = 0
        """Fsyncs and cuts of logs that are under way."""
        self._wake = asyncio.Event()
        self._failures = 0
        self._turn_ends = 0.0
        self.requests = ByteRate(6, 10.0)
        """How many requests were made of late."""

    def __len__(self) -> int:
        return len(self._followings)

    def __iter__(self) -> Iterator[Following]:
        return iter(self._followings.values())

    def add(self, following: Following) -> None:
        """Fetch a partition from now on."""
        self._followings[following.key] = following
        self._go_on(following)

    def remove(self, following: Following) -> None:
        """Fetch it no more; it has been stopped."""
        if self._followings.get(following.key) is following:
            del self._followings[following.key]
            self._changed(following)

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            try:
                await self._round()
            except (PeerUnreachable, KafkaError) as error:
                if not self._failures:
                    _log.warning("cannot fetch", leader=self.leader_id, reason=str(error))
                await self._begin_anew()
            except Exception as error:
                _log.error("fetching from a leader failed", leader=self.leader_id, exc_info=error)
                await self._begin_anew()
            else:
                self._failures = 0

    async def close(self) -> None:
        """Let the line go, after `run` has ended."""
        await self._line.close()

    # -- asking ----------------------------------------------------------------------------------

    async def _round(self) -> None:
        """Ask, and do what the answer says; or wait until there is something to ask for."""
        config = self._means.config()
        for following in self._pauses.over(self._means.clock.monotonic()):
            self._release(following)
        if self._session.begins:
            self._have_all_flushed()
        await self._settle()
        self._throttle()
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._means.broker_id, replica_epoch=self._means.broker_epoch()
            ),
            max_wait_ms=self._longest_wait_ms(),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            topics=[],
        )
        self._wake.clear()
        if not self._session.ask(self._followings, request):
            await self._wait()
            return
        timeout = config.replica_socket_timeout_ms / 1000
        response = await self._line.request(fetch.API, request, version=VERSION, timeout=timeout)
        self.requests.record(1, self._means.clock.monotonic())
        if self._session.answered(response):
            await self._take(response)
        elif response.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            raise KafkaError(ErrorCode.of(response.error_code))
        if self._out_of_range:
            await self._find_bounds(timeout)

    def _have_all_flushed(self) -> None:
        """What is not ready now is left out of the new session, until somebody says that it is."""
        for following in self._followings.values():
            if following.lacks_only_a_flush:
                self._go_on(following)

    async def _settle(self) -> None:
        """Let fsyncs and cuts end that end soon: what a request leaves out has to wait for the
        answer, which may come late where all others are quiet."""
        try:
            async with asyncio.timeout(SETTLE_S):
                while self._unsettled:
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return

    def _longest_wait_ms(self) -> int:
        """How long the leader may keep an answer: no longer than somebody here wants to wait."""
        longest = self._means.config().replica_fetch_wait_max_ms
        left = SETTLE_S if self._unsettled else self._pauses.left(self._means.clock.monotonic())
        return longest if left is None else min(longest, ceil(left * 1000))

    async def _wait(self) -> None:
        """Until a partition wants something, a pause is over, or the quota may allow more."""
        left = self._pauses.left(self._means.clock.monotonic())
        if self._throttled:
            longest = self._means.config().replica_fetch_backoff_ms / 1000
            left = longest if left is None else min(left, longest)
        try:
            async with asyncio.timeout(left):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _begin_anew(self) -> None:
        """After an error: pause, and ask for everything."""
        self._session.restart()
        pause = self._pause(self._failures)
        self._failures += 1
        await asyncio.sleep(pause)

    def _pause(self, failures: int) -> float:
        return pauses.length(failures, self._means.config().replica_fetch_backoff_ms / 1000)

    def _throttle(self) -> None:
        """Leave partitions that are out of sync out while the quota is exceeded (KIP-73)."""
        quota, throttled = self._means.quota, self._throttled
        if quota.exceeded(self._means.clock.monotonic()):
            for following in self._followings.values():
                place = following.partition.topic, following.partition.index
                if following.lag != 0 and following.ready and quota.is_throttled(*place):
                    following.hold()
                    throttled.append(following)
                    self._session.changed(following.key)
        elif throttled:
            self._throttled = []
            for following in throttled:
                self._release(following)

    # -- what the answer says --------------------------------------------------------------------

    async def _take(self, response: FetchResponse) -> None:
        throttled_bytes = 0
        self._begin_turn()
        for topic in response.responses:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                following, asked = self._followings.get(key), self._session.asked(key)
                if following is None or asked is None or not following.answers(asked):
                    # It was moved, cut or held meanwhile, and wants something else by now.
                    continue
                await self._follow(following, answer, asked)
                if size := len(answer.records or NOTHING):
                    throttled_bytes += self._count(following.partition, size)
                await self._end_turn()
        if throttled_bytes:
            self._means.quota.record(throttled_bytes, self._means.clock.monotonic())

    def _count(self, partition: Partition, size: int) -> int:
        """Count what came in; the bytes of it that the quota is for."""
        self._bytes_in.value += size
        if self._means.broker_id in partition.adding:
            self._reassignment_bytes_in.value += size
        return size if self._means.quota.is_throttled(partition.topic, partition.index) else 0

    def _begin_turn(self) -> None:
        self._turn_ends = self._means.clock.monotonic() + SLICE_S

    async def _end_turn(self) -> None:
        """Let others go on, if this has taken long."""
        if self._means.clock.monotonic() >= self._turn_ends:
            await asyncio.sleep(0)
            self._begin_turn()

    async def _follow(
        self, following: Following, answer: PartitionData, asked: FetchPartition
    ) -> None:
        try:
            step = judge(following.partition.log, answer)
            if isinstance(step, Append):
                await self._append(following, step.records)
                if not following.stopped:
                    following.learn(answer)
                    self._followed(following, asked)
            else:
                self._carry_out(following, step)
        except _OF_ONE_PARTITION as error:
            self._failed(following, error)

    async def _append(self, following: Following, records: Buffer) -> None:
        taken, partition = 0, following.partition
        while taken < len(records) and not following.stopped:
            taken += partition.append_as_follower(
                records[taken:],
                now_ms=self._means.clock.now_ms(),
                max_batches=SLICE_BATCHES,
            )
            if taken < len(records):
                await self._end_turn()

    def _followed(self, following: Following, asked: FetchPartition) -> None:
        """Where nothing has changed the session need not be told."""
        log = following.partition.log
        if (asked.fetch_offset, asked.log_start_offset) != (
            log.log_end_offset,
            log.log_start_offset,
        ):
            self._go_on(following)

    def _go_on(self, following: Following) -> None:
        """Ask for what comes next, once all before it may be counted as here."""
        self._changed(following)
        if not following.lacks_only_a_flush:
            return
        partition = following.partition
        partition.flush_soon()
        end = partition.log.log_end_offset
        if following.awaited_flush != end:
            following.awaited_flush = end
            self._unsettled += 1
            partition.add_flush_waiter(end, lambda _: self._flushed(following, end))

    def _flushed(self, following: Following, end: int) -> None:
        if following.awaited_flush == end:
            following.awaited_flush = None
        self._settled(following)

    def _settled(self, following: Following) -> None:
        self._unsettled -= 1
        self._changed(following)

    def _changed(self, following: Following) -> None:
        self._session.changed(following.key)
        self._wake.set()

    def _carry_out(self, following: Following, step: Step) -> None:
        log, now_ms = following.partition.log, self._means.clock.now_ms()
        match step:
            case Truncate(offset):
                if offset < log.high_watermark:
                    _log.warning("truncated below the high watermark", log=repr(log), to=offset)
                self._change(following, truncate(log, offset, now_ms=now_ms))
            case StartAgain(offset, records):
                self._change(following, start_again(log, offset, now_ms=now_ms), records)
            case AskBounds():
                following.hold()
                self._session.changed(following.key)
                self._out_of_range.append(following)
            case Retry(error):
                self._failed(following, KafkaError(error))

    def _failed(self, following: Following, error: Exception) -> None:
        """Leave a partition alone for a while; for good where its disk is gone."""
        following.hold()
        self._session.changed(following.key)
        if isinstance(error, LogDirFailed):
            return
        hearsay = isinstance(error, KafkaError) and error.code in _HEARSAY
        if following.failures == (_PATIENCE if hearsay else 0):
            place = repr(following.partition.log)
            _log.warning("cannot follow", log=place, leader=self.leader_id, reason=str(error))
        pause = self._pause(following.failures)
        following.failures += 1
        self._pauses.add(following, self._means.clock.monotonic() + pause)
        self._wake.set()

    def _release(self, following: Following) -> None:
        if not following.stopped:
            following.release()
            self._go_on(following)

    # -- what takes longer -----------------------------------------------------------------------

    def _change(
        self, following: Following, change: Rearrangement, records: Buffer = NOTHING
    ) -> None:
        """Complete what was begun on a log, and ask for what comes next then."""
        if change.done:
            self._go_on(following)
            return
        following.hold()
        self._session.changed(following.key)
        work = self._complete(following, change, records)
        self._unsettled += 1
        following.work = asyncio.get_running_loop().create_task(work)

    async def _complete(self, following: Following, change: Rearrangement, records: Buffer) -> None:
        try:
            while not change.done:
                await self._means.offload.submit(_LANE, change.run)
                change.advance()
            await self._append(following, records)
            self._release(following)
        except _OF_ONE_PARTITION as error:
            self._failed(following, error)
        finally:
            following.work = None
            self._settled(following)

    async def _find_bounds(self, timeout: float) -> None:
        """Ask where the leader's logs begin and end that have nothing at their followers' ends."""
        asking, self._out_of_range = self._out_of_range, []
        try:
            bounds = await ask_bounds(self._line, self._means.broker_id, asking, timeout)
        except BaseException:
            for following in asking:
                self._release(following)
            raise
        for following, found in zip(asking, bounds, strict=True):
            if following.stopped:
                continue
            following.release()
            try:
                if isinstance(found, ErrorCode):
                    raise KafkaError(found)
                self._carry_out(following, judge_bounds(following.partition.log, *found))
            except _OF_ONE_PARTITION as error:
                self._failed(following, error)
