"""The chores of a broker: retention, flushes that are due, checkpoints, compaction, idle peers.

What decides runs on the loop; what waits for the disk or for the cleaner's process leaves it.
"""

import asyncio
from collections.abc import Callable, Sequence

from barnabas.broker.clock import Clock
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.offload import Offload
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.rounds import Rounds
from barnabas.broker.server import budget
from barnabas.broker.server.budget import RequestMemory
from barnabas.broker.server.listener import Listener
from barnabas.config.broker import BrokerConfig
from barnabas.metrics.registry import Cell
from barnabas.storage.cleaner import Cleaning, Limits, LogCleaner
from barnabas.storage.compaction_job import CompactionFailed
from barnabas.storage.errors import LogDirFailed
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.storage.rearrangement import Rearrangement
from barnabas.storage.trim import drop_old_segments

REMOVAL_MS = 5_000
"""How often files whose delay is over are looked for."""
ROLLED_FLUSH_MS = 5_000
"""How often logs are flushed that have rolled, so that a crash scans little."""
FLUSH_CHECK_MS = 1_000
"""How often, at least, records are looked for that have waited for flush.ms."""
SWEEP_MS = 30_000
"""How often, at least, connections are looked at."""
_LOGS_IN_A_TURN = 200
"""How many logs are looked at, at a microsecond or two each, before others have a turn."""
_LANE, _CLEANER_LANE = "logs", "cleaner"
_log = get_logger(__name__)


class LogChores:
    """What logs need from time to time."""

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
        """`transactions_passed` counts the open transactions whose beginning retention took."""
        self._transactions_passed = transactions_passed
        self._logs = logs
        self._replicas = replicas
        self._flusher = flusher
        self._offload = offload
        self._clock = clock
        self._config = config
        self._unflushed_since: dict[Partition, int] = {}

    def schedule(self, rounds: Rounds) -> None:
        """Put every chore on its round."""
        config = self._config
        rounds.every("retention", lambda: config().log_retention_check_interval_ms, self.retain)
        rounds.every("removal", lambda: REMOVAL_MS, self.remove)
        rounds.every("checkpoint", self._checkpoint_interval, self.checkpoint)
        rounds.every("flush of rolled logs", lambda: ROLLED_FLUSH_MS, self.flush_rolled)
        rounds.every(
            "flush by time",
            lambda: min(FLUSH_CHECK_MS, config().log_flush_scheduler_interval_ms),
            self.flush_by_time,
        )
        rounds.every(
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
        """Drop the segments that retention.ms, retention.bytes or DeleteRecords have ended."""
        now_ms = self._clock.now_ms()
        for number, log in enumerate(self._online()):
            if number % _LOGS_IN_A_TURN == 0:
                await asyncio.sleep(0)
            if log.closed or log.rearrangement is not None:
                # Gone while others were looked at, or in the cleaner's hands until the next round.
                continue
            try:
                start = log.log_start_offset
                change = drop_old_segments(log, now_ms=now_ms)
                if change is not None:
                    self._tell_of_transactions(log, start)
                    self._replicas.log_start_moved(log)
                    await _carry_out(change, self._offload, _LANE)
            except LogDirFailed:
                # Told to the replica manager; the logs of other directories go on.
                continue

    def _tell_of_transactions(self, log: Log, old_start: int) -> None:
        """Retention waits for no transaction, so that one that hangs cannot fill the disk."""
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
        """Unlink what file.delete.delay.ms has kept for late readers."""
        paths = self._logs.due_removals()
        if paths:
            await self._offload.submit(_LANE, lambda: self._logs.remove(paths))

    async def checkpoint(self) -> None:
        """Write down recovery points, log start offsets and high watermarks."""
        for log_dir in self._logs.online_dirs:
            await self._replicas.checkpoint(log_dir)

    async def flush_rolled(self) -> None:
        """Flush the segments that are closed, so that a crash need not scan them."""
        for partition in self._replicas:
            log = partition.log
            if log.flushed_offset < log.segments.active.base_offset:
                self._flusher.request(partition)

    async def flush_by_time(self) -> None:
        """Flush logs whose records have waited for flush.ms."""
        now_ms, waiting = self._clock.now_ms(), {}
        for partition in self._replicas:
            log = partition.log
            if log.flushed_offset < log.log_end_offset:
                since = waiting[partition] = self._unflushed_since.get(partition, now_ms)
                if now_ms - since >= log.config.flush_ms:
                    self._flusher.request(partition)
        self._unflushed_since = waiting

    async def expire_producers(self) -> None:
        """Forget idempotent producers that have been silent for producer.id.expiration.ms."""
        now_ms = self._clock.now_ms()
        expiration_ms = self._config().producer_id_expiration_ms
        for log in self._online():
            log.producers.expire(now_ms, expiration_ms)


class CleanerChore:
    """Compaction: one log at a time, in the cleaner's process."""

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

    def schedule(self, rounds: Rounds) -> None:
        """Look for dirty logs, and pause for log.cleaner.backoff.ms where there are none."""
        rounds.every("compaction", lambda: self._config().log_cleaner_backoff_ms, self.clean)

    async def clean(self) -> None:
        """Compact until no log needs it."""
        behind = [log.log_dir for log in self._online() if _has_more_to_compact(log)]
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
            await self._offload.submit(_LANE, self._cleaner.checkpoint(cleaning.log.log_dir.path))

    def _start(self) -> Cleaning | None:
        config = self._config()
        if not config.log_cleaner_enable:
            return None
        limits = Limits(
            config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_max_bytes_per_second
        )
        return self._cleaner.start(self._online(), limits, self._clock.now_ms())

    def _online(self) -> list[Log]:
        return [log for log in self._logs.logs if log.log_dir.failure is None]

    async def _swap_groups(self, cleaning: Cleaning) -> None:
        while (group := await self._offload.submit(_CLEANER_LANE, cleaning.next_group)) is not None:
            change = self._cleaner.swap(cleaning, group)
            await _carry_out(change, self._offload, _CLEANER_LANE)


async def _carry_out(change: Rearrangement, offload: Offload, lane: str) -> None:
    """Rearrange a log's segments, with nothing that waits for the disk on the loop."""
    while not change.done:
        await offload.submit(lane, change.run)
        change.advance()


def _has_more_to_compact(log: Log) -> bool:
    """Whether segments are closed and flushed that must be in a checkpoint to be compacted."""
    closed = log.segments.active.base_offset + 1
    return log.config.compacted and min(closed, log.flushed_offset) > log.recovery_point


class ConnectionChore:
    """Connections that stand still, or too nearly so."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        memory: RequestMemory,
        expired: Cell,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._listeners = listeners
        self._memory = memory
        self._expired = expired
        self._clock = clock
        self._config = config

    def schedule(self, rounds: Rounds) -> None:
        """Look often enough that none outlives connections.max.idle.ms by more than a quarter."""
        rounds.every("connections", self._interval, self.sweep)
        rounds.every("slow requests", lambda: budget.ROUND_MS, self.cut_slow)

    def _interval(self) -> int:
        max_idle_ms = self._config().connections_max_idle_ms
        return SWEEP_MS if max_idle_ms < 0 else max(1, min(SWEEP_MS, max_idle_ms // 4))

    async def sweep(self) -> None:
        """Cut what is idle or stuck."""
        max_idle = self._config().connections_max_idle_ms / 1000
        for listener in self._listeners:
            self._expired.value += listener.sweep(self._clock.monotonic(), max_idle)

    async def cut_slow(self) -> None:
        """Cut those who make others wait for the memory of their half-sent requests."""
        self._expired.value += self._memory.cut_slow()
