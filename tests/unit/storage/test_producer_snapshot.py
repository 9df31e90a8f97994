"""Snapshot and window files: Kafka's bytes, and the effect of damage to either file."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from struct import pack
from threading import Thread
from types import SimpleNamespace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.internal.producer_snapshot import ProducerEntry as WireEntry
from barnabas.protocol.internal.producer_snapshot import ProducerSnapshot
from barnabas.storage.files.files import OsFiles
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import truncate
from barnabas.storage.producers import snapshot as snapshot_module
from barnabas.storage.producers.entry import BatchMetadata, ProducerStateEntry
from barnabas.storage.producers.snapshot import (
    CorruptSnapshotError,
    Snapshots,
    decode_snapshot,
    decode_windows,
    encode_snapshot,
    encode_windows,
)
from barnabas.storage.producers.state import ProducerStateManager
from tests.support.mem_files import MemFile, MemFiles
from tests.unit.storage.log_bench import DIRECTORY, NOW, disk, put, retain
from tests.unit.storage.log_bench import load as load_log

int16 = st.integers(0, 2**15 - 1)
int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
batches = st.builds(BatchMetadata, int32, int64, int32, int64)
entries = st.builds(
    ProducerStateEntry,
    int64,
    int16,
    st.lists(batches, max_size=5).map(tuple),
    st.integers(-1, 2**31 - 1),
    int64,
    st.none() | int64,
).map(
    # The last batch in a snapshot takes the timestamp of its producer.
    lambda e: replace(e, last_timestamp=e.batches[-1][3]) if e.batches else e
)
tables = st.lists(entries, max_size=6, unique_by=lambda entry: entry.producer_id)


def last_only(entry: ProducerStateEntry) -> ProducerStateEntry:
    return replace(entry, batches=entry.batches[-1:])


@given(tables)
def test_a_snapshot_reads_back_with_the_last_batch_of_each(table: list[ProducerStateEntry]) -> None:
    assert decode_snapshot(encode_snapshot(table)) == [last_only(entry) for entry in table]


@given(tables)
def test_window_file_holds_the_earlier_batches(table: list[ProducerStateEntry]) -> None:
    snapshot = encode_snapshot(table)
    windows = decode_windows(encode_windows(table, snapshot), snapshot)
    assert windows == {e.producer_id: e.batches[:-1] for e in table if len(e.batches) > 1}


@given(tables)
def test_the_snapshot_has_the_bytes_of_kafkas_message(table: list[ProducerStateEntry]) -> None:
    data = encode_snapshot(table)
    message = decode(ProducerSnapshot, 1, data[2:])
    assert data[:2] == b"\x00\x01"
    assert encode(message, 1) == data[2:]
    assert [(e.producer_id, e.epoch) for e in message.producer_entries] == [
        (entry.producer_id, entry.producer_epoch) for entry in table
    ]


def test_known_bytes() -> None:
    entry = ProducerStateEntry(7, 1, (BatchMetadata(9, 104, 4, 1000),), 3, 1000, 100)
    body = encode(
        ProducerSnapshot(
            producer_entries=[
                WireEntry(
                    producer_id=7,
                    epoch=1,
                    last_sequence=9,
                    last_offset=104,
                    offset_delta=4,
                    timestamp=1000,
                    coordinator_epoch=3,
                    current_txn_first_offset=100,
                )
            ]
        ),
        1,
    )
    assert encode_snapshot([entry])[6:] == body[4:]


ENTRY = ProducerStateEntry(
    7, 1, tuple(BatchMetadata(n, n, 0, 1000 + n) for n in range(5)), -1, 1004, None
)


@given(st.data())
def test_any_damage_is_detected(data: st.DataObject) -> None:
    snapshot = encode_snapshot([ENTRY])
    windows = encode_windows([ENTRY], snapshot)
    for blob, read in (
        (snapshot, decode_snapshot),
        (windows, lambda b: decode_windows(b, snapshot)),
    ):
        damaged = bytearray(blob)
        damaged[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        cut = blob[: data.draw(st.integers(0, len(blob) - 1))]
        for bad in (bytes(damaged), cut):
            with pytest.raises(CorruptSnapshotError):
                read(bad)


@given(st.binary(max_size=200))
def test_any_content_with_a_valid_crc_is_read_or_refused(body: bytes) -> None:
    sealed = pack(">hI", 1, crc32c(body)) + body
    snapshot = pack(">hI", 1, int.from_bytes(body[:4], "big"))
    for read in (decode_snapshot, lambda data: decode_windows(data, snapshot)):
        with suppress(CorruptSnapshotError):
            read(sealed)


def test_the_windows_of_another_snapshot_are_refused() -> None:
    other = encode_snapshot([replace(ENTRY, producer_epoch=2)])
    with pytest.raises(CorruptSnapshotError):
        decode_windows(encode_windows([ENTRY], other), encode_snapshot([ENTRY]))


# --- files


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(OsFiles(), str(tmp_path), [])


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_that_truncation_removed_does_not_come_back(seed: int) -> None:
    files = MemFiles()
    files.make_dir("/log")
    files.sync_dir("/")
    snapshots = Snapshots(files, "/log", [])
    for file in snapshots.take(state_at(10)):
        file.sync()
    files.sync_dir("/log")
    snapshots.remove_from(5)
    files.crash(seed)
    assert files.listdir("/log") == []


def state_at(offset: int, producers: int = 1) -> ProducerStateManager:
    state = ProducerStateManager()
    state.load(
        offset,
        [replace(ENTRY, producer_id=offset + n) for n in range(producers)],
        windows_known=True,
        now_ms=0,
        expiration_ms=10**9,
    )
    return state


Load = Callable[..., tuple[int, ProducerStateManager]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that opens the log as a restart does."""

    def load(end: int = 1000, start: int = 0) -> tuple[int, ProducerStateManager]:
        state = ProducerStateManager()
        names = [path.name for path in tmp_path.iterdir()]
        found = Snapshots(OsFiles(), str(tmp_path), names).load_newest(
            state, log_start_offset=start, log_end_offset=end, now_ms=0, expiration_ms=10**9
        )
        return found, state

    return load


def test_the_newest_snapshot_is_loaded_with_its_windows(snapshots: Snapshots, load: Load) -> None:
    snapshots.take(state_at(10))
    snapshots.take(state_at(20))
    offset, state = load()
    assert offset == state.map_end_offset == 20
    assert list(state) == [replace(ENTRY, producer_id=20)]
    assert not state.windows_wanted


def test_a_snapshot_is_written_once(snapshots: Snapshots, tmp_path: Path) -> None:
    files = snapshots.take(state_at(10))
    assert sorted(Path(file.path).name for file in files) == [
        "00000000000000000010.snapshot",
        "00000000000000000010.window",
    ]
    assert snapshots.take(state_at(10)) == []
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"torn")])
def test_snapshot_without_its_window_file_wants_earlier_batches(
    snapshots: Snapshots, load: Load, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    snapshots.take(state_at(10))
    damage(tmp_path / "00000000000000000010.window")
    offset, state = load()
    assert offset == 10
    assert list(state) == [last_only(replace(ENTRY, producer_id=10))]
    assert state.windows_wanted


def test_damaged_snapshot_is_replaced_by_the_one_before(
    snapshots: Snapshots, load: Load, tmp_path: Path
) -> None:
    snapshots.take(state_at(10))
    snapshots.take(state_at(20))
    (tmp_path / "00000000000000000020.snapshot").write_bytes(b"\x00\x01torn")
    assert load()[0] == 10
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["00000000000000000010"] * 2


def test_snapshots_outside_of_the_log_are_ignored(
    snapshots: Snapshots, load: Load, tmp_path: Path
) -> None:
    snapshots.take(state_at(10))
    snapshots.take(state_at(20))
    offset, state = load(end=19, start=10)
    assert (offset, len(state), state.map_end_offset) == (10, 0, 10)
    assert not (tmp_path / "00000000000000000020.snapshot").exists()


def test_truncation_removes_snapshots_and_retention_returns_them(
    snapshots: Snapshots, tmp_path: Path
) -> None:
    for offset in (10, 20, 30):
        snapshots.take(state_at(offset))
    snapshots.remove_from(30)
    assert snapshots.offsets == [10, 20]
    paths = snapshots.withdraw(snapshots.forget_before(20))
    assert snapshots.offsets == [20]
    assert [Path(path).name for path in paths] == [
        "00000000000000000010.snapshot",
        "00000000000000000010.window",
    ]
    assert sorted({path.stem for path in tmp_path.iterdir()}) == [f"{n:020d}" for n in (10, 20)]


# --- snapshots that a flush writes

NAMES = ["00000000000000000010.snapshot", "00000000000000000010.window"]


@pytest.fixture
def _pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a flush write every snapshot, in steps of two producers."""
    monkeypatch.setattr(snapshot_module, "AT_ONCE", 0)
    monkeypatch.setattr(snapshot_module, "_STEP", 2)


pending = pytest.mark.usefixtures("_pending")


@pending
def test_flush_writes_a_snapshot_of_many_producers(snapshots: Snapshots, tmp_path: Path) -> None:
    state = state_at(10, producers=7)
    (file,) = snapshots.take(state)
    assert snapshots.waiting
    assert list(tmp_path.iterdir()) == []
    file.sync()
    assert not snapshots.waiting
    snapshot = encode_snapshot(state)
    assert (tmp_path / NAMES[0]).read_bytes() == snapshot
    assert (tmp_path / NAMES[1]).read_bytes() == encode_windows(state, snapshot)
    (tmp_path / NAMES[0]).unlink()
    file.sync()
    assert [path.name for path in tmp_path.iterdir()] == NAMES[1:], "it was written again"


def test_snapshot_of_few_producers_is_written_at_once(snapshots: Snapshots, tmp_path: Path) -> None:
    snapshots.take(state_at(10, producers=snapshot_module.AT_ONCE))
    assert not snapshots.waiting
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES


@pending
@pytest.mark.parametrize("written", [False, True])
def test_snapshot_is_loaded_before_and_after_it_is_written(
    snapshots: Snapshots, *, written: bool
) -> None:
    (file,) = snapshots.take(state_at(10, producers=3))
    if written:
        file.sync()
    state = ProducerStateManager()
    found = snapshots.load_newest(
        state, log_start_offset=0, log_end_offset=10, now_ms=0, expiration_ms=10**9
    )
    assert (found, list(state)) == (10, list(state_at(10, producers=3)))
    assert not state.windows_wanted


@pending
def test_snapshot_that_was_removed_is_never_written(snapshots: Snapshots, tmp_path: Path) -> None:
    files = [*snapshots.take(state_at(10)), *snapshots.take(state_at(20))]
    snapshots.remove_from(20)
    assert snapshots.withdraw(snapshots.forget_before(20)) == []
    assert not snapshots.waiting
    for file in files:
        file.sync()
    assert list(tmp_path.iterdir()) == []


class Interrupted(MemFiles):
    """A disk on which another thread acts when a file is first written, or before it is created."""

    def __init__(self, moment: str) -> None:
        super().__init__()
        self.make_dir("/log")
        self.sync_dir("/")
        self.moment = moment
        self.act: Callable[[], None] | None = None
        self.thread = Thread()

    def reach(self, moment: str) -> None:
        if moment == self.moment and self.act is not None:
            self.thread, self.act = Thread(target=self.act), None
            self.thread.start()
            # An action that has to wait for the flush continues after it.
            self.thread.join(timeout=0.1)

    def open(self, path: str, *, create: bool = False) -> MemFile:
        self.reach("opening")
        return InterruptedFile(self, path, super().open(path, create=create)._content)


class InterruptedFile(MemFile):
    __slots__ = ()

    _files: Interrupted

    def truncate(self, size: int) -> None:
        self._files.reach("writing")
        super().truncate(size)


@pytest.fixture(params=["encoding", "opening", "writing"])
def interrupted(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _pending: None
) -> Interrupted:
    files = Interrupted(request.param)
    pause = SimpleNamespace(sleep=lambda _: files.reach("encoding"))
    monkeypatch.setattr(snapshot_module, "time", pause)
    return files


@pytest.mark.parametrize("seed", range(4))
def test_snapshot_that_truncation_removes_during_the_flush_does_not_come_back(
    interrupted: Interrupted, seed: int
) -> None:
    snapshots = Snapshots(interrupted, "/log", [])
    (file,) = snapshots.take(state_at(10, producers=5))
    interrupted.act = lambda: snapshots.remove_from(5)
    file.sync()
    assert interrupted.act is None
    interrupted.thread.join()
    assert interrupted.listdir("/log") == []
    assert not snapshots.waiting
    interrupted.crash(seed)
    assert interrupted.listdir("/log") == []


def test_flush_writes_nothing_into_the_directory_of_another_log(interrupted: Interrupted) -> None:
    snapshots = Snapshots(interrupted, "/log", [])
    (file,) = snapshots.take(state_at(10, producers=5))

    def replace_log() -> None:
        snapshots.abandon()
        interrupted.rename("/log", "/log-delete")
        interrupted.make_dir("/log")

    interrupted.act = replace_log
    file.sync()
    interrupted.thread.join()
    assert interrupted.listdir("/log") == []
    assert interrupted.listdir("/log-delete") in ([], NAMES)


def test_snapshot_that_is_being_written_is_loaded_from_memory(interrupted: Interrupted) -> None:
    snapshots, state = Snapshots(interrupted, "/log", []), ProducerStateManager()
    (file,) = snapshots.take(state_at(10, producers=5))

    def load_newest() -> None:
        snapshots.load_newest(
            state, log_start_offset=0, log_end_offset=10, now_ms=0, expiration_ms=10**9
        )

    interrupted.act = load_newest
    file.sync()
    interrupted.thread.join()
    assert list(state) == list(state_at(10, producers=5))
    assert interrupted.listdir("/log") == NAMES


@pending
def test_snapshot_is_written_by_one_flush() -> None:
    files, sizes = Interrupted("writing"), list[int]()
    (file,) = Snapshots(files, "/log", []).take(state_at(10, producers=5))

    def flush_again() -> None:
        file.sync()
        sizes.extend(files.size(f"/log/{name}") for name in NAMES)

    files.act = flush_again
    file.sync()
    assert sizes == [0, 0]


def produce(log: Log, count: int) -> None:
    for _ in range(count):
        put(log, b"v", base_sequence=log.log_end_offset, producer_id=1, producer_epoch=0)


def snapshots_of(files: MemFiles) -> list[str]:
    return [name for name in files.listdir(DIRECTORY) if name.endswith((".snapshot", ".window"))]


@pending
def test_log_has_one_waiting_snapshot_however_often_it_rolls() -> None:
    files = disk()
    log = load_log(files)
    for _ in range(3):
        produce(log, 5)
        log.roll(now_ms=NOW)
    assert log.snapshots.offsets == [5]
    assert snapshots_of(files) == []
    log.flush()
    produce(log, 5)
    log.roll(now_ms=NOW)
    produce(log, 1)
    log.flush()
    files.kill()
    again = load_log(files, recovery_point=21)
    assert again.snapshots.offsets == [5, 20]
    assert list(again.producers) == list(log.producers)


@pending
@pytest.mark.parametrize("cut", [3, 7])
def test_truncation_before_the_flush_rebuilds_producers(cut: int) -> None:
    files = disk()
    log = load_log(files)
    produce(log, 5)
    log.roll(now_ms=NOW)
    produce(log, 5)
    job = log.begin_flush()
    truncate(log, cut, now_ms=NOW).complete()
    replayed = load_log(files, recovery_point=cut)
    assert list(log.producers) == list(replayed.producers)
    produce(log, 2)
    job.run()
    log.finish_flush(job)
    assert log.snapshots.offsets == [5] * (cut > 5)
    assert snapshots_of(files) == [f"{5:020d}.snapshot", f"{5:020d}.window"] * (cut > 5)


@pending
def test_retention_before_the_flush_leaves_no_snapshot() -> None:
    files = disk()
    log = load_log(files)
    for _ in range(2):
        produce(log, 5)
        log.roll(now_ms=NOW)
    log.delete_records_before(10)
    job = log.begin_flush()
    assert retain(log, NOW) == 2
    job.run()
    log.finish_flush(job)
    assert snapshots_of(files) == []
    log.close()
    assert snapshots_of(files) == [f"{10:020d}.snapshot", f"{10:020d}.window"]
