"""The log of one replica: append, read, truncate, and the offsets that say what is durable and
visible.

    log start offset <= last stable offset <= high watermark <= log end offset
                        flushed offset (covered by an fsync) <= log end offset

All methods run on the event loop, except `FlushJob.run` and `Rearrangement.run`. Errors that the
protocol knows are KafkaError; a failing disk raises LogDirFailed and takes the log directory
offline. Without a free file descriptor a method raises OutOfDescriptors, and the log is unchanged.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.config.key import INT_MAX
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecordError,
    HeaderFields,
    header_of,
    set_append_time,
    set_base_offset_and_epoch,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.group_lag import LagCounter, RecordLag
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.files.errors import lacks_descriptors
from barnabas.storage.files.log_dir import on_disk
from barnabas.storage.log.flush import FlushJob, FlushState
from barnabas.storage.log.leader_epochs import LeaderEpochCache
from barnabas.storage.log.log_parts import LogAppendInfo, LogLocation, LogOptions, LogParts
from barnabas.storage.log.log_slice import LogSlice
from barnabas.storage.log.rearrangement import Rearrangement
from barnabas.storage.log.record_lag import count_records
from barnabas.storage.log.record_steps import RecordSteps
from barnabas.storage.log.retention import MAX_RELATIVE_OFFSET, roll_after_ms, should_roll
from barnabas.storage.log.scan import replicated_batches
from barnabas.storage.log.segment import NO_BOUNDS, Segment
from barnabas.storage.log.segments import ReadLimits, TimestampAndOffset
from barnabas.storage.log.validator import Rules, Validated, is_sound, validate
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import AbortedTxn, BatchMetadata, DuplicateSequence
from barnabas.storage.producers.verification import UNVERIFIED, VerificationGuard

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

T = TypeVar("T")
_new = tuple.__new__
_CLIENT, _REPLICATION = Origin.CLIENT, Origin.REPLICATION


def _never(*_: object) -> bool:
    return False


class Log:
    """The log of one replica. Sizes in bytes, times in ms since the epoch, ends exclusive."""

    def __init__(
        self, location: LogLocation, parts: LogParts, config: "TopicConfig", options: LogOptions
    ) -> None:
        self.location = location
        self.log_dir = location.log_dir
        self.topic = location.topic
        self.partition = location.partition
        self.topic_id = location.topic_id
        self.segments = parts.segments
        self.producers = parts.producers
        self.epochs = parts.epochs
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        self.high_watermark = parts.log_start_offset
        self.recovery_point = parts.recovery_point
        """The flushed offset of the checkpoint on disk: recovery scans from there."""
        self.snapshots = parts.snapshots
        self.closed = False
        self.to_delete: list[str] = []
        """Renamed files, to be unlinked off the event loop after file.delete.delay.ms."""
        self.rearrangement: Rearrangement | None = None
        self.truncating = False
        """Whether a truncation is in progress: no other method may read or change the log
        meanwhile."""
        self.producer_expiration_ms = options.producer_expiration_ms
        self._options = options
        self._is_sound = _never if options.explain else is_sound
        self._flush = FlushState(parts.recovery_point)
        self._flush.add_unsynced(parts.unsynced)
        # The log end at which all files are durable, as the last process closed them; None once
        # they have changed otherwise than by an append.
        self._closed_end = parts.log_end_offset if parts.closed else None
        # Recovery may have found other epochs than the checkpoint has: the first flush writes it.
        self._epochs_changed = True
        if self.awaits_flush:
            options.rolled.add(self)
        self.configure(config)

    def configure(self, config: "TopicConfig") -> None:
        """Apply the topic's configuration, at the start and after every change."""
        self.config = config
        self.rules = rules = Rules.of(config)
        explains = self._is_sound is _never or rules.compression
        self._own_bytes = 0 if explains else rules.max_batch_bytes
        """The bytes of the largest uncompressed batch of the broker itself that is sound."""
        self._draw_roll_time()

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def directory(self) -> str:
        return self.location.directory

    @property
    def size(self) -> int:
        """Return the bytes of all segments, without their indexes."""
        return self.segments.size

    @property
    def last_stable_offset(self) -> int:
        """Return the offset before which every transaction is decided: the end for read_committed
        (KIP-98)."""
        producers, high_watermark = self.producers, self.high_watermark
        if not (producers.ongoing or producers.unreplicated):
            # Mostly, without a call.
            return high_watermark
        first_unstable = producers.first_unstable_offset
        if first_unstable is None or first_unstable >= high_watermark:
            return high_watermark
        return max(first_unstable, self.log_start_offset)

    @property
    def held_back_by(self) -> int | None:
        """Return the producer of the open transaction that holds the last stable offset back."""
        first_unstable = self.producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return None
        return self.producers.first_unstable_producer

    @property
    def cleanable_end(self) -> int:
        """Return the offset at which compaction must stop.

        The active segment, unstable data and data that may not be durable stay as they were
        written.
        """
        active = self.segments.active.base_offset
        return min(active, self.last_stable_offset, self.recovery_point - 1)

    # --- appending

    def append(
        self,
        data: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        header: HeaderFields | None = None,
        validated: Validated | None = None,
        guard: VerificationGuard | None = UNVERIFIED,
        marker: TxnMarker | None = None,
    ) -> LogAppendInfo:
        """Append one batch as its leader, which assigns the offsets in place.

        `header` is the batch's, if it has been read. A batch that opens a transaction needs the
        `guard` of `begin_verification`; `marker` is the one that the batch is. Of a repeated
        batch the offsets are returned. Raises KafkaError, before log and `data` have changed.
        """
        log_dir, rules, producers = self.log_dir, self.rules, self.producers
        if log_dir.failure is not None:
            log_dir.require_online()
        header = header or header_of(data)
        if validated is not None:
            data, header = validated
        elif header is None or (
            (origin is _CLIENT or len(data) > self._own_bytes or header[5] & COMPRESSION_MASK)
            and not self._is_sound(data, header, rules, origin, now_ms)
        ):
            data, header = validate(data, rules, origin=origin, now_ms=now_ms)
        length, delta, newest, producer_id = header[1], header[6], header[8], header[9]
        first_offset, update = self.log_end_offset, None
        last_offset, end_offset = first_offset + delta, first_offset + delta + 1
        if producer_id >= 0:
            try:
                update = producers.prepare(data, [(0, header)], origin, first_offset, guard, marker)
            except DuplicateSequence as repeated:
                return self._appended(repeated.batch)
        try:
            most, latest, end = (segment := self.segments.active).bounds
            if segment.size + len(data) > most or not 0 <= newest <= latest or last_offset > end:
                segment = self._segment_for(len(data), newest, last_offset, now_ms)
            if segment.active_file is None:
                segment.open_for_appends()
            batch: Any = data  # Nothing refuses it any more.
            if type(batch) is bytes or (type(batch) is memoryview and batch.readonly):
                batch = bytearray(batch)
            set_base_offset_and_epoch(batch, 0, first_offset, length, leader_epoch)
            if rules.log_append_time:
                set_append_time(batch, 0, now_ms)
            segment.append(batch, last_offset, newest)
            if self.epochs.latest_epoch != leader_epoch:
                self._epochs_changed |= self.epochs.assign(leader_epoch, first_offset)
            if update is None:
                producers.map_end_offset = end_offset
            elif aborted := producers.commit(update, end_offset):
                segment.txn_index.append(aborted)
        except OSError as error:
            log_dir.fail(error)
        self.log_end_offset = end_offset
        stamp = now_ms if rules.log_append_time else NO_TIMESTAMP
        return _new(LogAppendInfo, (first_offset, last_offset, stamp, self.log_start_offset, False))

    def _segment_for(self, size: int, newest: int, last_offset: int, now_ms: int) -> Segment:
        """Return the segment that takes a batch: the active one, or a new one that follows it."""
        segment, limit = self.segments.active, self.rules.segment_bytes
        if should_roll(segment, size, newest, last_offset, now_ms, limit, self._roll_ms):
            segment = self.roll(now_ms=now_ms)
        first = segment.first_timestamp
        if first is not None and first >= 0 and not segment.index_full:
            latest = first + self._roll_ms
            segment.bounds = limit, latest, segment.base_offset + MAX_RELATIVE_OFFSET
        return segment

    def _appended(self, batch: BatchMetadata) -> LogAppendInfo:
        return LogAppendInfo(
            batch.first_offset, batch.last_offset, batch.timestamp, self.log_start_offset, True
        )

    @on_disk
    def append_as_follower(self, data: Buffer, *, now_ms: int, max_batches: int = INT_MAX) -> int:
        """Append the first batches that a leader sent, unchanged; return their size in bytes.

        Segments end where the leader's end. Raises KafkaError(CORRUPT_MESSAGE); the log is then
        unchanged.
        """
        batches = replicated_batches(data, self.log_end_offset, max_batches)
        if not batches:
            return 0
        last, header = batches[-1]
        size = last + header.size
        if len(batches) > 1 and self._rolls_within(batches, size, header.next_offset, now_ms):
            for pos, each in batches:
                self._append_replicated(data[pos : pos + each.size], [(0, each)], now_ms)
        else:
            self._append_replicated(data[:size], batches, now_ms)
        return size

    def _rolls_within(
        self, batches: list[tuple[int, BatchHeader]], size: int, end_offset: int, now_ms: int
    ) -> bool:
        """Return whether the active segment may end before one of these batches.

        Every replica decides before each batch, whatever batches it gets together.
        """
        segment, limit = self.segments.active, self.rules.segment_bytes
        newest, last = max(header.max_timestamp for _, header in batches), end_offset - 1
        return (
            not segment.size
            or segment.index_room <= len(batches)
            or should_roll(segment, size, newest, last, now_ms, limit, self._roll_ms)
        )

    def _append_replicated(
        self, data: Buffer, batches: list[tuple[int, BatchHeader]], now_ms: int
    ) -> None:
        """Append batches that the active segment takes together, or one batch."""
        last, limit = batches[-1][1], self.rules.segment_bytes
        update = self.producers.prepare(data, batches, _REPLICATION)
        segment, size, newest = self.segments.active, len(data), last.max_timestamp
        if should_roll(segment, size, newest, last.last_offset, now_ms, limit, self._roll_ms):
            segment = self.roll(now_ms=now_ms)
        segment.open_for_appends()
        segment.append_all(data, batches)
        for _, header in batches:
            epoch = header.partition_leader_epoch
            self._epochs_changed |= self.epochs.assign(epoch, header.base_offset)
        if aborted := self.producers.commit(update, last.next_offset):
            segment.txn_index.append(aborted)
        self.log_end_offset = last.next_offset

    @on_disk
    def roll(self, *, now_ms: int) -> Segment:
        """End the active segment unless it is empty; return the active segment."""
        old = self.segments.active
        if not old.size:
            return old
        self._closed_end = None
        self._flush.add_unsynced(old.deactivate(hold=self._options.rolled.add(self)))
        if not self.snapshots.waiting:
            # Otherwise one of a few seconds ago will be written: the next flush is due already.
            self._flush.add_unsynced(self.snapshots.take(self.producers))
        segment = old.successor(self.log_end_offset, self.config, now_ms)
        segment.activate()
        self.segments.add(segment)
        self._draw_roll_time()
        return segment

    def _draw_roll_time(self) -> None:
        self._roll_ms = roll_after_ms(self.config, self._options.roll_jitter)
        self.segments.active.bounds = NO_BOUNDS

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Note that the leader of this epoch writes from the log end on (KIP-101)."""
        self._epochs_changed |= self.epochs.assign(leader_epoch, self.log_end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Mark everything below `offset` as committed; never moves back, nor past the log end."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers.unreplicated:
                self.producers.on_high_watermark(offset)

    @on_disk
    def take_over(self, other: "Log") -> None:
        """Adopt configuration, producers, epochs and offsets of `other`, whose records are all in
        this log."""
        self._closed_end = None
        self.configure(other.config)
        self.producers, self.epochs = other.producers, other.epochs
        self._flush.add_unsynced(self.snapshots.take(self.producers))
        self._options.rolled.add(self)
        self._epochs_changed = True
        self.log_start_offset = other.log_start_offset
        self.advance_high_watermark(other.high_watermark)

    # --- reading

    @on_disk
    def read(self, offset: int, max_bytes: int, *, limit: int, min_one: bool = True) -> LogSlice:
        """Read whole batches from the one that contains `offset`, below `limit`, at most
        `max_bytes`.

        With `min_one` the first batch may be larger than that. Raises KafkaError:
        OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, OFFSET_NOT_AVAILABLE during a truncation.
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

    def read_at_hand(
        self, offset: int, max_bytes: int, at_once: int, limit: int
    ) -> tuple[Buffer, int] | None:
        """Read what `read` would, if that takes one read of cached bytes, of at most `at_once`.

        Returns whole batches, and the offset before which they end; None if `read` has to look, as
        at the end of a segment that is not the last one.
        """
        if (
            self.truncating
            or self.log_dir.failure is not None
            or not self.log_start_offset <= offset < limit
        ):
            return None
        segment = active = self.segments.active
        if offset < active.base_offset:
            segment = self.segments.holding(offset)
        try:
            found = segment.read_at_hand(offset, max_bytes, at_once, limit)
        except (OSError, CorruptRecordError):
            return None
        if segment is not active and found is not None and found[1] >= segment.next_offset:
            return None
        return found

    def offset_for_timestamp(self, timestamp: int) -> RecordSteps[TimestampAndOffset | None]:
        """Return the first record not older than `timestamp` (ms), in steps.

        Raises ProtocolError if a record or a batch is damaged, RecordTooLargeError, LogDirFailed.
        The records of a batch are read up to the bound of `inflation_bound`.
        """
        start = self.log_start_offset
        return self._on_disk(self.segments.find_timestamp(timestamp, start, self._read_limits()))

    def offset_of_max_timestamp(self) -> RecordSteps[TimestampAndOffset | None]:
        """Return the first record with the greatest timestamp (KIP-734), in steps.

        Raises as `offset_for_timestamp` does.
        """
        return self._on_disk(self.segments.find_max_timestamp(self._read_limits()))

    def _read_limits(self) -> ReadLimits:
        config = self.config
        return ReadLimits(config.max_message_bytes, config.max_decompressed_message_bytes)

    def count_records(self, offset: int, max_batches: int) -> RecordSteps[RecordLag]:
        """Count the records from `offset` up to the high watermark of now, in steps: those that a
        read_committed consumer will still be given, and those held back.

        Stops after `max_batches` batches. Raises as `offset_for_timestamp` does.
        """
        start = max(offset, self.log_start_offset)
        counter = LagCounter(start, self.last_stable_offset, self.high_watermark)
        max_bytes = self.config.max_message_bytes
        return self._on_disk(count_records(self.segments, counter, max_batches, max_bytes))

    def _on_disk(self, steps: RecordSteps[T]) -> RecordSteps[T]:
        """Do for work in steps what `on_disk` does for a method."""
        self.log_dir.require_online()
        try:
            return (yield from steps)
        except OSError as error:
            self.log_dir.fail(error)

    def offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return the greatest epoch not after `leader_epoch`, and its end; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    @on_disk
    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that a read_committed reader of [start_offset,
        end_offset) skips."""
        return self.segments.aborted_transactions(start_offset, end_offset)

    # --- flushing

    @property
    def flushed_offset(self) -> int:
        """Return the offset below which an fsync has covered everything."""
        return self._flush.flushed_offset

    @property
    def awaits_flush(self) -> bool:
        """Return whether a rolled segment or a producer snapshot waits for a flush."""
        return self.flushed_offset < self.segments.active.base_offset or self.snapshots.waiting

    @property
    def is_whole(self) -> bool:
        """Return whether the log is usable: not closed, and no truncation in progress."""
        return not (self.closed or self.truncating)

    def begin_flush(self) -> FlushJob:
        """Begin a flush of the whole log: `run` it off the event loop, then call `finish_flush`."""
        active = self.segments.active
        changed, self._epochs_changed = self._epochs_changed, False
        return self._flush.begin(
            self.location.files,
            self.directory,
            active.unsynced,
            up_to=self.log_end_offset,
            newest=active.base_offset,
            epochs=LeaderEpochCache(self.epochs.entries) if changed else None,
        )

    def finish_flush(self, job: FlushJob) -> int:
        """Count a finished job, unless a truncation has voided it; return the flushed offset.

        Raises LogDirFailed if the disk failed, OutOfDescriptors if a file could not be opened.
        """
        if job.error is not None and not self.closed:
            if lacks_descriptors(job.error):
                self._flush.give_up(job)
                self._epochs_changed = True
            self.log_dir.fail(job.error)
        self._flush.finish(job)
        return self.flushed_offset

    def flush(self) -> int:
        """Flush and wait, for callers that may block."""
        self.log_dir.require_online()
        job = self.begin_flush()
        job.run()
        return self.finish_flush(job)

    @property
    def holds_file(self) -> bool:
        """Return whether the file of the active segment is open for appends."""
        return self.segments.active.active_file is not None

    def release_file(self) -> bool:
        """Close the file of the active segment if an fsync has covered it; return whether it is
        closed.

        The next append opens it again.
        """
        if not self.is_whole or self.flushed_offset < self.log_end_offset:
            return False
        self.segments.active.active_file = None
        return True

    def abandon(self) -> None:
        """Give the log up: it is not used any more, and failures of its disk no longer matter."""
        self.closed = True
        self._options.rolled.discard(self)
        self._flush.forget()
        self.snapshots.abandon()
        self.segments.active.active_file = None
        if (rearrangement := self.rearrangement) is not None:
            rearrangement.cancel()

    @on_disk
    def close(self) -> None:
        """Flush everything, so that the next start has nothing to recover; later calls do
        nothing."""
        if self.closed:
            return
        self.complete_rearrangement()
        # Empty and unchanged logs, of which there may be thousands, have nothing to flush.
        if self.log_end_offset and not self._is_as_closed():
            self._flush.add_unsynced(self.segments.active.complete())
            self._flush.add_unsynced(self.snapshots.take(self.producers))
            self._epochs_changed = True
            self.recovery_point = self.flush()
        self.abandon()

    def _is_as_closed(self) -> bool:
        has_snapshot = self.producers.map_end_offset in self.snapshots.offsets[-1:]
        return self.log_end_offset == self._closed_end and has_snapshot

    #

    def give_up_files(self, paths: Iterable[str]) -> None:
        """Have renamed files deleted after file.delete.delay.ms."""
        self._closed_end = None
        self.to_delete += paths
        self._options.gave_up_files(self)

    def complete_rearrangement(self) -> None:
        """Complete the rearrangement in progress, so that older segments do not change any more."""
        if self.rearrangement is not None:
            self.rearrangement.complete()

    def distrust(self, offset: int) -> bool:
        """Count nothing from `offset` on as flushed.

        Returns whether the checkpoint on disk still counts it: it must then be written again.
        """
        self._closed_end = None
        self._flush.void_from(offset)
        lowered = offset < self.recovery_point
        self.recovery_point = min(self.recovery_point, offset)
        return lowered

    def end_at(self, end: int) -> bool:
        """Move the log end to `end`, where the files end already; return whether the checkpointed
        log start is beyond it."""
        self.log_end_offset = end
        emptied = end < self.log_start_offset
        self.log_start_offset = min(self.log_start_offset, end)
        self.high_watermark = min(max(self.high_watermark, self.log_start_offset), end)
        self._flush.void_from(end)
        self.drop_epochs_from(end)
        return emptied

    def drop_epochs_from(self, offset: int) -> None:
        """Forget the epochs from `offset` on."""
        self._epochs_changed |= self.epochs.truncate_from_end(offset)

    def write_checkpoint(self) -> None:
        """Write the directory's checkpoint at once; raises OSError."""
        self._options.checkpoint(self.log_dir)

    def delete_records_before(self, offset: int) -> None:
        """Move the log start to `offset`; retention later deletes whole segments before it.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) beyond the high watermark.
        """
        if offset > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is past the high watermark")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs_changed |= self.epochs.truncate_from_start(offset)
            self.producers.on_log_start(offset)
