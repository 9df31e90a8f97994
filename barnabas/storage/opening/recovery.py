"""Recovery: opening a log in whatever state the last process or a power loss left it.

Records below the recovery point were fsynced and are trusted. The rest is read batch by batch, and
the log ends before the first batch that is torn, damaged or out of order. Indexes, leader epochs
and producer state are rebuilt from the batches. No content of a file can make opening fail.
"""

import os
from bisect import bisect_right
from collections.abc import Container
from operator import attrgetter
from typing import TYPE_CHECKING

from barnabas.storage.files.checkpoints import CorruptCheckpointError
from barnabas.storage.files.files import Files, UnsyncedFile
from barnabas.storage.log.leader_epochs import (
    UNDEFINED_EPOCH,
    EpochEntry,
    LeaderEpochCache,
    read_epochs,
)
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_parts import LogLocation, LogOptions, LogParts
from barnabas.storage.log.producer_rebuild import readable_headers, rebuild_producers
from barnabas.storage.log.scan import rebuild_indexes, scan, valid_batches
from barnabas.storage.log.segment import (
    CLEANED,
    DELETED,
    KINDS_LOG_LAST,
    LOG,
    SWAP,
    TXN_INDEX,
    Segment,
    file_name,
    new_segment,
)
from barnabas.storage.log.segments import Segments
from barnabas.storage.log.txn_index import CorruptTxnIndexError
from barnabas.storage.opening.meta_properties import PARTITION_METADATA
from barnabas.storage.producers.snapshot import Snapshots
from barnabas.storage.producers.state import ProducerStateManager

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

_COPY_BYTES = 1 << 20
_base_offset = attrgetter("base_offset")


def load_log(
    location: LogLocation,
    config: "TopicConfig",
    options: LogOptions,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    doubtful: bool = False,
) -> Log:
    """Open the log in `location.directory`, or create one that begins at `log_start_offset`.

    `clean`: the last process closed the log. `doubtful`: its disk failed in the last process.
    `recovery_point` and `log_start_offset` are those of the checkpoints, 0 without one. Raises
    OSError only.
    """
    loader = _Loader(location, config, now_ms, doubtful)
    expiration_ms = options.producer_expiration_ms()
    parts = loader.load(clean, recovery_point, log_start_offset, expiration_ms)
    log = Log(location, parts, config, options)
    if not clean and config.flush_messages == 1:
        # With flush.messages=1 only fsynced records count as written: flush those that the crashed
        # process has left.
        log.flush()
    return log


class _Loader:
    def __init__(
        self, location: LogLocation, config: "TopicConfig", now_ms: int, doubtful: bool
    ) -> None:
        self._location = location
        self._files = location.files
        self._config = config
        self._now_ms = now_ms
        self._doubtful = doubtful

    def load(
        self, clean: bool, recovery_point: int, log_start_offset: int, expiration_ms: int
    ) -> LogParts:
        names = clear_leftovers(self._files, self._location.directory)
        found = [self._segment(int(n.removesuffix(LOG))) for n in names if n.endswith(LOG)]
        trusted, suspect = _split(found, clean, recovery_point)
        stored = self._stored_epochs()
        epochs = self._epochs(stored, trusted, log_start_offset)
        scanned = self._scan(suspect, epochs)
        segments = trusted + scanned
        if not segments or segments[-1].next_offset < log_start_offset:
            segments, scanned = [self._begin(segments, log_start_offset)], []
        # Opened again by the flush: a start after a crash may find very many.
        unsynced = [file for segment in scanned[:-1] for file in segment.deactivate(hold=False)]
        if PARTITION_METADATA in names:
            # Without this file the topic id of the records would be lost.
            path = os.path.join(self._location.directory, PARTITION_METADATA)
            unsynced.append(UnsyncedFile(self._files, path))
        segments[-1].activate()
        start, end = max(log_start_offset, segments[0].base_offset), segments[-1].next_offset
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(start)
        parts = LogParts(
            Segments(segments),
            ProducerStateManager(),
            Snapshots(self._files, self._location.directory, names),
            epochs,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=end if clean and not suspect else min(end, recovery_point),
            unsynced=unsynced,
            closed=clean and not suspect and stored == epochs.entries,
        )
        rebuild_producers(
            parts.segments,
            parts.producers,
            parts.snapshots,
            log_start_offset=start,
            log_end_offset=end,
            now_ms=self._now_ms,
            expiration_ms=expiration_ms,
            from_offset=_first_without_txn_index(segments, scanned, names),
        )
        if trusted:
            trusted[-1].active_file = None
        return parts

    def _segment(self, base_offset: int) -> Segment:
        return new_segment(
            self._files, self._location.directory, base_offset, self._config, self._now_ms
        )

    def _begin(self, segments: list[Segment], offset: int) -> Segment:
        """Return the first segment of an empty log; existing segments end before the log start."""
        self._remove(segments)
        return self._segment(offset)

    def _remove(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            segment.delete()
        if segments:
            self._files.sync_dir(self._location.directory)

    def _scan(self, suspect: list[Segment], epochs: LeaderEpochCache) -> list[Segment]:
        """Read the segments that no fsync has covered; remove those after a damaged or missing
        range."""
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
        """Copy a segment to a new file, and sync that.

        After a failed fsync the kernel marks unwritten pages as written: another fsync of the same
        file would report success for records that a power loss destroys.
        """
        path, old = segment.path(LOG), segment.file()
        new = self._files.open(path + TEMPORARY, create=True)
        for position in range(0, segment.size, _COPY_BYTES):
            new.append(old.read(min(_COPY_BYTES, segment.size - position), position))
        new.sync()
        self._files.rename(path + TEMPORARY, path)

    def _stored_epochs(self) -> tuple[EpochEntry, ...] | None:
        """Return the epochs of the checkpoint; None if it is damaged."""
        try:
            return read_epochs(self._files, self._location.directory).entries
        except CorruptCheckpointError:
            return None

    def _epochs(
        self,
        stored: tuple[EpochEntry, ...] | None,
        trusted: list[Segment],
        log_start_offset: int,
    ) -> LeaderEpochCache:
        epochs = LeaderEpochCache(stored or ())
        if not trusted:
            return epochs
        start = max(log_start_offset, trusted[0].base_offset)
        if not _agree(epochs, trusted, start):
            # The epochs are lost, damaged, or from a later log start than the checkpointed one.
            epochs = LeaderEpochCache()
            for segment in trusted:
                for _, header in readable_headers(segment):
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
        return epochs


def _agree(epochs: LeaderEpochCache, segments: list[Segment], start: int) -> bool:
    """Return whether batches begin where the epochs do.

    A leader must not tell a follower of an epoch that never existed.
    """
    if epochs.epoch_for_offset(start) == UNDEFINED_EPOCH:
        return False
    kept = LeaderEpochCache(epochs.entries)
    kept.truncate_from_start(start)
    kept.truncate_from_end(segments[-1].next_offset)
    return all(_begins(entry, segments, entry.start_offset == start) for entry in kept.entries)


def _begins(entry: EpochEntry, segments: list[Segment], may_have_begun: bool) -> bool:
    """Return whether an epoch's first batch is in its place, or compaction has removed it."""
    index = bisect_right(segments, entry.start_offset, key=_base_offset) - 1
    found = next(readable_headers(segments[index], entry.start_offset), None)
    if found is None:
        # Compaction leaves a gap at a segment's end; damage is reported to readers.
        return True
    header = found[1]
    if header.base_offset > entry.start_offset:
        return header.partition_leader_epoch >= entry.epoch
    begins = may_have_begun or header.base_offset == entry.start_offset
    return begins and header.partition_leader_epoch == entry.epoch


def _split(
    segments: list[Segment], clean: bool, recovery_point: int
) -> tuple[list[Segment], list[Segment]]:
    """Split into segments whose bytes are safe, and those from the first one that must be
    scanned."""
    for index, segment in enumerate(segments):
        is_last = index == len(segments) - 1
        if is_last:
            known = clean and _find_end(segment)
        else:
            segment.next_offset = segments[index + 1].base_offset
            # Only a flush beyond the segment has covered its indexes too.
            known = clean or segment.next_offset < recovery_point
        if not known:
            return segments[:index], segments[index:]
        if not (is_last or segment.has_sane_indexes):
            rebuild_indexes(segment)
    return segments, []


def _find_end(segment: Segment) -> bool:
    """Find the end of a closed log's last segment; its file stays open while the log is opened."""
    if segment.size:
        segment.active_file = segment.file()
    if segment.find_end():
        return True
    segment.active_file = None
    return False


def _first_without_txn_index(
    segments: list[Segment], scanned: list[Segment], names: Container[str]
) -> int | None:
    """Return the offset from which aborted transactions must be found in the log itself, or
    None."""
    for segment in segments:
        if segment in scanned:
            return segment.base_offset
        if file_name(segment.base_offset, TXN_INDEX) not in names:
            continue
        try:
            segment.txn_index.read()
        except CorruptTxnIndexError:
            return segment.base_offset
    return None


TEMPORARY = ".tmp"

_REMOVED = (CLEANED, DELETED, TEMPORARY)
_UNFINISHED = (*_REMOVED, SWAP)


def clear_leftovers(files: Files, directory: str) -> list[str]:
    """Finish or remove the files that an interrupted operation left in `directory`; return the
    names of the files that are left.

    .cleaned   a compacted segment that was not complete or not yet swapped in: removed
    .swap      a complete compacted segment: replaces the segments that it was made from
    .deleted   a file whose deletion had begun: removed
    .tmp       a file that was being rewritten: removed

    Only whole segments, snapshots and checkpoints are left. Safe to repeat after a crash.
    """
    names = files.listdir(directory)
    if any(name.endswith(_UNFINISHED) for name in names):
        for name in names:
            if name.endswith(_REMOVED):
                files.unlink(os.path.join(directory, name))
        for name in names:
            if name.endswith(LOG + SWAP):
                _finish_swap(files, directory, int(name.removesuffix(LOG + SWAP)))
        names = files.listdir(directory)
    left = []
    for name in names:
        stem, _, kind = name.partition(".")
        is_orphan = f".{kind}" in KINDS_LOG_LAST and stem + LOG not in names
        if name.endswith(SWAP) or is_orphan:
            files.unlink(os.path.join(directory, name))
        else:
            left.append(name)
    return left


def _finish_swap(files: Files, directory: str, base_offset: int) -> None:
    """Remove the segments that the compacted one was made from, and give it its final name.

    Its indexes are removed and rebuilt: the crash may have come before or after their renaming.
    """
    path = os.path.join(directory, file_name(base_offset, LOG))
    last_offset = base_offset
    for _, header in valid_batches(files.open(path + SWAP), base_offset):
        last_offset = header.last_offset
    for name in files.listdir(directory):
        stem, _, kind = name.partition(".")
        if f".{kind}" in KINDS_LOG_LAST and base_offset <= int(stem) <= last_offset:
            files.unlink(os.path.join(directory, name))
    files.rename(path + SWAP, path)
