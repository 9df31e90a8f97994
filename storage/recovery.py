"""Opening a log, whatever the last process or the power left of it.

What an fsync had covered (below the recovery point) is taken as it is; the rest is read batch by
batch, and the log ends before the first that is torn, damaged or out of order. Indexes, leader
epochs and producer state follow from the batches. No file's content can make opening fail.
"""

import os
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from barnabas.storage.checkpoints import CorruptCheckpointError
from barnabas.storage.leader_epochs import (
    UNDEFINED_EPOCH,
    EpochEntry,
    LeaderEpochCache,
    read_epochs,
)
from barnabas.storage.leftovers import TEMPORARY, clear_leftovers
from barnabas.storage.log import Log
from barnabas.storage.log_parts import LogOptions, LogParts, LogPlace
from barnabas.storage.meta_properties import PARTITION_METADATA
from barnabas.storage.producer_snapshot import Snapshots
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.rebuild import readable_headers, rebuild_producers
from barnabas.storage.scan import rebuild_indexes, scan
from barnabas.storage.segment import LOG, Segment, new_segment
from barnabas.storage.segments import Segments
from barnabas.storage.txn_index import CorruptTxnIndexError

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

_COPY_BYTES = 1 << 20
_base_offset = attrgetter("base_offset")


def load_log(
    place: LogPlace,
    config: "TopicConfig",
    options: LogOptions,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    doubtful: bool = False,
) -> Log:
    """Opens the log in `place.directory`, or begins one at `log_start_offset`.

    `clean` says that the last process closed it, `doubtful` that its disk had failed; the
    `recovery_point` and `log_start_offset` are those of the checkpoints, 0 without. Raises OSError,
    nothing else.
    """
    loader = _Loader(place, config, now_ms, doubtful)
    expiration_ms = options.producer_expiration_ms()
    parts = loader.load(clean, recovery_point, log_start_offset, expiration_ms)
    log = Log(place, parts, config, options)
    if not clean and config.flush_messages == 1:
        # Here only fsynced records count as written: those that a dead process left do now.
        log.flush()
    return log


class _Loader:
    def __init__(self, place: LogPlace, config: "TopicConfig", now_ms: int, doubtful: bool) -> None:
        self._place = place
        self._files = place.files
        self._config = config
        self._now_ms = now_ms
        self._doubtful = doubtful

    def load(
        self, clean: bool, recovery_point: int, log_start_offset: int, expiration_ms: int
    ) -> LogParts:
        clear_leftovers(self._files, self._place.directory)
        names = self._files.listdir(self._place.directory)
        found = [self._segment(int(n.removesuffix(LOG))) for n in names if n.endswith(LOG)]
        trusted, suspect = _split(found, clean, recovery_point)
        epochs = self._epochs(trusted, log_start_offset)
        scanned = self._scan(suspect, epochs)
        segments = trusted + scanned
        if not segments or segments[-1].next_offset < log_start_offset:
            segments, scanned = [self._begin(segments, log_start_offset)], []
        unsynced = [file for segment in scanned[:-1] for file in segment.deactivate()]
        if PARTITION_METADATA in names:
            # Without it nobody would know whose records these are.
            path = os.path.join(self._place.directory, PARTITION_METADATA)
            unsynced.append(self._files.open(path))
        segments[-1].activate()
        start, end = max(log_start_offset, segments[0].base_offset), segments[-1].next_offset
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(start)
        parts = LogParts(
            Segments(segments),
            ProducerStateManager(),
            Snapshots(self._files, self._place.directory, names),
            epochs,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=end if clean and not suspect else min(end, recovery_point),
            unsynced=unsynced,
        )
        rebuild_producers(
            parts.segments,
            parts.producers,
            parts.snapshots,
            log_start_offset=start,
            log_end_offset=end,
            now_ms=self._now_ms,
            expiration_ms=expiration_ms,
            from_offset=_first_without_txn_index(segments, scanned),
        )
        return parts

    def _segment(self, base_offset: int) -> Segment:
        return new_segment(
            self._files, self._place.directory, base_offset, self._config, self._now_ms
        )

    def _begin(self, segments: list[Segment], offset: int) -> Segment:
        """The first segment of an empty log; what there is ends before the log's start."""
        self._remove(segments)
        return self._segment(offset)

    def _remove(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            segment.delete()
        if segments:
            self._files.sync_dir(self._place.directory)

    def _scan(self, suspect: list[Segment], epochs: LeaderEpochCache) -> list[Segment]:
        """Reads what no fsync has covered. Segments after a damaged or missing stretch go."""
        if suspect:
            epochs.truncate_from_end(suspect[0].base_offset)
        for index, segment in enumerate(suspect):
            if index and segment.base_offset != suspect[index - 1].next_offset:
                self._remove(suspect[index:])
                return suspect[:index]
            scan(segment, epochs)
            if self._doubtful:
                self._write_again(segment)
        return suspect

    def _write_again(self, segment: Segment) -> None:
        """After a failed fsync the kernel takes unwritten pages for written: another fsync would
        report success for records that a power loss takes. So the bytes go to a new file."""
        path, old = segment.path(LOG), segment.file()
        new = self._files.open(path + TEMPORARY, create=True)
        for position in range(0, segment.size, _COPY_BYTES):
            new.append(old.read(min(_COPY_BYTES, segment.size - position), position))
        new.sync()
        self._files.rename(path + TEMPORARY, path)

    def _epochs(self, trusted: list[Segment], log_start_offset: int) -> LeaderEpochCache:
        try:
            epochs = read_epochs(self._files, self._place.directory)
        except CorruptCheckpointError:
            epochs = LeaderEpochCache()
        if not trusted:
            return epochs
        start = max(log_start_offset, trusted[0].base_offset)
        if not _agree(epochs, trusted, start):
            # Lost, rotten, or of a later log start than the one that is checkpointed.
            epochs = LeaderEpochCache()
            for segment in trusted:
                for _, header in readable_headers(segment):
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
        return epochs


def _agree(epochs: LeaderEpochCache, segments: list[Segment], start: int) -> bool:
    """Whether batches begin where the epochs do: a leader gives a follower nothing that claims an
    epoch which never was."""
    if epochs.epoch_for_offset(start) == UNDEFINED_EPOCH:
        return False
    kept = LeaderEpochCache(epochs.entries)
    kept.truncate_from_start(start)
    kept.truncate_from_end(segments[-1].next_offset)
    return all(_begins(entry, segments, entry.start_offset == start) for entry in kept.entries)


def _begins(entry: EpochEntry, segments: list[Segment], may_have_begun: bool) -> bool:
    """Whether an epoch's first batch is where it should be, or compaction has taken it away."""
    index = bisect_right(segments, entry.start_offset, key=_base_offset) - 1
    found = next(readable_headers(segments[index], entry.start_offset), None)
    if found is None:
        # Compaction leaves a gap at a segment's end, and damage is for readers to find.
        return True
    header = found[1]
    if header.base_offset > entry.start_offset:
        return header.partition_leader_epoch >= entry.epoch
    begins = may_have_begun or header.base_offset == entry.start_offset
    return begins and header.partition_leader_epoch == entry.epoch


def _split(
    segments: list[Segment], clean: bool, recovery_point: int
) -> tuple[list[Segment], list[Segment]]:
    """Segments whose bytes are safe, and those from the first on that must be scanned."""
    for index, segment in enumerate(segments):
        is_last = index == len(segments) - 1
        if is_last:
            known = clean and segment.find_end()
        else:
            segment.next_offset = segments[index + 1].base_offset
            # Only a flush that went past the segment has covered its indexes too.
            known = clean or segment.next_offset < recovery_point
        if not known:
            return segments[:index], segments[index:]
        if not segment.has_sane_indexes:
            rebuild_indexes(segment)
    return segments, []


def _first_without_txn_index(segments: list[Segment], scanned: list[Segment]) -> int | None:
    """From which segment on the aborted transactions must be found in the log itself."""
    for segment in segments:
        if segment in scanned:
            return segment.base_offset
        try:
            segment.txn_index.read()
        except CorruptTxnIndexError:
            return segment.base_offset
    return None
