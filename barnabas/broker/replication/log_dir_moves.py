"""Moves of replicas between the log directories of this broker (KIP-113).

A move copies the current log into a future log in steps: the event loop chooses the range, a thread
reads and writes it. Once all records are copied the future log replaces the current one within one
iteration of the event loop, so producers and consumers do not wait for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.broker.loop.offload import Offload
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quota import ByteRate
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.ports import Clock
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_copy import append_step, divergence, follow_truncation
from barnabas.storage.log.log_slice import LogSlice
from barnabas.storage.opening.future_logs import FutureLogs, can_be_named
from barnabas.storage.opening.log_manager import LogManager

CHUNK_BYTES: Final = 1 << 20
"""Bytes per read."""
TAIL_BYTES: Final = 1 << 18
"""Size of the last read, which is copied on the loop so that no record is appended after it."""
PAUSE_S: Final = 0.05
"""Time between two looks of a move that waits for another change of the log, or for the quota."""
_ATTEMPTS: Final = 3
"""Corrupt reads in a row that fail a move. Fewer may come from a truncation during the read."""
_MAX_PREFERRED: Final = 10_000
"""Preferred directories that are kept for replicas that do not exist here yet."""
_QUEUE: Final = "logs"
T = TypeVar("T")
_log = get_logger(__name__)


class Move:
    """The move of one partition into the directory of its future log."""

    def __init__(self, partition: Partition, future: Log) -> None:
        self.partition = partition
        self.future = future
        self.task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.index)

    @property
    def stopped(self) -> bool:
        """Whether it was told to end before the logs are switched."""
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()

    async def pause(self) -> None:
        """Wait for `PAUSE_S`, or until the move is stopped."""
        try:
            async with asyncio.timeout(PAUSE_S):
                await self._stop.wait()
        except TimeoutError:
            return


class LogDirMoves:
    """All moves of a broker; `num.replica.alter.log.dirs.threads` of them run at a time."""

    def __init__(
        self,
        logs: LogManager,
        *,
        offload: Offload,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        moved: Callable[[Log, Log], None],
    ) -> None:
        """`moved` is called with the old log and the log that replaced it."""
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
        self._queues = [f"move {number}" for number in range(self._concurrency())]
        self._changes = asyncio.Lock()
        self._closed = False

    def __len__(self) -> int:
        """Return the number of moves that have not ended."""
        return len(self._moves)

    def _concurrency(self) -> int:
        return self._config().num_replica_alter_log_dirs_threads or len(self._logs.dirs)

    # -- start and end ---------------------------------------------------------------------------

    async def alter(
        self, topic_partition: TopicPartition, path: str, find: Callable[[str, int], Partition]
    ) -> None:
        """Move a replica to the directory `path`; a move to another directory ends.

        A replica that does not exist here yet will be created there. `find` returns partitions as
        `ReplicaManager.partition` does. Raises KafkaError: INVALID_TOPIC_EXCEPTION (the name is too
        long for a directory's), LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, REPLICA_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        if not can_be_named(topic_partition):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        log_dir = self._logs.directory(path)
        async with self._changes:
            try:
                partition = find(*topic_partition)
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    self._prefer(topic_partition, log_dir)
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE) from error
                raise
            future = self._logs.futures.get(topic_partition)
            if future is not None and future.log_dir is not log_dir:
                await self._end(topic_partition, delete=True)
                future = None
            log = partition.log
            if log.log_dir is log_dir:
                return
            log.log_dir.require_online()
            if future is None:
                await self._submit(lambda: self._futures.create(log, log_dir))
            if topic_partition not in self._moves:
                # A failed move has left its future log: the new move continues that copy.
                self.begin(partition)

    def _prefer(self, topic_partition: TopicPartition, log_dir: LogDir) -> None:
        preferred = self._logs.preferred
        preferred.pop(topic_partition, None)
        preferred[topic_partition] = log_dir
        if len(preferred) > _MAX_PREFERRED:
            del preferred[next(iter(preferred))]

    def begin(self, partition: Partition) -> None:
        """Start the move of a partition that has a future log."""
        future = self._logs.futures.get((partition.topic, partition.index))
        if future is None or self._closed or future.log_dir.failure is not None:
            return
        move = Move(partition, future)
        self._moves[move.topic_partition] = move
        self._waiting.append(move)
        self._start_waiting()

    async def stop(self, topic_partition: TopicPartition, *, delete: bool = False) -> None:
        """Stop a move and return when it has ended; `delete` drops its future log too.

        Raises LogDirFailed.
        """
        async with self._changes:
            await self._end(topic_partition, delete=delete)

    async def _end(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.stop()
            if move.task is not None:
                await move.task
        if delete and topic_partition in self._logs.futures:
            await self._offload.submit(_QUEUE, lambda: self._logs.drop_future(*topic_partition))

    async def close(self) -> None:
        """Stop all moves; the next start of the broker continues them."""
        self._closed = True
        for topic_partition in list(self._moves):
            await self.stop(topic_partition)

    def log_dir_failed(self, path: str) -> None:
        """Stop all moves into or out of a failed directory."""
        for topic_partition, future in list(self._logs.futures.items()):
            move = self._moves.get(TopicPartition(*topic_partition))
            if move is not None and path in (future.log_dir.path, move.partition.log.log_dir.path):
                move.stop()
            if future.log_dir.path == path:
                del self._logs.futures[topic_partition]

    def _start_waiting(self) -> None:
        while self._waiting and self._queues:
            move = self._waiting.popleft()
            if not move.stopped:
                work = self._run(move, self._queues.pop())
                move.task = asyncio.get_running_loop().create_task(work)

    async def _run(self, move: Move, queue: str) -> None:
        try:
            await self._execute(move, queue)
        except LogDirFailed as error:
            _log.warning(
                "replica move ended: log directory failed", log=repr(move.future), reason=str(error)
            )
        except Exception as error:
            _log.error("replica move failed", log=repr(move.future), exc_info=error)
        finally:
            if self._moves.get(move.topic_partition) is move:
                del self._moves[move.topic_partition]
            self._queues.append(queue)
            self._start_waiting()

    # -- one move --------------------------------------------------------------------------------

    async def _execute(self, move: Move, queue: str) -> None:
        if not await self._catch_up(move, queue):
            return
        move.future = await self._submit(lambda: self._futures.rename_to_current(move.future))
        try:
            if not await self._catch_up(move, queue):
                return
            # No await may stand between the copy of the last record and this switch.
            old, new = move.partition.log, move.future
            self._futures.switch(old, new)
            move.partition.replace_log(new)
        finally:
            if move.future is self._logs.futures.get(move.topic_partition):
                move.future = await self._submit(
                    lambda: self._futures.rename_to_future(move.future)
                )
        _log.info("replica moved", log=repr(new), to=new.log_dir.path)
        try:
            self._moved(old, new)
            await self._make_durable(move.partition, old.log_end_offset, queue)
        except KafkaError:
            await self._submit(lambda: self._futures.retire(old, durable_elsewhere=False))
            raise
        await self._submit(lambda: self._futures.retire(old, durable_elsewhere=True))

    async def _catch_up(self, move: Move, queue: str) -> bool:
        """Copy until both logs are equal, in the same iteration of the loop; False once stopped.

        Raises LogDirFailed, or CORRUPT_MESSAGE where the current log is damaged.
        """
        attempts = 0
        while not move.stopped:
            current, future = move.partition.log, move.future
            current.log_dir.require_online()
            if current.rearrangement is not None:
                await move.pause()
                continue
            if await self._follow_truncation(current, future):
                continue
            future.advance_high_watermark(current.high_watermark)
            # The log may start within a batch, and the copy may end at the start of that batch.
            start = max(future.log_end_offset, current.log_start_offset)
            found = current.read(start, self._chunk(), limit=current.log_end_offset)
            try:
                if len(found) <= TAIL_BYTES and found.end_offset == current.log_end_offset:
                    self._append(future, found.read_bytes())
                    if future.log_end_offset == current.log_end_offset:
                        return True
                    # Compaction removed all records before the end: the next append evens it out.
                    await move.pause()
                else:
                    await self._copy(move, found, queue)
                attempts = 0
            except KafkaError as error:
                attempts += 1
                if error.code is not ErrorCode.CORRUPT_MESSAGE or attempts == _ATTEMPTS:
                    raise
            await self._keep_to_quota(move, len(found))
        return False

    async def _follow_truncation(self, current: Log, future: Log) -> bool:
        """Truncate the future log as the current log was; True where it had to be."""
        start = current.segments.batch_start(current.log_start_offset)
        if divergence(future, current) is None and future.log_end_offset >= start:
            return False
        now_ms = self._clock.now_ms()
        return await self._submit(lambda: follow_truncation(future, current, now_ms=now_ms))

    async def _copy(self, move: Move, found: LogSlice, queue: str) -> None:
        data = memoryview(await self._offload.submit(queue, found.read_bytes))
        future, now_ms = move.future, self._clock.now_ms()

        def step() -> int:
            return append_step(future, data, now_ms=now_ms)

        while data and not move.stopped:
            data = data[await self._offload.submit(queue, step) :]

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

    async def _make_durable(self, partition: Partition, end: int, queue: str) -> None:
        """Return when the new log is fsynced up to the old log's end, and its start checkpointed.

        Raises LogDirFailed.
        """
        new = partition.log
        while new.flushed_offset < min(end, new.log_end_offset):
            if new.is_whole:
                job = new.begin_flush()
                await self._offload.submit(queue, job.run)
                new.finish_flush(job)
                partition.log_flushed()
            else:
                new.log_dir.require_online()
                await asyncio.sleep(PAUSE_S)
        checkpoint = self._logs.begin_checkpoint(new.log_dir)
        await self._submit(checkpoint.run)
        self._logs.finish_checkpoint(checkpoint)

    async def _submit(self, work: Callable[[], T]) -> T:
        return await self._offload.submit(_QUEUE, work)
