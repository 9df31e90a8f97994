"""Producer state on disk: `<offset>.snapshot` as Kafka writes it, and `<offset>.window` beside it.

Kafka's snapshot holds the last batch of each producer. The window file holds up to four earlier
ones, so that a restart forgets no duplicate. It names the CRC of its snapshot; if it is missing,
damaged or belongs to another snapshot, the batches before the snapshot are read again instead.
"""

from collections.abc import Iterable
from itertools import starmap
from struct import Struct
from struct import error as StructError

from barnabas.protocol.records.batch import NO_SEQUENCE
from barnabas.protocol.records.checksum import crc32c
from barnabas.storage.files.files import File, Files
from barnabas.storage.producers.entry import BatchMetadata, ProducerEntry
from barnabas.storage.producers.state import ProducerStateManager

SNAPSHOT_SUFFIX = ".snapshot"
WINDOW_SUFFIX = ".window"

_SNAPSHOT_VERSION = 1
_WINDOW_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_WINDOW_HEAD = Struct(">Ii")
_PRODUCER = Struct(">qhB")
_BATCH = Struct(">iqiq")
_NO_OFFSET = -1

Windows = dict[int, tuple[BatchMetadata, ...]]
"""The batches before the last one, oldest first, by producer id."""


class CorruptSnapshotError(Exception):
    """The file is damaged, truncated or of a version that this release cannot read."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    rows = [_encode_entry(entry) for entry in entries]
    return _seal(_SNAPSHOT_VERSION, _COUNT.pack(len(rows)) + b"".join(rows))


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the entries, each with at most its last batch; raises CorruptSnapshotError."""
    body = _unseal(_SNAPSHOT_VERSION, data)
    rows = body[_COUNT.size :]
    if len(body) < _COUNT.size or len(rows) != _COUNT.unpack_from(body)[0] * _ENTRY.size:
        raise CorruptSnapshotError(f"{len(body)} bytes do not hold the entries they count")
    return [_decode_entry(*row) for row in _ENTRY.iter_unpack(rows)]


def encode_windows(entries: Iterable[ProducerEntry], snapshot: bytes) -> bytes:
    """Return the window file that belongs to `snapshot`, the encoding of `entries`."""
    full = [entry for entry in entries if len(entry.batches) > 1]
    parts = [_WINDOW_HEAD.pack(_crc(snapshot), len(full))]
    for entry in full:
        earlier = entry.batches[:-1]
        parts.append(_PRODUCER.pack(entry.producer_id, entry.producer_epoch, len(earlier)))
        parts += starmap(_BATCH.pack, earlier)
    return _seal(_WINDOW_VERSION, b"".join(parts))


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
            rows = _BATCH.iter_unpack(body[start:pos])
            windows[producer_id] = tuple(map(BatchMetadata._make, rows))
    except StructError as error:
        raise CorruptSnapshotError(f"the windows are cut off: {error}") from None
    if pos != len(body) or len(windows) != producers:
        raise CorruptSnapshotError(
            f"there are windows of {len(windows)} producers, the file counts {producers}"
        )
    return windows


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

    def take(self, producers: ProducerStateManager) -> list[File]:
        """Write the state as of `map_end_offset`, unless it is written already.

        Returns the files, to be synced; a crash before that only makes recovery longer.
        """
        offset = producers.map_end_offset
        if offset in self.offsets[-1:]:
            return []
        entries = list(producers)
        snapshot = encode_snapshot(entries)
        written = [
            self._write(offset, WINDOW_SUFFIX, encode_windows(entries, snapshot)),
            self._write(offset, SNAPSHOT_SUFFIX, snapshot),
        ]
        self.offsets = [*(known for known in self.offsets if known < offset), offset]
        return written

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
            snapshot = self._files.read_bytes(self._path(offset, SNAPSHOT_SUFFIX))
            try:
                entries = decode_snapshot(snapshot)
            except CorruptSnapshotError:
                self.remove_from(offset)
                continue
            windows = self._read_windows(offset, snapshot)
            producers.load(
                offset,
                entries if windows is None else _with_windows(entries, windows),
                windows_known=windows is not None,
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
        for path in self.paths(gone):
            self._files.unlink(path)
        self._files.sync_dir(self._directory)

    def forget_before(self, offset: int) -> list[int]:
        """Forget the snapshots before `offset`, and return them once."""
        gone = [known for known in self.offsets if known < offset]
        self.offsets = self.offsets[len(gone) :]
        return gone

    def paths(self, offsets: list[int]) -> list[str]:
        """Return the existing files of the snapshots at `offsets`; runs in any thread."""
        suffixes = (SNAPSHOT_SUFFIX, WINDOW_SUFFIX)
        paths = [self._path(offset, suffix) for offset in offsets for suffix in suffixes]
        return [path for path in paths if self._files.exists(path)]

    def _path(self, offset: int, suffix: str) -> str:
        return f"{self._directory}/{offset:020d}{suffix}"

    def _write(self, offset: int, suffix: str, data: bytes) -> File:
        file = self._files.open(self._path(offset, suffix), create=True)
        file.truncate(0)
        file.append(data)
        return file

    def _read_windows(self, offset: int, snapshot: bytes) -> Windows | None:
        try:
            return decode_windows(
                self._files.read_bytes(self._path(offset, WINDOW_SUFFIX)), snapshot
            )
        except (FileNotFoundError, CorruptSnapshotError):
            return None


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    txn_first = entry.current_txn_first_offset
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        NO_SEQUENCE if last is None else last.last_sequence,
        _NO_OFFSET if last is None else last.last_offset,
        0 if last is None else last.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        _NO_OFFSET if txn_first is None else txn_first,
    )


def _decode_entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first: int,
) -> ProducerEntry:
    last = BatchMetadata(last_sequence, last_offset, offset_delta, timestamp)
    return ProducerEntry(
        producer_id,
        epoch,
        (last,) if last_offset >= 0 else (),
        coordinator_epoch,
        timestamp,
        txn_first if txn_first >= 0 else None,
    )


def _with_windows(entries: list[ProducerEntry], windows: Windows) -> list[ProducerEntry]:
    return [
        entry._replace(batches=windows.get(entry.producer_id, ()) + entry.batches)
        for entry in entries
    ]


def _seal(version: int, body: bytes) -> bytes:
    return _HEAD.pack(version, crc32c(body)) + body


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
