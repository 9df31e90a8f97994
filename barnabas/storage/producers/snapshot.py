"""Producer state on disk: `<offset>.snapshot` as Kafka writes it, and a further `<offset>.window`.

Kafka's snapshot holds the last batch of each producer. The window file holds up to four earlier
ones, so that a restart forgets no duplicate. It names the CRC of its snapshot; if it is missing,
damaged or belongs to another snapshot, the batches before the snapshot are read again instead.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from struct import Struct
from struct import error as StructError
from threading import Lock

from barnabas.protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP
from barnabas.protocol.records.checksum import crc32c
from barnabas.storage.files.files import File, Files, UnsyncedFile
from barnabas.storage.producers.entry import WINDOW, Batch, ProducerStateEntry
from barnabas.storage.producers.state import ProducerStateManager

SNAPSHOT_SUFFIX = ".snapshot"
WINDOW_SUFFIX = ".window"

AT_ONCE = 2_000
"""Producers whose snapshot is written at once, in a few milliseconds. A snapshot of more is a
`PendingSnapshot`."""
_STEP = 1_000
"""Producers that a thread encodes, or releases, before the event loop may take the interpreter
lock."""

_SNAPSHOT_VERSION = 1
_WINDOW_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_WINDOW_HEAD = Struct(">Ii")
_PRODUCER = Struct(">qhB")
_BATCH = Struct(">iqiq")
_WINDOWS = [Struct(_PRODUCER.format + n * _BATCH.format.lstrip(">")) for n in range(WINDOW)]
"""A producer and its earlier batches, by their number."""
_NO_OFFSET = -1
_NO_BATCH = (NO_SEQUENCE, _NO_OFFSET, 0, NO_TIMESTAMP)

Windows = dict[int, tuple[Batch, ...]]
"""The batches before the last one, oldest first, by producer id."""


class CorruptSnapshotError(Exception):
    """The file is damaged, truncated or of a version that this release cannot read."""


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    return b"".join(_snapshot_parts([entries]))


def decode_snapshot(data: bytes, windows: Windows | None = None) -> list[ProducerStateEntry]:
    """Return the entries, each with its window and at most one later batch; raises
    CorruptSnapshotError."""
    body = _unseal(_SNAPSHOT_VERSION, data)
    rows = body[_COUNT.size :]
    if len(body) < _COUNT.size or len(rows) != _COUNT.unpack_from(body)[0] * _ENTRY.size:
        raise CorruptSnapshotError(f"{len(body)} bytes do not hold the entries they count")
    earlier = {} if windows is None else windows
    return [_decode_entry(earlier.get(row[0], ()), *row) for row in _ENTRY.iter_unpack(rows)]


def encode_windows(entries: Iterable[ProducerStateEntry], snapshot: bytes) -> bytes:
    """Return the window file that belongs to `snapshot`, the encoding of `entries`."""
    return b"".join(_window_parts([entries], _crc(snapshot)))


def decode_windows(data: bytes, snapshot: bytes) -> Windows:
    """Return the windows; raises CorruptSnapshotError, also if `data` belongs to another
    snapshot."""
    body = _unseal(_WINDOW_VERSION, data)
    windows: Windows = {}
    try:
        crc, producers = _WINDOW_HEAD.unpack_from(body)
        if crc != _crc(snapshot):
            raise CorruptSnapshotError("the windows belong to another snapshot")
        pos = _WINDOW_HEAD.size
        while pos < len(body):
            producer_id, _, count = _PRODUCER.unpack_from(body, pos)
            start = pos + _PRODUCER.size
            pos = start + count * _BATCH.size
            windows[producer_id] = tuple(_BATCH.iter_unpack(body[start:pos]))
    except StructError as error:
        raise CorruptSnapshotError(f"the windows are cut off: {error}") from None
    if pos != len(body) or len(windows) != producers:
        raise CorruptSnapshotError(
            f"there are windows of {len(windows)} producers, the file counts {producers}"
        )
    return windows


class PendingSnapshot:
    """A snapshot that a flush encodes and writes: a large one would hold the event loop too long.

    Any thread may call any method.
    """

    __slots__ = ("_begun", "_entries", "_files", "_lock", "_paths")

    def __init__(self, files: Files, paths: list[str], entries: list[ProducerStateEntry]) -> None:
        """`paths` are those of the snapshot and of its windows."""
        self._files = files
        self._paths = paths
        self._lock = Lock()
        self._begun = False
        self._entries: list[ProducerStateEntry] | None = entries

    @property
    def waits(self) -> bool:
        """Return whether it is neither written nor cancelled."""
        return self._entries is not None

    def entries(self) -> list[ProducerStateEntry] | None:
        """Return the state of the producers; None once it is written, or cancelled."""
        with self._lock:
            return None if self._entries is None else list(self._entries)

    def sync(self) -> None:
        """Write the files durably, unless another flush does or `release` was called; raises
        OSError."""
        with self._lock:
            entries = self._entries
            if entries is None or self._begun:
                return
            self._begun = True
        snapshot = _snapshot_parts(_in_steps(entries))
        windows = _window_parts(_in_steps(entries), _crc(snapshot[0]))
        with self._lock:
            if self._entries is None:
                return
            # From here on the files may be renamed or removed: what is written follows them.
            snapshot_file, window_file = (
                self._files.open(path, create=True) for path in self._paths
            )
        for file, parts in ((window_file, windows), (snapshot_file, snapshot)):
            _fill(file, parts)
            file.sync()
        self.release()

    def release(self) -> None:
        """Release the state of the producers. If no file has been created yet, none will be."""
        with self._lock:
            entries, self._entries = self._entries, None
        while entries:
            del entries[-_STEP:]


class Snapshots:
    """The snapshot files in the directory of one log."""

    def __init__(self, files: Files, directory: str, names: Iterable[str]) -> None:
        """`names` are those of all files in `directory`."""
        self._files = files
        self._directory = directory
        self.offsets = sorted(
            int(name.removesuffix(SNAPSHOT_SUFFIX))
            for name in names
            if name.endswith(SNAPSHOT_SUFFIX) and name.removesuffix(SNAPSHOT_SUFFIX).isdigit()
        )
        """Offsets of the snapshots, ascending."""
        self._pending: dict[int, PendingSnapshot] = {}
        """By offset, those that wait and some that do not any more."""

    @property
    def waiting(self) -> bool:
        """Return whether a snapshot waits for a flush."""
        return any(pending.waits for pending in self._pending.values())

    def take(self, producers: ProducerStateManager) -> "Sequence[PendingSnapshot | UnsyncedFile]":
        """Write the state as of `map_end_offset`, unless it is written already, or let a flush
        write it.

        Returns the files, to be synced; a crash before that only makes recovery longer.
        """
        offset = producers.map_end_offset
        if offset in self.offsets[-1:]:
            return []
        entries = list(producers)
        files: Sequence[PendingSnapshot | UnsyncedFile]
        if len(entries) > AT_ONCE:
            paths = [self._path(offset, suffix) for suffix in (SNAPSHOT_SUFFIX, WINDOW_SUFFIX)]
            pending = PendingSnapshot(self._files, paths, entries)
            waiting = {known: each for known, each in self._pending.items() if each.waits}
            self._pending = {**waiting, offset: pending}
            files = [pending]
        else:
            snapshot = encode_snapshot(entries)
            files = [
                self._write(offset, WINDOW_SUFFIX, encode_windows(entries, snapshot)),
                self._write(offset, SNAPSHOT_SUFFIX, snapshot),
            ]
        self.offsets = [*(known for known in self.offsets if known < offset), offset]
        return files

    def load_newest(
        self,
        producers: ProducerStateManager,
        *,
        log_start_offset: int,
        log_end_offset: int,
        now_ms: int,
        expiration_ms: int,
    ) -> int:
        """Load the newest valid snapshot in (log start, log end], and return its offset.

        Others, and damaged ones, are removed. If none is left, the state is empty, as of the log
        start.
        """
        self.remove_from(log_end_offset + 1)
        while self.offsets and self.offsets[-1] > log_start_offset:
            offset = self.offsets[-1]
            try:
                entries, windows_known = self._load(offset)
            except CorruptSnapshotError:
                self.remove_from(offset)
                continue
            producers.load(
                offset,
                entries,
                windows_known=windows_known,
                now_ms=now_ms,
                expiration_ms=expiration_ms,
            )
            return offset
        producers.reset(log_start_offset)
        return log_start_offset

    def remove_from(self, offset: int) -> None:
        """Remove snapshots at `offset` and later, durably.

        The log may grow there again, and a snapshot that came back after a crash would describe
        batches that do not exist any more.
        """
        gone = [known for known in self.offsets if known >= offset]
        if not gone:
            return
        self.offsets = self.offsets[: -len(gone)]
        for path in self.withdraw(gone):
            self._files.unlink(path)
        self._files.sync_dir(self._directory)

    def forget_before(self, offset: int) -> list[int]:
        """Forget the snapshots before `offset`, and return them once."""
        gone = [known for known in self.offsets if known < offset]
        self.offsets = self.offsets[len(gone) :]
        return gone

    def withdraw(self, offsets: list[int]) -> list[str]:
        """Cancel the snapshots at `offsets` that wait for a flush, and return the existing files of
        the others; runs in any thread."""
        for offset in offsets:
            if (pending := self._pending.get(offset)) is not None:
                pending.release()
        suffixes = (SNAPSHOT_SUFFIX, WINDOW_SUFFIX)
        paths = [self._path(offset, suffix) for offset in offsets for suffix in suffixes]
        return [path for path in paths if self._files.exists(path)]

    def abandon(self) -> None:
        """Cancel every snapshot that waits for a flush: the directory is no longer the log's."""
        for pending in self._pending.values():
            pending.release()

    def _path(self, offset: int, suffix: str) -> str:
        return f"{self._directory}/{offset:020d}{suffix}"

    def _write(self, offset: int, suffix: str, data: bytes) -> UnsyncedFile:
        path = self._path(offset, suffix)
        _fill(self._files.open(path, create=True), [data])
        return UnsyncedFile(self._files, path)

    def _load(self, offset: int) -> tuple[list[ProducerStateEntry], bool]:
        """Return the entries of a snapshot, and whether they have all their batches."""
        pending = self._pending.get(offset)
        if pending is not None and (entries := pending.entries()) is not None:
            return entries, True
        snapshot = self._files.read_bytes(self._path(offset, SNAPSHOT_SUFFIX))
        if not (entries := decode_snapshot(snapshot)):
            return [], True
        windows = self._read_windows(offset, snapshot)
        return decode_snapshot(snapshot, windows) if windows else entries, windows is not None

    def _read_windows(self, offset: int, snapshot: bytes) -> Windows | None:
        try:
            return decode_windows(
                self._files.read_bytes(self._path(offset, WINDOW_SUFFIX)), snapshot
            )
        except (FileNotFoundError, CorruptSnapshotError):
            return None


def _fill(file: File, parts: Iterable[bytes]) -> None:
    file.truncate(0)
    for part in parts:
        file.append(part)


def _in_steps(entries: Sequence[ProducerStateEntry]) -> Iterator[Sequence[ProducerStateEntry]]:
    """Yield the entries in parts, in a thread: the event loop gets the interpreter lock in
    between."""
    for start in range(0, len(entries), _STEP):
        yield entries[start : start + _STEP]
        # Otherwise the loop would wait for sys.getswitchinterval() again and again.
        time.sleep(0)


def _snapshot_parts(steps: Iterable[Iterable[ProducerStateEntry]]) -> list[bytes]:
    rows = [_encode_rows(entries) for entries in steps]
    count = sum(map(len, rows)) // _ENTRY.size
    return _seal(_SNAPSHOT_VERSION, [_COUNT.pack(count), *rows])


def _encode_rows(entries: Iterable[ProducerStateEntry]) -> bytes:
    rows, pack = list[bytes](), _ENTRY.pack
    for entry in entries:
        sequence, offset, delta, _ = entry.batches[-1] if entry.batches else _NO_BATCH
        first = entry.current_txn_first_offset
        rows.append(
            pack(
                entry.producer_id,
                entry.producer_epoch,
                sequence,
                offset,
                delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                _NO_OFFSET if first is None else first,
            )
        )
    return b"".join(rows)


def _window_parts(steps: Iterable[Iterable[ProducerStateEntry]], snapshot_crc: int) -> list[bytes]:
    count, parts = 0, list[bytes]()
    for entries in steps:
        windows = [
            _WINDOWS[earlier].pack(
                entry.producer_id, entry.producer_epoch, earlier, *chain(*entry.batches[:earlier])
            )
            for entry in entries
            if (earlier := len(entry.batches) - 1) > 0
        ]
        count += len(windows)
        parts.append(b"".join(windows))
    return _seal(_WINDOW_VERSION, [_WINDOW_HEAD.pack(snapshot_crc, count), *parts])


def _decode_entry(
    earlier: tuple[Batch, ...],
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first: int,
) -> ProducerStateEntry:
    last = (last_sequence, last_offset, offset_delta, timestamp)
    return ProducerStateEntry(
        producer_id,
        epoch,
        (*earlier, last) if last_offset >= 0 else earlier,
        coordinator_epoch,
        timestamp,
        txn_first if txn_first >= 0 else None,
    )


def _seal(version: int, body: list[bytes]) -> list[bytes]:
    crc = 0
    for part in body:
        crc = crc32c(part, crc)
    return [_HEAD.pack(version, crc), *body]


def _crc(sealed: bytes) -> int:
    crc: int = _HEAD.unpack_from(sealed)[1]
    return crc


def _unseal(version: int, data: bytes) -> bytes:
    if len(data) < _HEAD.size:
        raise CorruptSnapshotError(f"a file of {len(data)} bytes is cut off")
    found, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if found != version:
        raise CorruptSnapshotError(f"unknown version {found}")
    if crc != crc32c(body):
        raise CorruptSnapshotError("the content does not match its CRC")
    return body
