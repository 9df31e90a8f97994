"""The count of a log's records: compacted and shortened logs, bounds, and changes meanwhile."""

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.protocol.records.batch import CorruptRecordError
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.group_lag import RecordLag
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.cleaning.cleaner import CompactionLimits, LogCleaner
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from barnabas.storage.log.log import Log
from barnabas.storage.log.record_steps import RecordSteps, at_once
from barnabas.storage.origin import Origin
from tests.support.mem_files import MemFiles
from tests.unit.storage.log_bench import NOW, batch, disk, load, put

COMPACTED = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
MANY = 10_000


@pytest.fixture
def files() -> MemFiles:
    return disk()


def count(log: Log, offset: int, max_batches: int = MANY) -> RecordLag:
    return at_once(log.count_records(offset, max_batches))


def records(log: Log, offset: int) -> tuple[int, int]:
    counted = count(log, offset)
    assert counted.counted_to == max(log.high_watermark, offset)
    return counted.to_read, counted.held_back


def append(log: Log, *keys: str, compression: Compression = Compression.NONE, **kind: int) -> None:
    """Append a batch of a record per key, in a segment of its own."""
    made = [Record(i, NOW, key.encode(), b"v" * 99) for i, key in enumerate(keys)]
    data = build_batch(made, compression=compression, **kind)
    log.append(data, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    close_segment(log)


def mark(log: Log, producer: int, *, committed: bool) -> None:
    marker = bytearray(TxnMarker(producer, 0, 0, committed).packed(NOW)[0])
    log.append(marker, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    close_segment(log)


def close_segment(log: Log) -> None:
    log.advance_high_watermark(log.log_end_offset)
    log.roll(now_ms=NOW)
    log.flush()
    log.recovery_point = log.flushed_offset + 1


def compact(files: MemFiles, log: Log) -> None:
    limits = CompactionLimits(dedupe_buffer_bytes=1 << 20, bytes_per_second=1e18)
    cleaner = LogCleaner(files, InlineCleaner(files).clean)
    cleaning = cleaner.start([log], limits, NOW)
    assert cleaning is not None
    while (group := cleaning.next_group()) is not None:
        cleaner.swap(cleaning, group).complete()
    cleaner.finish(cleaning)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_compacted_records_are_not_counted_from_any_offset(
    files: MemFiles, compression: Compression
) -> None:
    log = load(files, COMPACTED)
    append(log, "a", "b", "c", "d", "e", compression=compression)
    append(log, "b", "d")
    append(log, "x")
    compact(files, log)
    # Left of the first batch: a at 0, c at 2, e at 4.
    behind = [6, 5, 5, 4, 4, 3, 2, 1, 0]
    assert [records(log, offset)[0] for offset in range(9)] == behind


def test_aborted_records_and_markers_are_not_counted_in_a_compacted_log(files: MemFiles) -> None:
    log = load(files, COMPACTED)
    producer = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    append(log, "a", "b", base_sequence=0, **producer)
    mark(log, 1, committed=False)
    append(log, "a", base_sequence=2, **producer)
    mark(log, 1, committed=True)
    append(log, "b", base_sequence=3, **producer)
    mark(log, 1, committed=False)
    assert records(log, 0) == (1, 0)
    compact(files, log)
    assert records(log, 0) == (1, 0)


def test_deleted_records_are_not_counted(files: MemFiles) -> None:
    log = load(files)
    put(log, b"a", b"b", b"c")
    log.delete_records_before(2)
    assert records(log, 0) == (1, 0)
    assert records(log, 7) == (0, 0)


def test_records_of_an_open_transaction_are_held_back_with_those_behind_them(
    files: MemFiles,
) -> None:
    log = load(files)
    put(log, b"a")
    put(log, b"b", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    put(log, b"c", b"d")
    assert (records(log, 0), log.held_back_by) == ((1, 3), 7)
    assert (records(log, 3), log.held_back_by) == ((0, 1), 7)


def test_transaction_whose_first_records_are_deleted_still_holds_back(files: MemFiles) -> None:
    log = load(files)
    put(log, b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    put(log, b"c")
    log.delete_records_before(1)
    assert log.last_stable_offset == 1
    assert (records(log, 0), log.held_back_by) == ((0, 2), 7)


def test_a_bounded_count_is_continued_where_it_stopped(files: MemFiles) -> None:
    log = load(files)
    for _ in range(50):
        put(log, b"a", b"b")
    assert len(log.segments) > 3
    first = count(log, 1, 30)
    assert (first.to_read, first.counted_to, first.batches) == (59, 60, 30)
    rest = count(log, first.counted_to, 30)
    assert (rest.to_read, rest.counted_to) == (40, 100)


def test_count_goes_on_where_it_was_when_compaction_merges_segments(files: MemFiles) -> None:
    """The merged segment begins at the offset of the first one: the rest of it must be counted."""
    log = load(files, COMPACTED)
    for number in range(6):
        append(log, f"k{number}")
    counting = log.count_records(0, MANY)
    advance(counting, 2)
    before = len(log.segments)
    compact(files, log)
    assert len(log.segments) < before
    assert at_once(counting).to_read == 6


def test_count_ends_at_the_high_watermark_of_its_beginning(files: MemFiles) -> None:
    log = load(files)
    for _ in range(3):
        put(log, b"a")
    counting = log.count_records(0, MANY)
    advance(counting, 0)
    for _ in range(30):
        put(log, b"a")
    counted = at_once(counting)
    assert (counted.to_read, counted.counted_to) == (3, 3)


def test_uncommitted_records_are_not_counted(files: MemFiles) -> None:
    log = load(files)
    put(log, b"a")
    log.append(batch(b"b"), leader_epoch=0, now_ms=NOW)
    assert records(log, 0) == (1, 0)


def test_steps_of_a_long_count_are_short(files: MemFiles) -> None:
    log = load(files, TopicConfig())
    for _ in range(2_000):
        put(log, b"a")
    # A chunk has the headers of about a hundred batches of 70 bytes.
    assert sum(1 for _ in log.count_records(0, MANY)) >= 15


def test_steps_over_many_aborted_transactions_are_short(files: MemFiles) -> None:
    log = load(files, TopicConfig())
    for number in range(1_000):
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": number}
        log.append(batch(b"a", transactional=True, **producer), leader_epoch=0, now_ms=NOW)
        marker = TxnMarker(1, 0, 0, committed=False).packed(NOW)[0]
        log.append(bytearray(marker), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    log.advance_high_watermark(log.log_end_offset)
    # Four pieces of the index, and chunks with the headers of about a hundred batches.
    assert sum(1 for _ in log.count_records(0, MANY)) >= 4 + 15
    assert records(log, 0) == (0, 0)


def test_damaged_index_of_aborted_transactions_is_reported_as_damage(files: MemFiles) -> None:
    log = load(files)
    put(log, b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    mark(log, 1, committed=False)
    (path,) = (each for each in files.listdir("/data/orders-0") if each.endswith(".txnindex"))
    files.open(f"/data/orders-0/{path}").truncate(33)
    with pytest.raises(CorruptRecordError):
        records(log, 0)


def advance(steps: RecordSteps[RecordLag], number: int) -> None:
    """Take the first steps of a count, all of them pauses or brief calls."""
    step = next(steps)
    for _ in range(number):
        step = steps.send(step()) if callable(step) else next(steps)
