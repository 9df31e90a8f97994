"""Snapshot and window files: Kafka's bytes, and the effect of damage to either file."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import pack

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.internal.producer_snapshot import ProducerEntry as WireEntry
from barnabas.protocol.internal.producer_snapshot import ProducerSnapshot
from barnabas.storage.files.files import OsFiles
from barnabas.storage.files.mem_files import MemFiles
from barnabas.storage.producers.entry import BatchMetadata, ProducerEntry
from barnabas.storage.producers.snapshot import (
    CorruptSnapshotError,
    Snapshots,
    decode_snapshot,
    decode_windows,
    encode_snapshot,
    encode_windows,
)
from barnabas.storage.producers.state import ProducerStateManager

int16 = st.integers(0, 2**15 - 1)
int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
batches = st.builds(BatchMetadata, int32, int64, int32, int64)
entries = st.builds(
    ProducerEntry,
    int64,
    int16,
    st.lists(batches, max_size=5).map(tuple),
    st.integers(-1, 2**31 - 1),
    int64,
    st.none() | int64,
).map(
    # The last batch in a snapshot takes the timestamp of its producer.
    lambda e: e._replace(last_timestamp=e.batches[-1].timestamp) if e.batches else e
)
tables = st.lists(entries, max_size=6, unique_by=lambda entry: entry.producer_id)


def last_only(entry: ProducerEntry) -> ProducerEntry:
    return entry._replace(batches=entry.batches[-1:])


@given(tables)
def test_a_snapshot_reads_back_with_the_last_batch_of_each(table: list[ProducerEntry]) -> None:
    assert decode_snapshot(encode_snapshot(table)) == [last_only(entry) for entry in table]


@given(tables)
def test_window_file_holds_the_earlier_batches(table: list[ProducerEntry]) -> None:
    snapshot = encode_snapshot(table)
    windows = decode_windows(encode_windows(table, snapshot), snapshot)
    assert windows == {e.producer_id: e.batches[:-1] for e in table if len(e.batches) > 1}


@given(tables)
def test_the_snapshot_has_the_bytes_of_kafkas_message(table: list[ProducerEntry]) -> None:
    data = encode_snapshot(table)
    message = decode(ProducerSnapshot, 1, data[2:])
    assert data[:2] == b"\x00\x01"
    assert encode(message, 1) == data[2:]
    assert [(e.producer_id, e.epoch) for e in message.producer_entries] == [
        (entry.producer_id, entry.producer_epoch) for entry in table
    ]


def test_known_bytes() -> None:
    entry = ProducerEntry(7, 1, (BatchMetadata(9, 104, 4, 1000),), 3, 1000, 100)
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


ENTRY = ProducerEntry(
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
    other = encode_snapshot([ENTRY._replace(producer_epoch=2)])
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


def state_at(offset: int) -> ProducerStateManager:
    state = ProducerStateManager()
    state.load(
        offset,
        [ENTRY._replace(producer_id=offset)],
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
    assert list(state) == [ENTRY._replace(producer_id=20)]
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
    assert list(state) == [last_only(ENTRY._replace(producer_id=10))]
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
    paths = snapshots.paths(snapshots.forget_before(20))
    assert snapshots.offsets == [20]
    assert [Path(path).name for path in paths] == [
        "00000000000000000010.snapshot",
        "00000000000000000010.window",
    ]
    assert sorted({path.stem for path in tmp_path.iterdir()}) == [f"{n:020d}" for n in (10, 20)]
