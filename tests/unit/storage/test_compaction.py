"""Compaction against a plain reader: the last value of each key stays, offsets never change."""

import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record
from barnabas.storage.cleaning.compaction import KeyMap, compact
from barnabas.storage.cleaning.compaction_job import KEY_COST, CompactionFailed
from barnabas.storage.log.offset_index import OffsetIndex
from barnabas.storage.log.time_index import TimeIndex
from tests.support.planted import bomb
from tests.unit.storage.log_on_disk import DAY, FILES, NOW, LogOnDisk, put


@pytest.fixture
def log(tmp_path: Path) -> LogOnDisk:
    return LogOnDisk(tmp_path)


def test_last_record_of_each_key_stays_at_its_offset(log: LogOnDisk) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"c", b"1"), (b"b", b"2"))
    before = log.records()
    done = log.compact()
    assert log.records() == [before[2], before[3], before[4]]
    assert log.bases == [0]
    assert (done.end_offset, done.records_read, done.records_kept) == (5, 5, 3)
    assert [header.last_offset for _, header in log.batches()] == [2, 4]


def test_unchanged_batches_keep_their_bytes(log: LogOnDisk) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), compression=Compression.GZIP)
    before = list(log.batches())
    log.compact()
    assert list(log.batches()) == before


@pytest.mark.parametrize("codec", Compression)
def test_batch_with_removed_records_keeps_codec_sequences_and_last_offset(
    log: LogOnDisk, codec: Compression
) -> None:
    kind = {"compression": codec, "producer_id": 5, "producer_epoch": 2, "base_sequence": 9}
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), **kind)
    put(log, (b"a", b"3"))
    log.compact()
    (_, header), _ = log.batches()
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 9)
    assert header.last_sequence == 11
    assert header.compression == codec


def test_records_without_key_are_removed(log: LogOnDisk) -> None:
    put(log, (None, b"1"), (b"a", b"1"))
    log.compact()
    assert [record.key for record in log.records()] == [b"a"]


def test_tombstone_stays_for_delete_retention_ms_after_its_first_compaction(log: LogOnDisk) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"))
    log.compact()
    (_, header) = next(iter(log.batches()))
    assert header.delete_horizon_ms == NOW + DAY
    assert [(r.key, r.value, r.timestamp) for r in log.records()] == [
        (b"a", None, NOW + 1),
        (b"b", b"1", NOW + 2),
    ]
    log.compact(first_dirty_offset=0, now_ms=NOW + DAY - 1)
    assert len(log.records()) == 2
    log.compact(first_dirty_offset=0, now_ms=NOW + DAY)
    assert [record.key for record in log.records()] == [b"b"]
    assert next(iter(log.batches()))[1].delete_horizon_ms == NOW + DAY


def test_the_last_batch_of_a_live_producer_stays_without_its_records(log: LogOnDisk) -> None:
    for sequence in range(3):
        put(log, (b"a", b"x"), producer_id=5, producer_epoch=1, base_sequence=sequence)
    put(log, (b"a", b"y"))
    log.compact(producers={5: (2, 1)})
    headers = [header for _, header in log.batches()]
    assert [(h.base_offset, h.record_count) for h in headers] == [(2, 0), (3, 1)]
    assert (headers[0].last_sequence, headers[0].producer_epoch) == (2, 1)
    log.compact(first_dirty_offset=0)
    assert [header.record_count for _, header in log.batches()] == [1]


def test_clean_part_ends_with_a_batch_at_its_last_offset(log: LogOnDisk) -> None:
    put(log, (b"a", b"1"))
    put(log, (None, b"2"))
    log.compact()
    assert [(h.base_offset, h.record_count) for _, h in log.batches()] == [(0, 1), (1, 0)]


def test_small_segments_are_merged_up_to_the_segment_size(log: LogOnDisk) -> None:
    for number in range(6):
        put(log, (b"%d" % number, b"x" * 100))
    size = log.path(0).stat().st_size
    log.compact(segment_bytes=2 * size)
    assert log.bases == [0, 2, 4]
    assert [record.offset for record in log.records()] == list(range(6))


def test_full_key_map_ends_the_compaction_early(log: LogOnDisk) -> None:
    for number in range(4):
        put(log, (b"k%d" % number, b"1"), (b"a", b"%d" % number))
    done = log.compact(max_keys=3)
    assert done.end_offset == 4
    assert [r.value for r in log.records() if r.key == b"a"] == [b"1", b"2", b"3"]
    while log.clean_until < log.end:
        log.compact(max_keys=3)
    assert [r.value for r in log.records() if r.key == b"a"] == [b"3"]


def test_compaction_failure_distinguishes_damage_from_a_missing_file(log: LogOnDisk) -> None:
    put(log, (b"a", b"1"))
    job = log.job()
    data = log.path(0).read_bytes()
    log.path(0).write_bytes(data[:-1] + b"!")
    with pytest.raises(CompactionFailed) as caught:
        list(compact(FILES, job))
    assert caught.value.damaged
    log.path(0).unlink()
    with pytest.raises(CompactionFailed) as caught:
        list(compact(FILES, job))
    assert not caught.value.damaged


def test_files_of_an_earlier_worker_are_removed_first(log: LogOnDisk) -> None:
    put(log, (b"a", b"1"))
    log.path(0, ".log.cleaned").write_bytes(b"half a batch")
    log.path(7, ".index.cleaned").write_bytes(b"")
    before = log.records()
    log.compact()
    assert log.records() == before
    assert not list(log.directory.glob("*.cleaned"))


def test_batches_larger_than_the_read_buffer_are_compacted(log: LogOnDisk) -> None:
    big = b"x" * (3 << 20)
    put(log, (b"a", big), (b"b", b"1"))
    put(log, (b"b", big))
    log.compact()
    assert [(r.key, r.value) for r in log.records()] == [(b"a", big), (b"b", big)]


def test_compacted_indexes_point_to_batches(log: LogOnDisk) -> None:
    log.add_segment([log.batch((b"%d" % n, b"x"), base=n) for n in range(20)])
    log.compact(index_interval=0)
    path = str(log.path(0, ".index"))
    positions = {header.last_offset: 0 for _, header in log.batches()}
    at = 0
    for batch, header in log.batches():
        positions[header.last_offset] = at
        at += len(batch)
    index = OffsetIndex(FILES, path, 0, 1 << 20)
    entries = [index.entry_at(number) for number in range(index.entries)]
    assert len(entries) == 19
    assert all(positions[offset] == position for offset, position in entries)
    times = TimeIndex(FILES, str(log.path(0, ".timeindex")), 0, 1 << 20)
    assert times.last == (NOW + 19, 19)


def test_long_keys_are_distinguished() -> None:
    keys = KeyMap(10)
    long = [b"x" * 1000 + b"%d" % n for n in range(3)]
    for offset, key in enumerate(long):
        assert keys.put(key, offset)
    assert keys.put(long[0], 3)
    superseded = [keys.is_superseded(Record(n, 0, key, b"")) for n, key in enumerate(long)]
    assert superseded == [True, False, False]


def test_key_map_stays_within_its_memory() -> None:
    tracemalloc.start()
    try:
        keys = KeyMap(50_000)
        before, _ = tracemalloc.get_traced_memory()
        for offset in range(50_000):
            keys.put(b"a key of some 40 bytes, which is long %05d" % offset, 10**6 + offset)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not keys.put(b"one more", 10**7)
    assert after - before <= 50_000 * KEY_COST


records = st.tuples(
    st.sampled_from([b"a", b"b", b"c", b"d" * 30, b"e" * 30]),
    st.none() | st.binary(max_size=3),
)
segments = st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=120)
@given(st.data())
def test_reader_from_the_beginning_finds_the_same_last_values(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = LogOnDisk(Path(directory))
        now = NOW
        for _ in range(data.draw(st.integers(1, 4))):
            for pairs in data.draw(segments):
                base = log.end
                cut = data.draw(st.integers(1, len(pairs)))
                parts = [log.batch(*pairs[:cut], base=base)]
                if pairs[cut:]:
                    parts.append(log.batch(*pairs[cut:], base=base + cut))
                log.add_segment(parts)
            before, table = log.records(), log.table()
            now += data.draw(st.integers(0, 2 * DAY))
            done = log.compact(now_ms=now, max_keys=data.draw(st.integers(1, 6)))
            after = log.records()
            assert log.table() == table
            # No record is new or moved, and the records from the end on are unchanged.
            assert set(after) <= set(before)
            end = done.end_offset
            assert [r for r in after if r.offset >= end] == [r for r in before if r.offset >= end]
            clean = [record.key for record in after if record.offset < end]
            assert len(clean) == len(set(clean))
            assert max(header.next_offset for _, header in log.batches()) == log.end


@pytest.mark.parametrize("codec", Compression)
def test_batch_of_very_many_records_is_compacted_with_little_memory(
    log: LogOnDisk, codec: Compression
) -> None:
    """All records of a batch were in memory: 4.8 million in a legal batch of a few kilobytes."""
    log.add_segment([log.batch(*[(b"k", b"")] * 60_000, base=0, compression=codec)])
    put(log, (b"k", b"last"))
    tracemalloc.start()
    try:
        log.compact()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [record.value for record in log.records()] == [b"last"]
    assert peak < 8 << 20


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_compaction_ends_at_a_bomb(log: LogOnDisk, codec: Compression) -> None:
    log.add_segment([bomb(codec, 64 << 20)])
    put(log, (b"k", b"last"))
    with pytest.raises(CompactionFailed, match="larger than") as caught:
        log.compact()
    assert caught.value.damaged
