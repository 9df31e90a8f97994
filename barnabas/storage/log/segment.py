"""One segment of a log: `<20 digits of the base offset>.log` and its indexes.

Only the active segment keeps its file open, from its first append on. Readers open other ones, so
the number of descriptors grows with written partitions and readers, not with data.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecordError,
    read_extent,
    read_header,
)
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.files.files import File, Files, Syncable, UnsyncedFile, size_of
from barnabas.storage.log.offset_index import OffsetIndex
from barnabas.storage.log.time_index import TimeIndex
from barnabas.storage.log.txn_index import TxnIndexFile

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
KINDS_LOG_LAST = (INDEX, TIME_INDEX, TXN_INDEX, LOG)
CLEANED, SWAP, DELETED = ".cleaned", ".swap", ".deleted"

_WALK_BYTES = 8192
_HINTS = 64
_FEW = 8
"""Batches that are walked over without a look into the index."""
_MAX_OFFSETS = 2**31


def file_name(offset: int, suffix: str) -> str:
    """Return Kafka's name of a file that begins at `offset`."""
    return f"{offset:020d}{suffix}"


Located = tuple[int, BatchHeader]
"""Position of a batch in its segment file, and its header."""
NO_BOUNDS = (-1, -1, -1)


class Segment:
    """One segment. Offsets are absolute, positions and sizes in bytes."""

    __slots__ = (
        "_files",
        "_hints",
        "_index_interval",
        "_reserved_bytes",
        "_since_index_entry",
        "_suffix",
        "active_file",
        "base_offset",
        "bounds",
        "created_ms",
        "directory",
        "first_timestamp",
        "index_full",
        "is_active",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offset_index",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        index_bytes: int,
        index_interval: int,
        created_ms: int,
        reserved_bytes: int = 0,
        suffix: str = "",
    ) -> None:
        """`suffix` is a temporary suffix of the names of the segment's files."""
        self._files = files
        self._suffix = suffix
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.is_active = False
        self.bounds = NO_BOUNDS
        """The greatest size, timestamp and offset up to which it certainly does not roll."""
        self.active_file: File | None = None
        """The open file of the active segment; None before its first append."""
        self.offset_index = OffsetIndex(files, self.path(INDEX), base_offset, index_bytes)
        self.time_index = TimeIndex(files, self.path(TIME_INDEX), base_offset, index_bytes)
        self.txn_index = TxnIndexFile(files, self.path(TXN_INDEX), base_offset)
        self.index_full = self.index_room <= 0
        """Whether an index is full: the segment rolls then."""
        self._index_interval = index_interval
        self._reserved_bytes = reserved_bytes
        self._since_index_entry = 0
        self.size = size_of(files, self.path(LOG)) or 0
        self.next_offset = base_offset
        self.first_timestamp: int | None = None
        self.max_timestamp = self.time_index.last_timestamp
        self.max_timestamp_offset = self.time_index.last_offset
        # Offset -> position of the batch that contains it: the ends of recent appends and reads, at
        # which the next reads begin.
        self._hints: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}..{self.next_offset}, {self.size} bytes)"

    def path(self, kind: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{kind}{self._suffix}"

    def file(self) -> File:
        """Return the log file; the reference keeps it readable after a rename or deletion."""
        return self.active_file or self._files.open(self.path(LOG))

    def file_to_send(self) -> File:
        """Return the log file as `file` does, for a reader that may keep it open for long."""
        return self.active_file or self._files.open_to_keep(self.path(LOG))

    # --- writing

    def activate(self) -> None:
        """Make the segment the active one, and create its files; the first append opens the log's.

        Kafka's tools look for the indexes of an active segment too.
        """
        self.is_active = True
        reserves = self._reserved_bytes > self.size
        if reserves or not self.size:
            file = self._files.open(self.path(LOG), create=True)
            if reserves:
                file.reserve(self._reserved_bytes)
        self.offset_index.create()
        self.time_index.create()

    def deactivate(self, *, hold: bool = True) -> list[Syncable]:
        """End a segment that takes no more appends; return all its files, to be synced.

        The log file stays open until then, if it is open and `hold` is set.
        """
        files = self.complete()
        if not hold:
            self.active_file = None
        if (log := self.unsynced) is not None:
            files.append(log)
        self.is_active = False
        self.active_file = None
        return files

    def complete(self) -> list[Syncable]:
        """Complete the indexes; return their files, to be synced."""
        self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        if self._reserved_bytes > self.size:
            self.file().give_back()
        self.offset_index.write()
        self.time_index.write()
        self.txn_index.write()
        paths = [self.offset_index.path, self.time_index.path]
        if self.txn_index.exists:
            paths.append(self.txn_index.path)
        return [UnsyncedFile(self._files, path) for path in paths]

    @property
    def unsynced(self) -> Syncable | None:
        """Return the log file to be synced; None if it has no records and is not open."""
        if self.active_file is None and self.size:
            return UnsyncedFile(self._files, self.path(LOG))
        return self.active_file

    def successor(
        self, base_offset: int, config: "TopicConfig", now_ms: int, *, suffix: str = ""
    ) -> "Segment":
        """Return the segment that follows this one, or one that replaces it, from files that have
        a `suffix`."""
        return new_segment(self._files, self.directory, base_offset, config, now_ms, suffix=suffix)

    def open_for_appends(self) -> None:
        """Open the log file, unless it is open."""
        if self.active_file is None:
            self.active_file = self._files.open_to_keep(self.path(LOG))

    def append(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write a batch to the file, which is open; its last offset and its greatest timestamp."""
        file, position, size = self.active_file, self.size, len(data)
        assert file is not None
        file.append(data)
        if self.first_timestamp is None or self._since_index_entry > self._index_interval:
            self.note_batch(last_offset, position, max_timestamp, size)
        else:
            # The same, without a call.
            if max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
            self._since_index_entry += size
            self.next_offset = last_offset + 1
        self.size = position = position + size
        hints = self._hints
        if len(hints) >= _HINTS:
            hints.clear()
        hints[last_offset + 1] = position

    def append_all(self, data: Buffer, batches: list[tuple[int, BatchHeader]]) -> None:
        """Write batches that have their offsets to the file, which is open."""
        file, position = self.active_file, self.size
        assert file is not None
        file.append(data)
        for pos, header in batches:
            self.note_batch(header.last_offset, position + pos, header.max_timestamp, header.size)
        self.size = position + len(data)
        self._hint(self.next_offset, self.size)

    def note_batch(self, last_offset: int, position: int, max_timestamp: int, size: int) -> None:
        """Add a written batch of `size` bytes to the indexes and to the segment's own state."""
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._since_index_entry > self._index_interval:
            offsets, times = self.offset_index, self.time_index
            offsets.append(last_offset, position)
            times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._since_index_entry = 0
            if offsets.entries >= offsets.max_entries or times.entries >= times.max_entries:
                self._indexes_changed()
        self._since_index_entry += size
        self.next_offset = last_offset + 1

    def _indexes_changed(self) -> None:
        self.index_full = self.index_room <= 0
        self.bounds = NO_BOUNDS

    @property
    def index_room(self) -> int:
        """Return the number of entries that both indexes can still take."""
        offsets, times = self.offset_index, self.time_index
        return min(offsets.max_entries - offsets.entries, times.max_entries - times.entries)

    @property
    def largest_timestamp(self) -> int:
        """Return the greatest timestamp of the records; the segment's own if they have none."""
        return self.created_ms if self.max_timestamp < 0 else self.max_timestamp

    def rename(self, suffix: str) -> list[str]:
        """Append `suffix` to the name of each file; return the new paths."""
        renamed = []
        for kind in self._kinds():
            path = self.path(kind)
            self._files.rename(path, path + suffix)
            renamed.append(path + suffix)
        return renamed

    def hold_open(self) -> None:
        """Open every file, so that a rename does not disturb readers."""
        self.active_file = self.file()
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.hold_open()

    def let_go(self) -> None:
        """Note that the files have lost their suffix; they are opened by name again."""
        self._suffix = ""
        self.active_file = None
        self.offset_index.let_go(self.path(INDEX))
        self.time_index.let_go(self.path(TIME_INDEX))
        self.txn_index.let_go(self.path(TXN_INDEX))

    def delete(self) -> None:
        """Unlink the files; readers that have the log file open can still read it."""
        for kind in self._kinds():
            self._files.unlink(self.path(kind))
        self.active_file = None

    def _kinds(self) -> list[str]:
        # The log file first: recovery removes index files without one.
        kinds = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
        return [kind for kind in kinds if self._files.exists(self.path(kind))]

    def truncate_to(self, offset: int) -> None:
        """Drop the batches that reach `offset`; may be repeated if a file could not be opened."""
        located = self.locate(offset)
        if located is not None:
            position, header = located
            self.txn_index.truncate_to(offset)
            self.cut(position, min(offset, header.base_offset))

    def cut(self, position: int, next_offset: int) -> None:
        """End the segment at the start of a batch; damage before it is reported to readers.

        Every file is opened before the segment changes.
        """
        file = self.file()
        self.offset_index.truncate_to(next_offset)
        self.time_index.truncate_to(next_offset)
        file.truncate(position)
        self.active_file = file if position else None
        self.size = position
        self.next_offset = next_offset
        self._hints.clear()
        self._since_index_entry = 0
        self._indexes_changed()
        with suppress(CorruptRecordError):
            self._resume()

    # --- opening

    @property
    def has_sane_indexes(self) -> bool:
        """Return whether the index files may belong to this segment, by a quick check."""
        return not self.size or (self.offset_index.is_sane(self.size) and self.time_index.is_sane())

    def find_end(self) -> bool:
        """Resume a segment that was closed as the active one; return False if it must be
        scanned."""
        if not self.has_sane_indexes:
            return False
        self.next_offset = self.base_offset + _MAX_OFFSETS
        try:
            self._resume()
        except CorruptRecordError:
            self.next_offset = self.base_offset
            return False
        return True

    def _resume(self) -> None:
        """Find the segment's end and its greatest timestamp, from the last index entry on."""
        self.max_timestamp = self.time_index.last_timestamp
        self.max_timestamp_offset = self.time_index.last_offset
        self.first_timestamp = None
        start = 0 if self.offset_index.last is None else self.offset_index.last[1]
        self._since_index_entry = self.size - start
        end = self.base_offset
        if start:
            self.first_timestamp = next(self.headers(0))[1].max_timestamp
        for _, header in self.headers(start):
            if self.first_timestamp is None:
                self.first_timestamp = header.max_timestamp
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset
            end = header.next_offset
        self.next_offset = end

    def forget(self) -> None:
        """Reset everything but the file: `note_batch` rebuilds the rest."""
        self.offset_index.reset()
        self.time_index.reset()
        self.next_offset = self.base_offset
        self.first_timestamp = None
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._since_index_entry = 0
        self._indexes_changed()
        self._hints.clear()

    # --- finding

    def locate(self, offset: int) -> Located | None:
        """Return the first batch whose last offset is `offset` or greater."""
        if offset >= self.next_offset:
            return None
        hint = self._hints.get(offset)
        start = self.offset_index.lookup(offset) if hint is None else hint
        for position, header in self.headers(start):
            if header.last_offset >= offset:
                if hint is None and position == start > 0 and header.base_offset > offset:
                    raise CorruptRecordError(f"{self.path(INDEX)} skips offset {offset}")
                return position, header
        return None

    def position_of(self, offset: int) -> int:
        """Return the position of the first batch that reaches `offset`; the size if there is
        none."""
        if offset >= self.next_offset:
            return self.size
        hint = self._hints.get(offset)
        if hint is not None:
            return hint
        located = self.locate(offset)
        return self.size if located is None else located[0]

    def read_at_hand(
        self, offset: int, max_bytes: int, at_once: int, limit: int
    ) -> tuple[Buffer, int] | None:
        """Read whole batches from a known position, below `limit`, in one read of cached bytes.

        Returns them, and the offset before which they end. None if `offset` or `limit` is not where
        an append or a read has ended, or if `max_bytes` or `at_once` are fewer than the first
        batch. Raises OSError, CorruptRecordError.
        """
        hints, next_offset = self._hints, self.next_offset
        start = hints.get(offset)
        end = self.size if limit >= next_offset else hints.get(limit)
        if start is None or end is None:
            return None
        size = min(end - start, max_bytes)
        if not 0 < size <= at_once:
            return None
        data = (self.active_file or self.file()).read_nowait(size, start)
        if data is None or len(data) != size:
            return None
        if start + size == end:
            return data, min(limit, next_offset)
        # The last batch is cut off: it begins where the response ends.
        at, base_offset, most = 0, self.base_offset, self.size - start
        while at + HEADER_SIZE <= size:
            first, following, length = read_extent(data, at)
            behind = at + length
            if not base_offset <= first < following <= next_offset or behind > most:
                return None
            if behind > size:
                if not at:
                    return None
                self._hint(first, start + at)
                return memoryview(data)[:at], first
            if not at and length * _FEW < size:
                # To walk over a few large ones costs less than the index.
                behind = max(behind, self.offset_index.position_before(start + size) - start)
            at = behind
        return None

    def fit(self, start: int, end: int, max_bytes: int) -> tuple[int, int | None]:
        """Return the last batch boundary in [start, end] at most `max_bytes` after `start`, and its
        offset.

        The offset is that of the batch that begins at the boundary, None at `end`. `start` and
        `end` are batch boundaries.
        """
        target = start + max_bytes
        if end <= target:
            return end, None
        begin = max(start, self.offset_index.position_before(target))
        # Read up to the target, plus the header of a batch that begins just before it.
        chunk = min(max(target - begin, 0) + HEADER_SIZE, _WALK_BYTES)
        for position, header in self.headers(begin, chunk):
            if position + header.size > target:
                # The next read of the same consumer begins here.
                self._hint(header.base_offset, position)
                return position, header.base_offset
        return end, None

    def headers(self, position: int = 0, chunk_bytes: int = _WALK_BYTES) -> Iterator[Located]:
        """Yield the batches from a batch's start to the end of the segment.

        Reads `chunk_bytes` at once, at least a header. Raises CorruptRecordError if there is no
        batch at a position: the index is wrong, or the log is damaged.
        """
        if position >= self.size:
            return
        file = self.file()
        while position < self.size:
            chunk = file.read(min(chunk_bytes, self.size - position), position)
            if len(chunk) < HEADER_SIZE:
                raise CorruptRecordError(f"{self.path(LOG)} ends within a header")
            for located in self.headers_in(chunk, position):
                yield located
                position = located[0] + located[1].size

    def headers_in(self, chunk: Buffer, position: int) -> Iterator[Located]:
        """Yield the batches whose headers are whole in `chunk`, which begins with a batch.

        `position` is that of the chunk. Raises CorruptRecordError as `headers` does.
        """
        at, size = 0, len(chunk)
        while at + HEADER_SIZE <= size and position + at < self.size:
            header = read_header(chunk, at, False)
            if not self._may_hold(position + at, header):
                where = position + at
                raise CorruptRecordError(f"{self.path(LOG)} has no batch at position {where}")
            yield position + at, header
            at += header.size

    def _may_hold(self, position: int, header: BatchHeader) -> bool:
        return (
            self.base_offset <= header.base_offset
            and header.last_offset_delta >= 0
            and header.next_offset <= self.next_offset
            and position + header.size <= self.size
        )

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """Return all bytes of one batch."""
        return self.file().read(header.size, position)

    def _hint(self, offset: int, position: int) -> None:
        hints = self._hints
        if len(hints) >= _HINTS:
            hints.clear()
        hints[offset] = position


def new_segment(
    files: Files,
    directory: str,
    base_offset: int,
    config: "TopicConfig",
    now_ms: int,
    *,
    suffix: str = "",
) -> Segment:
    """Return the segment at an offset, with the topic's configuration."""
    return Segment(
        files,
        directory,
        base_offset,
        index_bytes=config.segment_index_bytes,
        index_interval=config.index_interval_bytes,
        created_ms=now_ms,
        reserved_bytes=config.segment_bytes if config.preallocate else 0,
        suffix=suffix,
    )
