"""The records of a shard that are replayed, and that its next append writes before its own.

Only a record whose decision any later leader makes again may be postponed (`Decision.postpones`).
No later record of the shard is in the log without it. Where such records are rare, each is written
at once: to wake an idle process for one costs 30 times as much as an append.
"""

from collections.abc import Callable, Sequence
from typing import Final

from barnabas.coordinator.decision import AT_ONCE
from barnabas.coordinator.ports import Clock, PartitionLog, TimerHandle, Timers
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.record import batch_of

DELAY_MS: Final = 10
"""The time after which a record is written by itself: eight busy producers return within it.
Records that are further apart are not postponed."""
RETRY_MS: Final = 100
"""The wait before records that the log refused are written again."""
Encoded = tuple[bytes, bytes | None]
"""The key and the value of a record."""


class PostponedRecords:
    """The postponed records of one shard, oldest first, while its log commits at once."""

    __slots__ = (
        "_clock",
        "_failed",
        "_latest_ms",
        "_log",
        "_since_ms",
        "_timer",
        "_timers",
        "records",
        "refused",
    )

    def __init__(
        self,
        log: PartitionLog,
        clock: Clock,
        timers: Timers,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.records: list[Encoded] = []
        self.refused = False
        """Whether the log has refused them. It takes no others then."""
        self._log = log
        self._clock = clock
        self._timers = timers
        self._failed = failed
        self._latest_ms = -DELAY_MS
        """The monotonic time of the latest record that might have been postponed."""
        self._since_ms = 0
        """The monotonic time of the oldest one."""
        self._timer: TimerHandle | None = None
        """Not cancelled when the records are written, because most are written before it fires."""

    def takes(self, monotonic_ms: int) -> bool:
        """Return whether a record is to be postponed: another one probably follows in time."""
        before, self._latest_ms = self._latest_ms, monotonic_ms
        return monotonic_ms - before < DELAY_MS and not self.refused

    def add(self, record: Encoded, monotonic_ms: int) -> None:
        """Postpone a record that has been replayed."""
        if not self.records:
            self._since_ms = monotonic_ms
        self.records.append(record)
        if len(self.records) >= AT_ONCE:
            self._write_or_retry()
        elif self._timer is None:
            self._start(DELAY_MS)

    def append(self, records: Sequence[Encoded], now_ms: int) -> int:
        """Append records behind the postponed ones; return the offset where they are committed.

        Raises KafkaError if the log refuses these, which are not kept.
        """
        before = self.records
        try:
            batch, header = batch_of((*before, *records), now_ms)
            end = self._log.append(batch, now_ms, header)
        except KafkaError:
            if not before:
                raise
            # Together they may be too large, and the fault may be in the last ones alone.
            self.write()
            return self.append(records, now_ms)
        if before:
            self._written()
        return end

    def write(self) -> None:
        """Append the records by themselves. Raises KafkaError; the records are kept then."""
        if not self.records:
            return
        now_ms = self._clock.now_ms()
        try:
            try:
                self._append(self.records, now_ms)
            except KafkaError:
                self._write_each(self.records, now_ms)
        except KafkaError:
            self.refused = True
            raise
        self._written()

    def _write_each(self, records: list[Encoded], now_ms: int) -> None:
        """Append each record alone: together they may be too large."""
        while records:
            self._append(records[:1], now_ms)
            del records[0]

    def _append(self, records: Sequence[Encoded], now_ms: int) -> int:
        batch, header = batch_of(records, now_ms)
        return self._log.append(batch, now_ms, header)

    def close(self) -> None:
        """Write the records if this broker still leads the log, and stop the timer."""
        try:
            self.write()
        except KafkaError:
            # The next leader makes their decisions again.
            self.records.clear()
        except Exception as fault:
            self.records.clear()
            self._failed(fault)
        self._stop()

    def _written(self) -> None:
        self.records.clear()
        if self.refused:
            self.refused = False
            # It may wait for longer than the next record may.
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, delay_ms: int) -> None:
        self._timer = self._timers.call_later(delay_ms / 1000, self._due)

    def _due(self) -> None:
        self._timer = None
        if not self.records:
            return
        left_ms = self._since_ms + DELAY_MS - int(self._clock.monotonic() * 1000)
        if left_ms > 0:
            self._start(left_ms)
        else:
            self._write_or_retry()

    def _write_or_retry(self) -> None:
        try:
            self.write()
        except KafkaError:
            if self._timer is None:
                self._start(RETRY_MS)
        except Exception as fault:
            self._failed(fault)
