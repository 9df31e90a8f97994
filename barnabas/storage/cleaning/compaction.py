"""Log compaction: it keeps the last value of each key and never changes an offset.

    read the dirty part -> KeyMap: the last offset of each key
    rewrite all segments before its end, in groups: a record goes if a later one has its key

It reads segments and writes `*.cleaned` files only, so that it can run in another process.
`cleaner.py` swaps the files in, and decides whether they still fit the log.

Tombstones stay for `delete.retention.ms` after the first compaction that reads them, which stamps
the time of their removal into their batch (the delete horizon of KIP-534). Data of aborted
transactions is removed at once and supersedes nothing; a marker stays as long as any data of its
transaction, and then as long as a tombstone.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from hashlib import blake2b

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptRecordError,
    crc_matches,
    read_header,
)
from barnabas.protocol.records.compression import inflation_bound
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.records.record import Record, iter_records, rewrite_batch
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.cleaning.compaction_job import (
    CleanedGroup,
    CompactionFailed,
    CompactionJob,
    CompactionResult,
)
from barnabas.storage.files.files import File, Files
from barnabas.storage.log import txn_index
from barnabas.storage.log.offset_index import OffsetIndex
from barnabas.storage.log.segment import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, file_name
from barnabas.storage.log.time_index import TimeIndex
from barnabas.storage.producers.entry import AbortedTxn

_LONG_KEY = 20
_READ_BYTES = 1 << 20
_WRITE_BYTES = 1 << 20
_MAX_OFFSET_SPAN = 2**31 - 1

Pace = Callable[[int], None]
"""Called with the bytes read or written; may sleep to keep to the job's rate."""


class CleanedTransactions:
    """The transactions in the range that compaction reads: which data and markers are obsolete.

    Compaction stops at the last stable offset, so every transaction in its range is decided:
    aborted if the index of aborted transactions names it, committed otherwise. Batches must be
    passed in log order, from the beginning of the log.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = deque(sorted(aborted, key=lambda txn: txn.first_offset))
        self._aborted: dict[int, AbortedTxn] = {}
        self._with_data: set[int] = set()
        """Producers whose current transaction has had data so far, aborted or not."""

    def is_void(self, header: BatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction."""
        self._advance(header)
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborted

    def marker(self, batch: Buffer, header: BatchHeader) -> tuple[bool, AbortedTxn | None]:
        """Return whether a marker is obsolete, and the index entry to keep.

        A marker is obsolete if no data of its transaction is left before it. The second value is
        the aborted transaction that the marker ends, None if the index needs no entry for it.
        """
        self._advance(header)
        control = read_marker(batch, 0, header) if header.record_count else None
        if control is None:
            return False, None
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        aborted = None
        if control.type is ControlType.ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
        return not had_data, aborted if had_data else None

    def _advance(self, header: BatchHeader) -> None:
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            txn = self._coming.popleft()
            self._aborted[txn.producer_id] = txn


class KeyMap:
    """The last offset of each key, of at most `max_keys` keys."""

    def __init__(self, max_keys: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._max_keys = max_keys
        self.end_offset = 0
        """The offset up to which keys are known, exclusive."""

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Add a key; return False, and add nothing, if the map is full."""
        key = _short(key)
        if len(self._offsets) >= self._max_keys and key not in self._offsets:
            return False
        self._offsets[key] = offset
        self.end_offset = offset + 1
        return True

    def is_superseded(self, record: Record) -> bool:
        """Return whether a later record has the same key."""
        return record.key is not None and self._offsets.get(_short(record.key), -1) > record.offset


def _short(key: bytes) -> bytes:
    # A digest is longer than any key that is kept as it is, so the two never collide.
    return key if len(key) <= _LONG_KEY else blake2b(key, digest_size=_LONG_KEY + 1).digest()


def compact(
    files: Files,
    job: CompactionJob,
    *,
    pace: Pace = lambda _: None,
) -> Generator[CleanedGroup | CompactionResult, None, None]:
    """Yield each group once its files are durable, then a summary.

    Raises CompactionFailed.
    """
    try:
        for name in files.listdir(job.directory):
            if name.endswith(CLEANED):
                files.unlink(os.path.join(job.directory, name))
        yield from _Compaction(files, job, pace).run()
    except (ProtocolError, txn_index.CorruptTxnIndexError, OSError) as error:
        damaged = not isinstance(error, OSError)
        raise CompactionFailed(f"{job.directory}: {error}", damaged=damaged) from error


class _Compaction:
    def __init__(self, files: Files, job: CompactionJob, pace: Pace) -> None:
        self._files = files
        self._job = job
        self._pace = pace
        self._aborted = _aborted(files, job)
        self._keys = KeyMap(job.max_keys)
        # The end offset of each segment, exclusive.
        bases = [base for base, _ in job.segments]
        self._ends = dict(zip(bases, [*bases[1:], job.end_offset], strict=True))
        self._bytes_read = self._bytes_written = 0
        self._records_read = self._records_kept = 0

    def run(self) -> Iterator[CleanedGroup | CompactionResult]:
        self._learn_keys()
        end = self._keys.end_offset
        transactions = CleanedTransactions(self._aborted)
        for group in self._groups(end):
            yield self._rewrite(group, end, transactions)
        yield CompactionResult(
            end, self._bytes_read, self._bytes_written, self._records_read, self._records_kept
        )

    def _learn_keys(self) -> None:
        job, keys = self._job, self._keys
        keys.end_offset = job.first_dirty_offset
        transactions = CleanedTransactions(self._aborted)
        for base, size in job.segments:
            if self._ends[base] <= job.first_dirty_offset:
                continue
            for batch, header in self._batches(base, size):
                if header.is_control:
                    transactions.marker(batch, header)
                    continue
                if transactions.is_void(header):
                    continue
                if header.last_offset < job.first_dirty_offset:
                    continue
                for record in self._records(batch, header):
                    if (
                        record.key is not None
                        and record.offset >= job.first_dirty_offset
                        and not keys.put(record.key, record.offset)
                    ):
                        return
            keys.end_offset = self._ends[base]

    def _groups(self, end: int) -> Iterator[list[tuple[int, int]]]:
        """Yield neighbouring segments whose records fit into one, so that small ones do not
        accumulate."""
        job = self._job
        group: list[tuple[int, int]] = []
        size = index_size = 0
        for base, segment_size in job.segments:
            if base >= end:
                break
            index = self._index_size(base)
            if group and (
                size + segment_size > job.segment_bytes
                or index_size + index > job.index_bytes
                or self._ends[base] - group[0][0] > _MAX_OFFSET_SPAN
            ):
                yield group
                group, size, index_size = [], 0, 0
            group.append((base, segment_size))
            size += segment_size
            index_size += index
        if group:
            yield group

    def _index_size(self, base: int) -> int:
        sizes = []
        for suffix in (INDEX, TIME_INDEX):
            path = os.path.join(self._job.directory, file_name(base, suffix))
            sizes.append(self._files.size(path) if self._files.exists(path) else 0)
        return max(sizes)

    def _rewrite(
        self, group: list[tuple[int, int]], end: int, transactions: CleanedTransactions
    ) -> CleanedGroup:
        out = _CleanedSegment(self._files, self._job, group[0][0], self._pace)
        group_end = self._ends[group[-1][0]]
        for base, size in group:
            for batch, header in self._batches(base, size):
                self._records_read += header.record_count
                must_stay = header.next_offset in (end, group_end) or self._is_last_of_producer(
                    header
                )
                if header.is_control:
                    obsolete, aborted = transactions.marker(batch, header)
                    kept = self._filter_marker(
                        batch, header, obsolete=obsolete, must_stay=must_stay
                    )
                    if kept is not None and aborted is not None:
                        out.add_aborted(aborted)
                else:
                    void = transactions.is_void(header)
                    kept = self._filter(batch, header, end, void=void, must_stay=must_stay)
                if kept is not None:
                    out.append(kept)
        out.close()
        self._bytes_written += out.size
        return CleanedGroup(group[0][0], tuple(base for base, _ in group), out.size)

    def _filter_marker(
        self, batch: Buffer, header: BatchHeader, *, obsolete: bool, must_stay: bool
    ) -> Buffer | None:
        """Return the marker as it stays, or None.

        It is `obsolete` if no data of its transaction is left.
        """
        horizon = header.delete_horizon_ms
        if obsolete and horizon is None:
            horizon = self._job.now_ms + self._job.delete_retention_ms
            records = self._records(batch, header)
            batch = rewrite_batch(header, records, delete_horizon_ms=horizon)
        if not obsolete or horizon is None or self._job.now_ms < horizon:
            self._records_kept += header.record_count
            return batch
        return rewrite_batch(header, ()) if must_stay else None

    def _filter(
        self, batch: Buffer, header: BatchHeader, end: int, *, void: bool, must_stay: bool
    ) -> Buffer | None:
        """Return the batch as it stays, None if all of it is removed."""
        # The batch is read once to decide and once to write: its records may not fit in memory.
        kept = 0
        has_tombstone = False
        for record in self._staying(batch, header, end, void=void):
            kept += 1
            has_tombstone |= record.value is None
        self._records_kept += kept
        horizon = None
        if has_tombstone and header.delete_horizon_ms is None:
            horizon = self._job.now_ms + self._job.delete_retention_ms
        if kept and kept == header.record_count and horizon is None:
            return batch
        if kept or must_stay:
            # Without records a batch stays for its header: a live producer's last sequence; the
            # last offset of the clean part; the last offset of the segment, which recovery would
            # otherwise take for a segment that has lost its tail.
            staying = self._staying(batch, header, end, void=void)
            return rewrite_batch(header, staying, delete_horizon_ms=horizon)
        return None

    def _staying(
        self, batch: Buffer, header: BatchHeader, end: int, *, void: bool
    ) -> Iterator[Record]:
        for record in self._records(batch, header):
            if not void and self._stays(record, header, end):
                yield record

    def _records(self, batch: Buffer, header: BatchHeader) -> Iterator[Record]:
        bound = inflation_bound(max(self._job.max_message_bytes, header.size))
        return iter_records(batch, 0, header, max_bytes=bound)

    def _stays(self, record: Record, header: BatchHeader, end: int) -> bool:
        if record.offset >= end:
            return True
        if record.key is None or self._keys.is_superseded(record):
            return False
        if record.value is not None:
            return True
        horizon = header.delete_horizon_ms
        return horizon is None or self._job.now_ms < horizon

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._job.producers.get(header.producer_id)
        if last is None:
            return False
        offset, epoch = last
        if offset < 0:
            return header.is_control and header.producer_epoch == epoch
        return header.last_offset == offset

    def _batches(self, base: int, size: int) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Yield the batches of a segment, each checked against its CRC."""
        path = os.path.join(self._job.directory, file_name(base, LOG))
        file = self._files.open(path)
        position = 0
        chunk = memoryview(b"")
        while position < size or chunk:
            header = read_header(chunk, 0, False) if len(chunk) >= HEADER_SIZE else None
            if header is None or header.size > len(chunk):
                want = _READ_BYTES if header is None else max(_READ_BYTES, header.size)
                more = file.read(min(want, size - position), position)
                if not more:
                    raise CorruptRecordError(f"{path} ends within a batch")
                self._bytes_read += len(more)
                self._pace(len(more))
                position += len(more)
                chunk = memoryview(bytes(chunk) + more)
                continue
            if not crc_matches(chunk, 0, header):
                raise CorruptRecordError(f"{path}: the batch at {header.base_offset} is damaged")
            yield chunk[: header.size], header
            chunk = chunk[header.size :]


def _aborted(files: Files, job: CompactionJob) -> list[AbortedTxn]:
    """Return every aborted transaction that reaches into the compacted range."""
    aborted: list[AbortedTxn] = []
    for base in (*(base for base, _ in job.segments), *job.later_segments):
        path = os.path.join(job.directory, file_name(base, TXN_INDEX))
        if files.exists(path):
            data = files.read_bytes(path)
            # The index of the active segment may be growing.
            aborted += txn_index.decode(data[: len(data) - len(data) % txn_index.ENTRY_SIZE])
    return [txn for txn in aborted if txn.first_offset < job.end_offset]


class _CleanedSegment:
    """A segment that is being written: `<base offset>.log.cleaned` and its indexes."""

    def __init__(self, files: Files, job: CompactionJob, base_offset: int, pace: Pace) -> None:
        self._files = files
        self._job = job
        self._base_offset = base_offset
        self._pace = pace
        self._file: File = files.open(self._path(LOG), create=True)
        self._offset_index = OffsetIndex(files, self._path(INDEX), base_offset, job.index_bytes)
        self._time_index = TimeIndex(files, self._path(TIME_INDEX), base_offset, job.index_bytes)
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._since_entry = 0
        self._max_timestamp = -1
        self._max_timestamp_offset = base_offset
        self._txns = b""
        self.size = 0

    def append(self, batch: Buffer) -> None:
        header = read_header(batch, 0, False)
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._max_timestamp_offset = header.last_offset
        if self._since_entry > self._job.index_interval:
            self._offset_index.append(header.last_offset, self.size)
            self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self._since_entry = 0
        self._since_entry += len(batch)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        self.size += len(batch)
        if self._waiting_bytes >= _WRITE_BYTES:
            self._write()

    def add_aborted(self, txn: AbortedTxn) -> None:
        """Add an aborted transaction whose data may still be in the log: readers must skip it."""
        self._txns += txn_index.encode(txn)

    def close(self) -> None:
        """Complete the indexes; return when everything is durable."""
        self._write()
        self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        for index in (self._offset_index, self._time_index):
            index.write()
            self._files.open(index.path, create=True).sync()
        if self._txns:
            file = self._files.open(self._path(TXN_INDEX), create=True)
            file.append(self._txns)
            file.sync()
        self._file.sync()
        self._files.sync_dir(self._job.directory)

    def _write(self) -> None:
        if self._waiting:
            self._file.append(b"".join(self._waiting))
            self._pace(self._waiting_bytes)
            self._waiting, self._waiting_bytes = [], 0

    def _path(self, suffix: str) -> str:
        return os.path.join(self._job.directory, file_name(self._base_offset, suffix) + CLEANED)
