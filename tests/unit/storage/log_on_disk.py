"""Segment files on a real disk, and their compaction."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from barnabas.protocol.records.batch import BatchHeader, crc_matches, iter_headers
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.storage.cleaning.compaction import compact
from barnabas.storage.cleaning.compaction_job import CleanedGroup, CompactionJob, CompactionResult
from barnabas.storage.files.files import OsFile, OsFiles

NOW = 1_000_000
DAY = 86_400_000


class _UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        pass


class Unsynced(OsFiles):
    """Real files that are never synced."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        file.__class__ = _UnsyncedFile
        return file

    def sync_dir(self, path: str) -> None:
        pass


FILES = Unsynced()


class LogOnDisk:
    """Segment files without a log: the part of a log that compaction reads and replaces."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bases: list[int] = []
        self.clean_until = 0
        self.end = 0

    def path(self, base: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base:020d}{suffix}"

    def add_segment(self, batches: Sequence[bytes]) -> None:
        self.bases.append(self.end)
        self.path(self.end).write_bytes(b"".join(batches))
        for _, header in iter_headers(b"".join(batches)):
            self.end = header.next_offset

    def batch(self, *pairs: tuple[bytes | None, bytes | None], base: int, **kind: int) -> bytes:
        records = [
            Record(base + i, NOW + base + i, key, value) for i, (key, value) in enumerate(pairs)
        ]
        return build_batch(records, **kind)

    def job(self, **changes: object) -> CompactionJob:
        job = CompactionJob(
            directory=str(self.directory),
            segments=tuple((base, self.path(base).stat().st_size) for base in self.bases),
            first_dirty_offset=self.clean_until,
            end_offset=self.end,
            now_ms=NOW,
            delete_retention_ms=DAY,
            segment_bytes=1 << 20,
            index_bytes=1 << 20,
            index_interval=0,
            max_message_bytes=1 << 20,
            max_keys=1000,
            bytes_per_second=1e18,
            producers={},
        )
        return job._replace(**changes)  # type: ignore[arg-type]

    def compact(self, **changes: object) -> CompactionResult:
        job = self.job(**changes)
        done = None
        for result in compact(FILES, job):
            assert done is None
            if isinstance(result, CleanedGroup):
                self.swap(result)
            else:
                done = result
        assert done is not None
        self.clean_until = done.end_offset
        return done

    def swap(self, group: CleanedGroup) -> None:
        for base in group.replaced:
            for path in self.directory.glob(f"{base:020d}.*"):
                if not path.name.endswith(".cleaned"):
                    path.unlink()
            self.bases.remove(base)
        for path in self.directory.glob("*.cleaned"):
            path.rename(path.with_suffix(""))
        self.bases = sorted([*self.bases, group.base_offset])
        assert self.path(group.base_offset).stat().st_size == group.size

    def batches(self) -> Iterator[tuple[bytes, BatchHeader]]:
        for base in self.bases:
            data = self.path(base).read_bytes()
            for pos, header in iter_headers(data):
                assert crc_matches(data, pos, header)
                yield data[pos : pos + header.size], header

    def records(self) -> list[Record]:
        return [
            record
            for batch, header in self.batches()
            if not header.is_control
            for record in iter_records(batch, 0, header)
        ]

    def table(self) -> dict[bytes | None, bytes]:
        """Return the last value of each key, as a reader from the beginning finds it."""
        table: dict[bytes | None, bytes] = {}
        for record in self.records():
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
        return table


def put(log: LogOnDisk, *pairs: tuple[bytes | None, bytes | None], **kind: int) -> None:
    """Add a segment of one batch."""
    log.add_segment([log.batch(*pairs, base=log.end, **kind)])
