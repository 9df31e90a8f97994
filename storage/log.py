"""One replica's log: append, read, truncate, and the offsets that say what is safe and visible.

    log start offset <= last stable offset <= high watermark <= log end offset
                        flushed offset (what an fsync has covered) <= log end offset

All methods run on the event loop, but for `FlushJob.run` and `Rearrangement.run`. Protocol-visible
faults are KafkaError; a disk that fails is LogDirFailed, and takes the log directory offline.
"""

from typing import TYPE_CHECKING

from barnabas.config.key import INT_MAX
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecordError,
    set_base_offset_and_epoch,
)
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.flush import FlushJob, FlushState
from barnabas.storage.leader_epochs import LeaderEpochCache
from barnabas.storage.log_dir import on_disk
from barnabas.storage.log_parts import Appended, LogOptions, LogParts, LogPlace
from barnabas.storage.log_slice import LogSlice
from barnabas.storage.producer_entry import Update
from barnabas.storage.rearrangement import Rearrangement
from barnabas.storage.retention import roll_after_ms, should_roll
from barnabas.storage.scan import replicated_batches
from barnabas.storage.segment import Segment
from barnabas.storage.segments import TimestampAndOffset
from barnabas.storage.txn_index import AbortedTxn
from barnabas.storage.validator import Origin, Rules, Validated, validate, writable
from barnabas.storage.verification import UNVERIFIED, Guard

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig


class Log:
    """The log of one replica. Sizes in bytes, times in ms since the epoch, ends exclusive."""

    def __init__(
        self, place: LogPlace, parts: LogParts, config: "TopicConfig", options: LogOptions
    ) -> None:
        self.place = place
        self.log_dir = place.log_dir
        self.topic = place.topic
        self.partition = place.partition
        self.topic_id = place.topic_id
        self.segments = parts.segments
        self.producers = parts.producers
        self.epochs = parts.epochs
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        self.high_watermark = parts.log_start_offset
        self.recovery_point = parts.recovery_point
        """What the checkpoint on disk says is flushed: a crash scans from there."""
        self.snapshots = parts.snapshots
        self.closed = False
        self.doomed: list[str] = []
        """Renamed files, to be unlinked after file.delete.delay.ms, off the loop."""
        self.rearrangement: Rearrangement | None = None
        self.truncating = False
        """Whether its end is being taken away: nothing else may read or change it meanwhile."""
        self.producer_expiration_ms = options.producer_expiration_ms
        self._options = options
        self._flush = FlushState(parts.recovery_point)
        self._flush.wants(parts.unsynced)
        # What recovery found may differ from the checkpoint: the first flush writes it.
        self._epochs_changed = True
        self.configure(config)

    def configure(self, config: "TopicConfig") -> None:
        """Takes over the topic's configuration, now and whenever it changes."""
        self.config = config
        self.rules = Rules.of(config)
        self._roll_ms = roll_after_ms(self.config, self._options.roll_jitter)

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def directory(self) -> str:
        return self.place.directory

    @property
    def size(self) -> int:
        """Bytes of all segments, without their indexes."""
        return self.segments.size

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open: where read_committed ends (KIP-98)."""
        first_unstable = self.producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log_start_offset)

    @property
    def cleanable_end(self) -> int:
        """Compaction ends here: the active segment, unstable data and what is not known to be
        durable stay as they were written."""
        active = self.segments.active.base_offset
        return min(active, self.last_stable_offset, self.recovery_point - 1)

    # --- appending

    def append_as_leader(
        self,
        data: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        validated: Validated | None = None,
        guard: Guard | None = UNVERIFIED,
        transaction_version: int = 0,
    ) -> Appended:
        """Appends one request's batches, validated or to be; offsets are stamped in place.

        A batch that would open a transaction needs the `guard` of `begin_verification`, markers
        the version that rules their epochs. A batch of an idempotent producer that is here already
        is answered with its offsets. Raises KafkaError as `validate` and
        `ProducerStateManager.prepare` do; then nothing has changed.
        """
        log_dir = self.log_dir
        if log_dir.failure is not None:
            log_dir.require_online()
        data, batches = validated or validate(data, self.rules, origin=origin, now_ms=now_ms)
        first_offset = end_offset = self.log_end_offset
        update = self.producers.prepare(
            data, batches, origin, first_offset, guard, transaction_version
        )
        if (seen := update.duplicate) is not None:
            return Appended(
                seen.first_offset, seen.last_offset, seen.timestamp, self.log_start_offset, True
            )
        data = writable(data)
        for pos, header in batches:
            set_base_offset_and_epoch(data, pos, end_offset, leader_epoch)
            end_offset += header.last_offset_delta + 1
        try:
            self._write(data, batches, end_offset, now_ms, renumbered=True)
            if self.epochs.assign(leader_epoch, first_offset):
                self._epochs_changed = True
            self._commit(update, end_offset)
        except OSError as error:
            log_dir.fail(error)
        append_time = now_ms if self.rules.log_append_time else NO_TIMESTAMP
        return Appended(first_offset, end_offset - 1, append_time, self.log_start_offset)

    @on_disk
    def append_as_follower(self, data: Buffer, *, now_ms: int, max_batches: int = INT_MAX) -> int:
        """Appends the first batches of what a leader sent, as they are; how many bytes they had.

        Segments end where the leader's do. Raises KafkaError(CORRUPT_MESSAGE); then nothing has
        changed.
        """
        batches = replicated_batches(data, self.log_end_offset, max_batches)
        if not batches:
            return 0
        last, header = batches[-1]
        size = last + header.size
        if self._rolls_within(batches, size, now_ms):
            for pos, each in batches:
                self._append_replicated(data[pos : pos + each.size], [(0, each)], now_ms)
        else:
            self._append_replicated(data[:size], batches, now_ms)
        return size

    def _rolls_within(self, batches: list[tuple[int, BatchHeader]], size: int, now_ms: int) -> bool:
        """Whether the active segment may end before one of these batches: the leader, who got
        them one by one, decided before each."""
        segment, rules = self.segments.active, self.rules
        newest = max(header.max_timestamp for _, header in batches)
        last = batches[-1][1].last_offset
        return (
            not segment.size
            or segment.index_room <= len(batches)
            or should_roll(segment, size, newest, last, now_ms, rules.segment_bytes, self._roll_ms)
        )

    def _append_replicated(
        self, data: Buffer, batches: list[tuple[int, BatchHeader]], now_ms: int
    ) -> None:
        end_offset = batches[-1][1].next_offset
        update = self.producers.prepare(data, batches, Origin.REPLICATION)
        self._write(data, batches, end_offset, now_ms, renumbered=False)
        for _, header in batches:
            epoch = header.partition_leader_epoch
            self._epochs_changed |= self.epochs.assign(epoch, header.base_offset)
        self._commit(update, end_offset)

    def _write(
        self,
        data: Buffer,
        batches: list[tuple[int, BatchHeader]],
        end_offset: int,
        now_ms: int,
        *,
        renumbered: bool,
    ) -> None:
        segment = self.segments.active
        newest = batches[0][1].max_timestamp
        if len(batches) > 1:
            newest = max(header.max_timestamp for _, header in batches)
        limit = self.rules.segment_bytes
        if should_roll(segment, len(data), newest, end_offset - 1, now_ms, limit, self._roll_ms):
            segment = self.roll(now_ms=now_ms)
        segment.append(data, batches, renumbered=renumbered)

    def _commit(self, update: Update, end_offset: int) -> None:
        if aborted := self.producers.commit(update, end_offset):
            self.segments.active.txn_index.append(aborted)
        self.log_end_offset = end_offset

    @on_disk
    def roll(self, *, now_ms: int) -> Segment:
        """Ends the active segment, unless it is empty; returns the active one."""
        old = self.segments.active
        if not old.size:
            return old
        self._flush.wants(old.deactivate())
        self._flush.wants(self.snapshots.take(self.producers))
        segment = old.successor(self.log_end_offset, self.config, now_ms)
        segment.activate()
        self.segments.add(segment)
        self._roll_ms = roll_after_ms(self.config, self._options.roll_jitter)
        return segment

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """A leader of this epoch writes from the log's end on (KIP-101)."""
        self._epochs_changed |= self.epochs.assign(leader_epoch, self.log_end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed; never moves back, nor past the log's end."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.on_high_watermark(offset)

    @on_disk
    def take_over(self, other: "Log") -> None:
        """Goes on where `other` is, whose records are all here."""
        self.configure(other.config)
        self.producers, self.epochs = other.producers, other.epochs
        self._flush.wants(self.snapshots.take(self.producers))
        self._epochs_changed = True
        self.log_start_offset = other.log_start_offset
        self.advance_high_watermark(other.high_watermark)

    # --- reading

    @on_disk
    def read(self, offset: int, max_bytes: int, *, limit: int, min_one: bool = True) -> LogSlice:
        """Whole batches from the one that has `offset`, below `limit`, in at most `max_bytes`; with
        `min_one` the first whatever its size. KafkaError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE,
        OFFSET_NOT_AVAILABLE while the log is truncated.
        """
        if self.truncating:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self} is being truncated")
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}",
            )
        try:
            return self.segments.read(offset, max_bytes, limit=limit, min_one=min_one)
        except CorruptRecordError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    @on_disk
    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record that is not older than `timestamp` in ms; inflates one batch."""
        return self.segments.find_timestamp(timestamp, self.log_start_offset)

    @on_disk
    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the greatest timestamp (KIP-734); inflates one batch."""
        return self.segments.find_max_timestamp()

    def offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The greatest epoch not after `leader_epoch` and where it ended; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    @on_disk
    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """What a read_committed reader of [start_offset, end_offset) must skip."""
        return self.segments.aborted_transactions(start_offset, end_offset)

    # --- flushing

    @property
    def flushed_offset(self) -> int:
        """Everything below it an fsync has covered."""
        return self._flush.flushed_offset

    @property
    def is_whole(self) -> bool:
        """Whether its files are there to work on: not closed, and not being truncated."""
        return not (self.closed or self.truncating)

    def begin_flush(self) -> FlushJob:
        """An fsync of all there is now; `run` it off the loop, then `finish_flush`."""
        active = self.segments.active
        changed, self._epochs_changed = self._epochs_changed, False
        return self._flush.begin(
            self.place.files,
            self.directory,
            active.active_file,
            up_to=self.log_end_offset,
            newest=active.base_offset,
            epochs=LeaderEpochCache(self.epochs.entries) if changed else None,
        )

    def finish_flush(self, job: FlushJob) -> int:
        """Counts a job that has run, unless a truncation has made it void; the flushed offset.

        Raises LogDirFailed where the disk failed.
        """
        if job.error is not None and not self.closed:
            self.log_dir.fail(job.error)
        self._flush.finish(job)
        return self.flushed_offset

    def flush(self) -> int:
        """The three steps at once, for where waiting does no harm."""
        self.log_dir.require_online()
        job = self.begin_flush()
        job.run()
        return self.finish_flush(job)

    def abandon(self) -> None:
        """Nothing will be asked of the log any more; failures of its disk no longer matter."""
        self.closed = True
        self._flush.forget()
        self.segments.active.active_file = None
        if (rearrangement := self.rearrangement) is not None:
            rearrangement.cancel()

    @on_disk
    def close(self) -> None:
        """Flushes everything, so that the next start has nothing to recover; closes once."""
        if self.closed:
            return
        self.settle()
        # Where nothing was ever in it there is nothing to lose, and there are thousands of such.
        if self.log_end_offset:
            self._flush.wants(self.segments.active.deactivate())
            self._flush.wants(self.snapshots.take(self.producers))
            self._epochs_changed = True
            self.recovery_point = self.flush()
        self.abandon()

    # --- taking away

    def settle(self) -> None:
        """Completes what goes on with older segments, so that nothing else changes them."""
        if self.rearrangement is not None:
            self.rearrangement.complete()

    def distrust(self, offset: int) -> bool:
        """Nothing from `offset` on counts as flushed; whether the checkpoint on disk says it is."""
        self._flush.truncated(offset)
        lowered = offset < self.recovery_point
        self.recovery_point = min(self.recovery_point, offset)
        return lowered

    def end_at(self, end: int) -> bool:
        """The log ends here, on disk already; whether the checkpoint's log start is past that."""
        self.log_end_offset = end
        emptied = end < self.log_start_offset
        self.log_start_offset = min(self.log_start_offset, end)
        self.high_watermark = min(max(self.high_watermark, self.log_start_offset), end)
        self._flush.truncated(end)
        self.drop_epochs_from(end)
        return emptied

    def drop_epochs_from(self, offset: int) -> None:
        """No leader has written anything from `offset` on."""
        self._epochs_changed |= self.epochs.truncate_from_end(offset)

    def write_checkpoint(self) -> None:
        """Writes the directory's checkpoint on the spot; raises OSError."""
        self._options.checkpoint(self.log_dir)

    def delete_records_before(self, offset: int) -> None:
        """The log starts at `offset` now; whole segments before it go with the next retention.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) past the high watermark.
        """
        if offset > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is past the high watermark")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs_changed |= self.epochs.truncate_from_start(offset)
            self.producers.on_log_start(offset)
