"""The log cleaner: which log is compacted next, and how compacted segments are swapped in.

On the event loop: `LogCleaner.start` picks the log with the greatest share of dirty bytes, `swap`
begins to swap a finished segment in, `finish` advances the offset up to which the log is clean. In
a thread: `CompactionRun.next_group`, which waits for the worker, the disk work of a swap, and the
result of `checkpoint`.
"""

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from barnabas.protocol.records.batch import CorruptRecordError
from barnabas.storage.cleaning.compaction_job import (
    KEY_COST,
    CleanedGroup,
    CompactionFailed,
    CompactionJob,
    CompactionResult,
)
from barnabas.storage.files.checkpoints import (
    CorruptCheckpointError,
    Offsets,
    read_offsets,
    write_offsets,
)
from barnabas.storage.files.files import Files
from barnabas.storage.log.log import Log
from barnabas.storage.log.rearrangement import Rearrangement
from barnabas.storage.log.segment import Segment
from barnabas.storage.log.trim import swap_in_compacted

CHECKPOINT_NAME = "cleaner-offset-checkpoint"

Results = Generator[CleanedGroup | CompactionResult, None, None]
Worker = Callable[[CompactionJob], Results]
"""Runs a job: `CleanerProcess.clean`, or `InlineCleaner.clean`."""


class CompactionLimits(NamedTuple):
    """The resources that one compaction may use."""

    dedupe_buffer_bytes: int
    """`log.cleaner.dedupe.buffer.size`"""
    bytes_per_second: float
    """`log.cleaner.io.max.bytes.per.second`"""


class DirtyPart(NamedTuple):
    """The dirty part of a log. Offsets exclusive at their end, sizes in bytes."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether a record has waited longer than `max.compaction.lag.ms`."""

    def is_due(self, min_ratio: float) -> bool:
        """Return whether compaction is due, by `min.cleanable.dirty.ratio` or the maximum lag."""
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > min_ratio)

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


NO_DIRT = DirtyPart(0, 0, 0, 0, overdue=False)


class CompactionRun:
    """The compaction of one log by the worker."""

    def __init__(self, log: Log, job: CompactionJob, results: Results) -> None:
        self.log = log
        self.job = job
        self.done: CompactionResult | None = None
        self._results = results

    def next_group(self) -> CleanedGroup | None:
        """Wait for the worker's next group; None when the job is done. Raises CompactionFailed.

        Call it in a thread.
        """
        result = next(self._results)
        if isinstance(result, CompactionResult):
            self.done = result
            return None
        return result

    def abandon(self) -> None:
        """End the worker's job, so that its results are not taken for those of the next one."""
        self._results.close()


class LogCleaner:
    """The cleaner: chooses and compacts logs, one at a time. `logs` may change between calls."""

    def __init__(self, files: Files, worker: Worker) -> None:
        self._files = files
        self._worker = worker
        self._clean_until: WeakKeyDictionary[Log, int] = WeakKeyDictionary()
        # The checkpoint of each log directory, until its logs are seen: a log of a re-created topic
        # must not inherit an entry.
        self._unclaimed: dict[str, Offsets] = {}
        self._damaged: WeakSet[Log] = WeakSet()

    def start(
        self, logs: Iterable[Log], limits: CompactionLimits, now_ms: int
    ) -> CompactionRun | None:
        """Begin with the dirtiest log that needs compaction; None if none does."""
        best: tuple[DirtyPart, Log] | None = None
        for log in logs:
            if not log.config.compacted or not log.is_whole or log in self._damaged:
                continue
            dirt = self._measure(log, now_ms)
            if dirt.is_due(log.config.min_cleanable_dirty_ratio) and (
                best is None or dirt.ratio > best[0].ratio
            ):
                best = dirt, log
        if best is None:
            return None
        dirt, log = best
        job = make_job(log, dirt, limits, now_ms)
        return CompactionRun(log, job, self._worker(job))

    def swap(self, cleaning: CompactionRun, group: CleanedGroup) -> Rearrangement:
        """Begin to swap a finished segment in, in place of its sources.

        Raises CompactionFailed if the log has changed under the worker, LogDirFailed.
        """
        log = cleaning.log
        sizes = {segment.base_offset: segment.size for segment in log.segments}
        planned = dict(cleaning.job.segments)
        if log.closed or any(sizes.get(base) != planned[base] for base in group.replaced):
            raise CompactionFailed(f"{log} has changed during its compaction", damaged=False)
        return swap_in_compacted(log, group.base_offset, group.replaced)

    def finish(self, cleaning: CompactionRun) -> None:
        """Note that the log is clean up to the end of the job."""
        if cleaning.done is not None:
            self._clean_until[cleaning.log] = cleaning.done.end_offset

    def fail(self, cleaning: CompactionRun, error: CompactionFailed) -> None:
        """Note a failed job: a damaged log is left alone until the next start."""
        cleaning.abandon()
        if error.damaged:
            self._damaged.add(cleaning.log)

    def moved(self, old: Log, new: Log) -> None:
        """Carry the clean offset over to a log that has moved to another directory."""
        try:
            # An entry of an earlier log with this name in that directory does not apply.
            self._clean_offset(new)
            self._clean_until[new] = self._clean_offset(old)
        except OSError as error:
            new.log_dir.take_offline(error)

    def checkpoint(self, log_dir: str) -> Callable[[], None]:
        """Return the function that writes the directory's checkpoint of this moment, in a thread;
        it raises OSError."""
        offsets = dict(self._unclaimed.get(log_dir, {}))
        for log, offset in self._clean_until.items():
            if log.log_dir.path == log_dir and not log.closed:
                offsets[log.topic, log.partition] = offset
        return lambda: write_offsets(self._files, f"{log_dir}/{CHECKPOINT_NAME}", offsets)

    def _measure(self, log: Log, now_ms: int) -> DirtyPart:
        try:
            return measure(log, self._clean_offset(log), now_ms)
        except CorruptRecordError:
            self._damaged.add(log)
        except OSError as error:
            log.log_dir.take_offline(error)
        return NO_DIRT

    def _clean_offset(self, log: Log) -> int:
        if log not in self._clean_until:
            log_dir = log.log_dir.path
            if log_dir not in self._unclaimed:
                self._unclaimed[log_dir] = self._read_checkpoint(log_dir)
            name = log.topic, log.partition
            self._clean_until[log] = self._unclaimed[log_dir].pop(name, 0)
        return self._clean_until[log]

    def _read_checkpoint(self, log_dir: str) -> Offsets:
        try:
            return read_offsets(self._files, f"{log_dir}/{CHECKPOINT_NAME}")
        except CorruptCheckpointError:
            # Clean parts are then read once more.
            return {}


def measure(log: Log, clean_until: int, now_ms: int) -> DirtyPart:
    """Return the dirty part of a log that was compacted up to `clean_until`.

    Never dirty: what `Log.cleanable_end` keeps, and segments with records younger than
    `min.compaction.lag.ms`.
    """
    config = log.config
    segments = list(log.segments)
    starts = [segment.base_offset for segment in segments]
    if not log.log_start_offset <= clean_until <= starts[-1]:
        # The log was truncated, or its start has moved beyond the clean offset.
        clean_until = log.log_start_offset
    youngest = now_ms - config.min_compaction_lag_ms
    clean_bytes = dirty_bytes = 0
    overdue = False
    end = clean_until
    for segment, stop in zip(segments, starts[1:], strict=False):
        if stop <= clean_until:
            clean_bytes += segment.size
            continue
        if stop > log.cleanable_end:
            break
        if config.min_compaction_lag_ms > 0 and segment.max_timestamp > youngest:
            break
        dirty_bytes += segment.size
        overdue |= _has_waited(segment, now_ms - config.max_compaction_lag_ms)
        end = stop
    return DirtyPart(clean_until, end, clean_bytes, dirty_bytes, overdue)


def _has_waited(segment: Segment, oldest: int) -> bool:
    if oldest <= 0 or not segment.size:
        return False
    if segment.first_timestamp is None:
        # Read once per segment, because each call of `start` asks for all dirty segments.
        _, header = next(segment.headers())
        segment.first_timestamp = header.max_timestamp
    return 0 < segment.first_timestamp < oldest


def make_job(log: Log, dirt: DirtyPart, limits: CompactionLimits, now_ms: int) -> CompactionJob:
    """Return the job for the worker to compact `log`."""
    config = log.config
    return CompactionJob(
        directory=log.directory,
        segments=tuple(
            (segment.base_offset, segment.size)
            for segment in log.segments
            if segment.base_offset < dirt.end_offset
        ),
        first_dirty_offset=dirt.first_dirty_offset,
        end_offset=dirt.end_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        index_bytes=config.segment_index_bytes,
        index_interval=config.index_interval_bytes,
        max_message_bytes=config.max_message_bytes,
        max_keys=max(limits.dedupe_buffer_bytes // KEY_COST, 1),
        bytes_per_second=max(limits.bytes_per_second, 1.0),
        producers={
            entry.producer_id: (entry.last_offset, entry.producer_epoch) for entry in log.producers
        },
        later_segments=tuple(
            each.base_offset for each in log.segments if each.base_offset >= dirt.end_offset
        ),
    )
