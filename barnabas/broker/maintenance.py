"""The periodic tasks of a broker: retention, flush, checkpoints, compaction, idle connections.

Decisions run on the event loop; disk operations and the cleaner's process run outside it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.loop.offload import Offload
from barnabas.broker.loop.periodic_tasks import PeriodicTasks
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server import listener
from barnabas.broker.server.limits import budget, connection_limits
from barnabas.broker.server.limits.budget import RequestMemory
from barnabas.broker.server.limits.connection_limits import ConnectionLimits
from barnabas.broker.server.listener import ServedListener
from barnabas.broker.server.tls import Certificates
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.ports import Clock
from barnabas.metrics.catalogue import LogMetrics
from barnabas.metrics.registry import Cell
from barnabas.protocol.errors import KafkaError
from barnabas.storage.cleaning.cleaner import CompactionLimits, CompactionRun, LogCleaner
from barnabas.storage.cleaning.compaction_job import CompactionFailed
from barnabas.storage.files.errors import LogDirFailed, OutOfDescriptors
from barnabas.storage.log.log import Log
from barnabas.storage.log.rearrangement import Rearrangement
from barnabas.storage.log.trim import drop_old_segments
from barnabas.storage.opening.log_manager import LogManager

if TYPE_CHECKING:
    from barnabas.broker.server.sasl import ListenerSasl, Refresh

REMOVAL_MS = 5_000
"""Milliseconds between two removals of deleted files whose delay is over."""
ROLLED_FLUSH_MS = 5_000
"""Milliseconds between two flushes of rolled segments; recovery after a crash skips flushed
ones."""
FLUSH_WAIT_S = 5.0
"""Seconds for which compaction waits for the flush of closed segments."""
FLUSH_CHECK_MS = 1_000
"""Milliseconds, at most, between two searches for records that have waited for flush.ms."""
SPACE_MS = 10_000
"""Milliseconds between two looks at the free space of the log directories, for metrics."""
SWEEP_MS = 30_000
"""Milliseconds, at most, between two sweeps of the connections."""
CERTIFICATES_MS = 10_000
"""Milliseconds between two looks at the files of certificates."""
EXPIRY_MS = 24 * 60 * 60 * 1000
"""Milliseconds between two warnings of a certificate that expires soon."""
_LOGS_IN_A_TURN = 200
"""Logs that retention checks, at one or two microseconds each, before the loop runs other tasks."""
_QUEUE, _CLEANER_QUEUE = "logs", "cleaner"
_log = get_logger(__name__)


class LogTasks:
    """The periodic tasks of logs."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        flusher: Flusher,
        offload: Offload,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        transactions_passed: Cell,
    ) -> None:
        """`transactions_passed` counts open transactions whose first records retention deleted."""
        self._transactions_passed = transactions_passed
        self._logs = logs
        self._replicas = replicas
        self._flusher = flusher
        self._offload = offload
        self._clock = clock
        self._config = config
        self._unflushed_since: dict[Partition, int] = {}

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register all tasks."""
        config = self._config
        tasks.every("retention", lambda: config().log_retention_check_interval_ms, self.retain)
        tasks.every("removal", lambda: REMOVAL_MS, self.remove)
        tasks.every("checkpoint", self._checkpoint_interval, self.checkpoint)
        tasks.every("flush of rolled logs", lambda: ROLLED_FLUSH_MS, self.flush_rolled)
        tasks.every(
            "flush by time",
            lambda: min(FLUSH_CHECK_MS, config().log_flush_scheduler_interval_ms),
            self.flush_by_time,
        )
        tasks.every(
            "producer expiry",
            lambda: config().producer_id_expiration_check_interval_ms,
            self.expire_producers,
        )

    def _checkpoint_interval(self) -> int:
        config = self._config()
        return min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
        )

    def _online(self) -> list[Log]:
        return [log for log in self._logs.logs if log.log_dir.failure is None]

    async def retain(self) -> None:
        """Delete the segments that retention.ms, retention.bytes or DeleteRecords allow to
        delete."""
        now_ms = self._clock.now_ms()
        for number, log in enumerate(self._online()):
            if number % _LOGS_IN_A_TURN == 0:
                await asyncio.sleep(0)
            if log.closed or log.rearrangement is not None:
                # The log was closed in the meantime, or is being compacted: its turn is the next
                # run.
                continue
            try:
                start = log.log_start_offset
                change = drop_old_segments(log, now_ms=now_ms)
                if change is not None:
                    self._tell_of_transactions(log, start)
                    self._replicas.log_start_moved(log)
                    await _carry_out(change, self._offload, _QUEUE)
            except (LogDirFailed, OutOfDescriptors):
                # The replica manager knows of the failure; continue with the logs of other
                # directories. A log without a descriptor is checked again by the next run.
                continue

    def _tell_of_transactions(self, log: Log, old_start: int) -> None:
        """Log that retention passed open transactions. It does not wait for them, so a hanging
        transaction cannot fill the disk."""
        passed = log.producers.opened_in(old_start, log.log_start_offset)
        if passed:
            self._transactions_passed.value += len(passed)
            _log.warning(
                "retention passed open transactions",
                topic=log.topic,
                partition=log.partition,
                producer_ids=passed,
                log_start_offset=log.log_start_offset,
            )

    async def remove(self) -> None:
        """Unlink deleted files after file.delete.delay.ms, which protects slow readers."""
        paths = self._logs.due_removals()
        if paths:
            await self._offload.submit(_QUEUE, lambda: self._logs.remove(paths))

    async def checkpoint(self) -> None:
        """Write the checkpoints of recovery points, log start offsets and high watermarks."""
        for log_dir in self._logs.online_dirs:
            # Without a descriptor the last checkpoint stays.
            with suppress(OutOfDescriptors):
                await self._replicas.checkpoint(log_dir)

    async def flush_rolled(self) -> None:
        """Flush closed segments and producer snapshots, so recovery after a crash need not scan
        them."""
        for log in self._logs.rolled:
            if not log.awaits_flush:
                self._logs.rolled.discard(log)
            elif (partition := self._replicas.find((log.topic, log.partition))) is not None:
                self._flusher.request(partition)

    async def flush_by_time(self) -> None:
        """Flush logs whose records have waited for flush.ms."""
        now_ms, waiting = self._clock.now_ms(), {}
        for partition in self._replicas.flushed_by_time:
            log = partition.log
            if log.flushed_offset < log.log_end_offset:
                since = waiting[partition] = self._unflushed_since.get(partition, now_ms)
                if now_ms - since >= log.config.flush_ms:
                    self._flusher.request(partition)
        self._unflushed_since = waiting

    async def expire_producers(self) -> None:
        """Remove idempotent producers that have been idle for producer.id.expiration.ms."""
        now_ms = self._clock.now_ms()
        expiration_ms = self._config().producer_id_expiration_ms
        for log in self._online():
            for _ in log.producers.expire(now_ms, expiration_ms):
                # A partition may have hundreds of thousands.
                await asyncio.sleep(0)


class SpaceTask:
    """The look at the space of the log directories. A disk that hangs holds no scrape."""

    def __init__(self, logs: LogManager, offload: Offload, metrics: LogMetrics) -> None:
        self._logs = logs
        self._offload = offload
        self._metrics = metrics

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register the task."""
        tasks.every("space", lambda: SPACE_MS, self.look)

    async def look(self) -> None:
        """Ask for the space of each directory; one that has failed is no longer reported."""
        free, volume = self._metrics.free_bytes, self._metrics.volume_bytes
        for log_dir in self._logs.dirs:
            path = log_dir.path
            try:
                space = await self._offload.submit(_QUEUE, partial(self._logs.space, log_dir))
            except LogDirFailed:
                free.remove(path)
                volume.remove(path)
            else:
                volume.cell(path).value, free.cell(path).value = space


class CleanerTask:
    """The compaction task: one log at a time, in the cleaner's process."""

    def __init__(
        self,
        cleaner: LogCleaner,
        logs: LogManager,
        replicas: ReplicaManager,
        offload: Offload,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._cleaner = cleaner
        self._logs = logs
        self._replicas = replicas
        self._offload = offload
        self._clock = clock
        self._config = config

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register the task; it waits for log.cleaner.backoff.ms when no log is dirty."""
        tasks.every("compaction", lambda: self._config().log_cleaner_backoff_ms, self.clean)

    async def clean(self) -> None:
        """Compact until no log needs it."""
        await self._flush_closed()
        behind = [log.log_dir for log in self._compacted() if _has_more_to_compact(log)]
        for log_dir in dict.fromkeys(behind):
            await self._replicas.checkpoint(log_dir)
        while (cleaning := self._start()) is not None:
            try:
                await self._swap_groups(cleaning)
            except CompactionFailed as error:
                _log.warning("compaction failed", log=repr(cleaning.log), reason=str(error))
                self._cleaner.fail(cleaning, error)
                return
            self._cleaner.finish(cleaning)
            await self._offload.submit(_QUEUE, self._cleaner.checkpoint(cleaning.log.log_dir.path))

    async def _flush_closed(self) -> None:
        """Flush the logs whose closed segments are not durable: only what is durable is compacted.

        Without this they wait for the flush of rolled logs, and then for the next run.
        """
        loop, waits = asyncio.get_running_loop(), []
        for log in self._compacted():
            active = log.segments.active.base_offset
            if log.flushed_offset > active or len(log.segments) == 1 or not log.is_whole:
                continue
            partition = self._replicas.find((log.topic, log.partition))
            if partition is not None and log.log_end_offset > active:
                done = loop.create_future()
                partition.add_flush_waiter(active + 1, partial(_end_wait, done))
                partition.flush_soon()
                waits.append(done)
        if waits:
            # A flush that finds no descriptor is tried again later.
            await asyncio.wait(waits, timeout=FLUSH_WAIT_S)

    def _start(self) -> CompactionRun | None:
        config = self._config()
        if not config.log_cleaner_enable:
            return None
        limits = CompactionLimits(
            config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_max_bytes_per_second
        )
        return self._cleaner.start(self._compacted(), limits, self._clock.now_ms())

    def _compacted(self) -> list[Log]:
        """Return the logs of compacted topics that are online."""
        return [
            log for log in self._logs.logs if log.config.compacted and log.log_dir.failure is None
        ]

    async def _swap_groups(self, cleaning: CompactionRun) -> None:
        while (
            group := await self._offload.submit(_CLEANER_QUEUE, cleaning.next_group)
        ) is not None:
            change = self._cleaner.swap(cleaning, group)
            await _carry_out(change, self._offload, _CLEANER_QUEUE)


def _end_wait(done: "asyncio.Future[None]", _error: KafkaError | None) -> None:
    done.set_result(None)


async def _carry_out(change: Rearrangement, offload: Offload, queue: str) -> None:
    """Rearrange a log's segments, with all disk operations outside the event loop."""
    while not change.done:
        await offload.submit(queue, change.run)
        change.advance()


def _has_more_to_compact(log: Log) -> bool:
    """Return whether closed, flushed segments of a compacted log need a checkpoint before they can
    be compacted."""
    closed = log.segments.active.base_offset + 1
    return min(closed, log.flushed_offset) > log.recovery_point


class CertificateTasks:
    """The periodic tasks of certificates: they are read again when their files have changed."""

    def __init__(
        self,
        certificates: Sequence[Certificates],
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._certificates = certificates
        self._clock = clock
        self._config = config

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register the tasks, if there is a certificate."""
        if self._certificates:
            tasks.every("certificates", lambda: CERTIFICATES_MS, self.reload)
            tasks.every("expiry of certificates", lambda: EXPIRY_MS, self.warn_of_expiry)

    async def reload(self, *, unchanged_too: bool = False) -> None:
        """Read the certificates whose keys or files have changed."""
        config = self._config()
        for each in self._certificates:
            if await each.reload(config.tls_of(each.listener), unchanged_too=unchanged_too):
                each.warn_of_expiry(self._clock.now_ms())

    async def warn_of_expiry(self) -> None:
        """Log a warning of each certificate that expires soon."""
        for each in self._certificates:
            each.warn_of_expiry(self._clock.now_ms())


class SaslTasks:
    """The periodic tasks of SASL mechanisms, such as the fetch of keys."""

    def __init__(self, listeners: Sequence[ServedListener]) -> None:
        self._sasl = {each.name: each.sasl for each in listeners if each.sasl is not None}

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register a task for each listener with SASL: its mechanisms may change."""
        for name, sasl in self._sasl.items():
            tasks.every(
                f"SASL of {name}", partial(self._interval_ms, sasl), partial(self._run, sasl)
            )

    async def begin(self) -> None:
        """Run each task once: keys are there before the first client, or the log tells."""
        for sasl in self._sasl.values():
            await self._run(sasl)

    @staticmethod
    def _interval_ms(sasl: "ListenerSasl") -> int:
        intervals = [each.interval_ms() for each in _refreshes(sasl)]
        return min(intervals, default=EXPIRY_MS)

    @staticmethod
    async def _run(sasl: "ListenerSasl") -> None:
        for each in _refreshes(sasl):
            await each.run()


def _refreshes(sasl: "ListenerSasl") -> "list[Refresh]":
    return [each.refresh for each in sasl.mechanisms.values() if each.refresh is not None]


class ConnectionTasks:
    """The periodic tasks that close idle and slow connections."""

    def __init__(
        self,
        listeners: Sequence[ServedListener],
        memories: Sequence[RequestMemory],
        limits: ConnectionLimits,
        expired: Cell,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        release_files: Callable[[], bool],
    ) -> None:
        """`release_files` closes files of idle partitions, for connections without a descriptor;
        it returns whether there are such files."""
        self._release_files = release_files
        self._listeners = listeners
        self._memories = memories
        self._limits = limits
        self._expired = expired
        self._clock = clock
        self._config = config

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register the tasks; none outlives connections.max.idle.ms by more than a quarter."""
        tasks.every("connections", self._interval, self.sweep)
        tasks.every("newcomers", lambda: connection_limits.ROUND_MS, self.make_way)
        tasks.every("slow requests", lambda: budget.ROUND_MS, self.cut_slow)
        tasks.every("half-sent requests", lambda: listener.HALF_SENT_ROUND_MS, self.cut_half_sent)

    def _interval(self) -> int:
        max_idle_ms = self._config().connections_max_idle_ms
        return SWEEP_MS if max_idle_ms < 0 else max(1, min(SWEEP_MS, max_idle_ms // 4))

    async def sweep(self) -> None:
        """Close idle and stuck connections."""
        max_idle = self._config().connections_max_idle_ms / 1000
        for each in self._listeners:
            self._expired.value += each.sweep(self._clock.monotonic(), max_idle)

    async def cut_slow(self) -> None:
        """Close connections that hold memory for which others wait."""
        self._expired.value += sum(memory.cut_slow() for memory in self._memories)

    async def make_way(self) -> None:
        """Close files of idle partitions for new connections that wait; if there are none, close
        connections that stand."""
        if any(each.starved for each in self._listeners) and self._release_files():
            return
        self._expired.value += self._limits.make_way(self._clock.monotonic())

    async def cut_half_sent(self) -> None:
        """Close connections whose incomplete request brings too little."""
        for each in self._listeners:
            self._expired.value += each.cut_half_sent()
