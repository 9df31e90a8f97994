"""Replicas that move between the log directories of this broker (KIP-113).

A move copies the current log into a future one, step by step: what to read is chosen on the event
loop, read and written in a thread. When nothing is left the future log takes the current one's
place between two turns of the loop, so nobody who writes or reads waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.broker.clock import Clock
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.offload import Offload
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quota import ByteRate
from barnabas.config.broker import BrokerConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.errors import LogDirFailed
from barnabas.storage.future_logs import FutureLogs, has_room
from barnabas.storage.log import Log
from barnabas.storage.log_copy import append_step, follow_cut, parting
from barnabas.storage.log_dir import LogDir
from barnabas.storage.log_manager import LogManager
from barnabas.storage.log_slice import LogSlice

CHUNK_BYTES: Final = 1 << 20
"""Bytes that are read at once."""
TAIL_BYTES: Final = 1 << 18
"""The last bytes of a move, which are copied on the loop so that nothing comes after them."""
PAUSE_S: Final = 0.05
"""How long a move waits for somebody else's change of the log, or for the quota."""
_ATTEMPTS: Final = 3
"""Times in a row that a read is damaged: a cut of the log under it would be seen by then."""
_MOST_WISHES: Final = 10_000
_LANE: Final = "logs"
T = TypeVar("T")
_log = get_logger(__name__)


class Move:
    """A partition on its way into the directory of its future log."""

    def __init__(self, partition: Partition, future: Log) -> None:
        self.partition = partition
        self.future = future
        self.task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    @property
    def place(self) -> TopicPartition:
        return self.partition.topic, self.partition.index

    @property
    def stopped(self) -> bool:
        """Whether it is to end before the logs are switched."""
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()

    async def pause(self) -> None:
        """A while, unless it is stopped."""
        try:
            async with asyncio.timeout(PAUSE_S):
                await self._stop.wait()
        except TimeoutError:
            return


class LogDirMoves:
    """All moves of a broker; `num.replica.alter.log.dirs.threads` of them go on at a time."""

    def __init__(
        self,
        logs: LogManager,
        *,
        offload: Offload,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        moved: Callable[[Log, Log], None],
    ) -> None:
        """`moved` is told of a log and the one that took its place."""
        self._logs = logs
        self._futures = FutureLogs(logs)
        self._offload = offload
        self._clock = clock
        self._config = config
        self._moved = moved
        self._rate = ByteRate(
            config().alter_log_dirs_replication_quota_window_num,
            config().alter_log_dirs_replication_quota_window_size_seconds,
        )
        self._moves: dict[TopicPartition, Move] = {}
        self._waiting: deque[Move] = deque()
        self._lanes = [f"move {number}" for number in range(self._at_a_time())]
        self._turn = asyncio.Lock()
        self._closed = False

    def __len__(self) -> int:
        """Moves that have not ended."""
        return len(self._moves)

    def _at_a_time(self) -> int:
        return self._config().num_replica_alter_log_dirs_threads or len(self._logs.dirs)

    # -- beginning and ending --------------------------------------------------------------------

    async def place(
        self, place: TopicPartition, path: str, find: Callable[[str, int], Partition]
    ) -> None:
        """Have a replica lie in the directory `path`: begins to move it, or goes back.

        One that is not here yet will be made there. `find` tells of partitions as
        `ReplicaManager.partition` does. Raises KafkaError: INVALID_TOPIC_EXCEPTION (the name is too
        long for a directory's), LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, REPLICA_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        if not has_room(place):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        log_dir = self._logs.directory(path)
        async with self._turn:
            try:
                partition = find(*place)
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    self._remember(place, log_dir)
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE) from error
                raise
            future = self._logs.futures.get(place)
            if future is not None and future.log_dir is not log_dir:
                await self._end(place, delete=True)
                future = None
            log = partition.log
            if log.log_dir is log_dir:
                return
            log.log_dir.require_online()
            if future is None:
                await self._do(lambda: self._futures.create(log, log_dir))
            if place not in self._moves:
                # Also where a move has failed: its copy waits to be gone on with.
                self.begin(partition)

    def _remember(self, place: TopicPartition, log_dir: LogDir) -> None:
        wishes = self._logs.preferred
        wishes.pop(place, None)
        wishes[place] = log_dir
        if len(wishes) > _MOST_WISHES:
            del wishes[next(iter(wishes))]

    def begin(self, partition: Partition) -> None:
        """Copy a partition into its future log, where it has one."""
        future = self._logs.futures.get((partition.topic, partition.index))
        if future is None or self._closed or future.log_dir.failure is not None:
            return
        move = Move(partition, future)
        self._moves[move.place] = move
        self._waiting.append(move)
        self._go_on()

    async def stop(self, place: TopicPartition, *, delete: bool = False) -> None:
        """Return when nothing is copied any more; `delete` what was. Raises LogDirFailed."""
        async with self._turn:
            await self._end(place, delete=delete)

    async def _end(self, place: TopicPartition, *, delete: bool) -> None:
        move = self._moves.pop(place, None)
        if move is not None:
            move.stop()
            if move.task is not None:
                await move.task
        if delete and place in self._logs.futures:
            await self._offload.submit(_LANE, lambda: self._logs.drop_future(*place))

    async def close(self) -> None:
        """End all moves; the next start goes on with them."""
        self._closed = True
        for place in list(self._moves):
            await self.stop(place)

    def log_dir_failed(self, path: str) -> None:
        """Moves into a directory or out of it end."""
        for place, future in list(self._logs.futures.items()):
            move = self._moves.get(place)
            if move is not None and path in (future.log_dir.path, move.partition.log.log_dir.path):
                move.stop()
            if future.log_dir.path == path:
                del self._logs.futures[place]

    def _go_on(self) -> None:
        while self._waiting and self._lanes:
            move = self._waiting.popleft()
            if not move.stopped:
                work = self._run(move, self._lanes.pop())
                move.task = asyncio.get_running_loop().create_task(work)

    async def _run(self, move: Move, lane: str) -> None:
        try:
            await self._carry_out(move, lane)
        except LogDirFailed as error:
            _log.warning("move ended by its disk", log=repr(move.future), reason=str(error))
        except Exception as error:
            _log.error("move failed", log=repr(move.future), exc_info=error)
        finally:
            if self._moves.get(move.place) is move:
                del self._moves[move.place]
            self._lanes.append(lane)
            self._go_on()

    # -- one move --------------------------------------------------------------------------------

    async def _carry_out(self, move: Move, lane: str) -> None:
        if not await self._catch_up(move, lane):
            return
        move.future = await self._do(lambda: self._futures.settle(move.future))
        try:
            if not await self._catch_up(move, lane):
                return
            # Nothing may wait between the last record that was copied and this.
            old, new = move.partition.log, move.future
            self._futures.switch(old, new)
            move.partition.replace_log(new)
        finally:
            if move.future is self._logs.futures.get(move.place):
                move.future = await self._do(lambda: self._futures.unsettle(move.future))
        _log.info("replica moved", log=repr(new), to=new.log_dir.path)
        try:
            self._moved(old, new)
            await self._make_durable(move.partition, old.log_end_offset, lane)
        except KafkaError:
            await self._do(lambda: self._futures.retire(old, durable_elsewhere=False))
            raise
        await self._do(lambda: self._futures.retire(old, durable_elsewhere=True))

    async def _catch_up(self, move: Move, lane: str) -> bool:
        """Copy until there is nothing left in this very turn of the loop; False once stopped.

        Raises LogDirFailed, or CORRUPT_MESSAGE where the current log is damaged.
        """
        attempts = 0
        while not move.stopped:
            current, future = move.partition.log, move.future
            current.log_dir.require_online()
            if current.rearrangement is not None:
                await move.pause()
                continue
            if await self._follow_cut(current, future):
                continue
            future.advance_high_watermark(current.high_watermark)
            # The log may start within a batch, and the copy end where that one begins.
            start = max(future.log_end_offset, current.log_start_offset)
            found = current.read(start, self._chunk(), limit=current.log_end_offset)
            try:
                if len(found) <= TAIL_BYTES and found.end_offset == current.log_end_offset:
                    self._append(future, found.read_bytes())
                    if future.log_end_offset == current.log_end_offset:
                        return True
                    # Compaction took all before the end; the next record brings both together.
                    await move.pause()
                else:
                    await self._copy(move, found, lane)
                attempts = 0
            except KafkaError as error:
                attempts += 1
                if error.code is not ErrorCode.CORRUPT_MESSAGE or attempts == _ATTEMPTS:
                    raise
            await self._keep_to_quota(move, len(found))
        return False

    async def _follow_cut(self, current: Log, future: Log) -> bool:
        """Take from the future log what was taken from the current one; whether anything was."""
        start = current.segments.batch_start(current.log_start_offset)
        if parting(future, current) is None and future.log_end_offset >= start:
            return False
        now_ms = self._clock.now_ms()
        return await self._do(lambda: follow_cut(future, current, now_ms=now_ms))

    async def _copy(self, move: Move, found: LogSlice, lane: str) -> None:
        data = memoryview(await self._offload.submit(lane, found.read_bytes))
        future, now_ms = move.future, self._clock.now_ms()

        def step() -> int:
            return append_step(future, data, now_ms=now_ms)

        while data and not move.stopped:
            data = data[await self._offload.submit(lane, step) :]

    def _append(self, future: Log, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[future.append_as_follower(rest, now_ms=self._clock.now_ms()) :]

    def _chunk(self) -> int:
        return min(CHUNK_BYTES, self._config().replica_alter_log_dirs_io_max_bytes_per_second)

    async def _keep_to_quota(self, move: Move, size: int) -> None:
        self._rate.record(size, self._clock.monotonic())
        while not move.stopped and (
            self._rate.rate(self._clock.monotonic())
            > self._config().replica_alter_log_dirs_io_max_bytes_per_second
        ):
            await move.pause()

    async def _make_durable(self, partition: Partition, end: int, lane: str) -> None:
        """Return when the new log is on the medium as far as the old one went, and its start too.

        Raises LogDirFailed.
        """
        new = partition.log
        while new.flushed_offset < min(end, new.log_end_offset):
            if new.is_whole:
                job = new.begin_flush()
                await self._offload.submit(lane, job.run)
                new.finish_flush(job)
                partition.log_flushed()
            else:
                new.log_dir.require_online()
                await asyncio.sleep(PAUSE_S)
        checkpoint = self._logs.begin_checkpoint(new.log_dir)
        await self._do(checkpoint.run)
        self._logs.finish_checkpoint(checkpoint)

    async def _do(self, work: Callable[[], T]) -> T:
        return await self._offload.submit(_LANE, work)
