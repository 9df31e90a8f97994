"""Append, read, roll, truncate and flush without failures."""

import errno
from typing import Any

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.records.batch import CorruptRecordError, iter_headers
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import rewrite_batch
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.log.log import Log
from barnabas.storage.log.record_steps import RECORDS_PER_STEP, RecordSteps, at_once, call
from barnabas.storage.log.truncation import start_again, truncate
from barnabas.storage.origin import Origin
from tests.support.mem_files import Fault
from tests.support.planted import bomb, crowd
from tests.unit.storage.log_bench import (
    DIRECTORY,
    NOW,
    SMALL,
    batch,
    disk,
    load,
    offsets,
    put,
    retain,
)


@pytest.fixture
def log() -> Log:
    return load(disk())


def test_leader_writes_offsets_and_its_epoch_into_batches_in_place(log: Log) -> None:
    put(log, b"a", b"b")
    data = batch(b"c")
    appended = log.append(memoryview(data), leader_epoch=7, now_ms=NOW)
    assert (appended.first_offset, appended.last_offset) == (2, 2)
    assert appended.log_append_time == -1
    ((_, header),) = iter_headers(data)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 7)
    assert log.offset_for_epoch(0) == (0, 2)
    assert log.offset_for_epoch(7) == (7, 3)


def test_read_only_bytes_are_copied(log: Log) -> None:
    log.append(bytes(batch(b"a")), leader_epoch=3, now_ms=NOW)
    assert log.epochs.latest_epoch == 3


def test_log_append_time_is_the_brokers_clock() -> None:
    log = load(disk(), SMALL.replace(message_timestamp_type="LogAppendTime"))
    appended = log.append(batch(b"a", timestamp=1), leader_epoch=0, now_ms=NOW + 5)
    assert appended.log_append_time == NOW + 5
    found = at_once(log.offset_for_timestamp(NOW))
    assert found is not None
    assert found.timestamp == NOW + 5


def test_a_repeated_batch_of_an_idempotent_producer_keeps_its_offsets(log: Log) -> None:
    ids = {"producer_id": 5, "producer_epoch": 0}
    for sequence in range(5):
        put(log, b"x", base_sequence=sequence, **ids)
    again = log.append(batch(b"x", base_sequence=1, **ids), leader_epoch=0, now_ms=NOW)
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (1, 1)
    assert log.log_end_offset == 5
    with pytest.raises(KafkaError) as refused:
        put(log, b"x", base_sequence=9, **ids)
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 5


def test_a_refused_batch_changes_nothing(log: Log) -> None:
    damaged = batch(b"a")
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as refused:
        log.append(damaged, leader_epoch=0, now_ms=NOW)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.size) == (0, 0)


def test_reads_end_at_the_limit_and_never_split_a_batch(log: Log) -> None:
    sizes = [len(batch(b"x" * 50, b"y")) for _ in range(4)]
    for _ in sizes:
        put(log, b"x" * 50, b"y")
    assert offsets(log) == [0, 2, 4, 6]
    assert offsets(log, 3) == [2, 4, 6]
    assert offsets(log, 0, sum(sizes[:2])) == [0, 2]
    assert offsets(log, 0, sum(sizes[:2]) - 1) == [0]
    assert offsets(log, 2, 1) == [2], "the first batch may be larger than max_bytes"
    assert len(log.read(2, 1, limit=8, min_one=False)) == 0
    assert len(log.read(2, -(1 << 31), limit=8, min_one=False)) == 0
    assert offsets(log, 2, -(1 << 31)) == [2], "a client may ask for anything"
    assert len(log.read(0, 10_000, limit=4)) == sum(sizes[:2])
    assert len(log.read(0, 10_000, limit=5)) == sum(sizes[:2]), "the limit is within a batch"
    assert len(log.read(8, 10_000, limit=8)) == 0
    ends = [log.read(0, size, limit=7).end_offset for size in (1, sum(sizes[:2]), 10_000)]
    assert ends == [2, 4, 7], "the offset of the next batch, or the limit"
    for wrong in (-1, 9):
        with pytest.raises(KafkaError) as refused:
            log.read(wrong, 1, limit=8)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_one_read_spans_segments_and_stays_readable_after_their_deletion(log: Log) -> None:
    for value in range(40):
        put(log, bytes([value]) * 80)
    assert len(log.segments) > 3
    piece = log.read(1, 1 << 20, limit=40)
    log.delete_records_before(40)
    retain(log, NOW)
    for path in log.to_delete:
        log.location.files.unlink(path)
    assert [h.base_offset for _, h in iter_headers(piece.read_bytes())] == list(range(1, 40))
    assert (piece.start_offset, piece.end_offset) == (1, 40)
    assert sum(length for _, _, length in piece.chunks(100)) == len(piece)
    assert max(length for _, _, length in piece.chunks(100)) == 100


@pytest.mark.parametrize(
    ("config", "gap_ms", "segments"),
    [
        (SMALL.replace(segment_bytes=200), 0, 5),
        (SMALL.replace(segment_bytes=10_000, segment_ms=10), 11, 5),
        (SMALL.replace(segment_bytes=10_000, segment_ms=10), 2, 1),
        (SMALL.replace(segment_bytes=10_000, index_interval_bytes=0, segment_index_bytes=36), 1, 2),
    ],
)
def test_a_segment_rolls_by_size_by_time_and_by_its_index(
    config: TopicConfig, gap_ms: int, segments: int
) -> None:
    log = load(disk(), config)
    for number in range(5):
        put(log, b"x" * 60, timestamp=NOW + number * gap_ms)
    assert len(log.segments) == segments
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_a_timestamp_finds_the_first_record_that_is_not_older(log: Log) -> None:
    for offset, timestamp in enumerate((10, 30, 20, 40, 40, 35, 50)):
        put(log, b"x" * 300, timestamp=timestamp)
        found = at_once(log.offset_for_timestamp(timestamp))
        assert found is not None
        assert found.offset <= offset
    for timestamp, offset in ((0, 0), (10, 0), (11, 1), (31, 3), (41, 6)):
        found = at_once(log.offset_for_timestamp(timestamp))
        assert found is not None
        assert (found.offset, found.leader_epoch) == (offset, 0)
    assert at_once(log.offset_for_timestamp(51)) is None
    greatest = at_once(log.offset_of_max_timestamp())
    assert greatest is not None
    assert (greatest.offset, greatest.timestamp) == (6, 50)


def test_an_empty_log_has_no_timestamps(log: Log) -> None:
    assert at_once(log.offset_for_timestamp(0)) is None
    assert at_once(log.offset_of_max_timestamp()) is None


def test_greatest_timestamp_of_a_log_without_timestamps_is_that_of_its_first_record(
    log: Log,
) -> None:
    put(log, b"a", timestamp=-1)
    put(log, b"b", timestamp=-1)
    greatest = at_once(log.offset_of_max_timestamp())
    assert greatest is not None
    assert (greatest.offset, greatest.timestamp, greatest.leader_epoch) == (0, -1, 0)
    assert at_once(log.offset_for_timestamp(0)) is None


def test_greatest_timestamp_of_a_batch_that_compaction_emptied_has_no_record(log: Log) -> None:
    put(log, b"a")
    newest = batch(b"b", timestamp=NOW + 1)
    ((_, header),) = iter_headers(newest)
    emptied = rewrite_batch(header._replace(base_offset=1), ())
    log.append_as_follower(emptied, now_ms=NOW)
    assert at_once(log.offset_of_max_timestamp()) is None


def test_the_high_watermark_only_rises_and_stays_in_the_log(log: Log) -> None:
    log.append(batch(b"a", b"b"), leader_epoch=0, now_ms=NOW)
    assert log.high_watermark == 0
    log.advance_high_watermark(9)
    log.advance_high_watermark(1)
    assert log.high_watermark == 2


def test_an_open_transaction_holds_the_last_stable_offset(log: Log) -> None:
    ids = {"producer_id": 9, "producer_epoch": 0}
    put(log, b"before")
    put(log, b"open", base_sequence=0, transactional=True, **ids)
    put(log, b"after")
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    marker = TxnMarker(**ids, coordinator_epoch=0, committed=False).packed(NOW)[0]
    log.append(marker, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    assert log.last_stable_offset == 1, "the marker is not replicated yet"
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4
    (aborted,) = log.aborted_transactions(0, 4)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (9, 1, 3)
    assert log.aborted_transactions(0, 1) == []
    truncate(log, 3, now_ms=NOW).complete()
    assert log.aborted_transactions(0, 3) == []
    assert log.last_stable_offset == 1


def test_follower_keeps_offsets_and_epochs_of_its_leader(log: Log) -> None:
    leader = load(disk())
    for epoch in (1, 1, 4):
        put(leader, b"x" * 20, b"y", epoch=epoch)
    data = leader.read(0, 1 << 20, limit=6).read_bytes()
    log.append_as_follower(data, now_ms=NOW)
    assert log.read(0, 1 << 20, limit=6).read_bytes() == data
    assert log.epochs.entries == leader.epochs.entries
    log.append_as_follower(b"", now_ms=NOW)
    with pytest.raises(KafkaError) as refused:
        log.append_as_follower(data, now_ms=NOW)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


def test_truncated_log_continues_at_its_new_end(log: Log) -> None:
    for sequence in range(20):
        put(
            log, b"x" * 60, epoch=sequence // 7,
            producer_id=1, producer_epoch=0, base_sequence=sequence,
        )  # fmt: skip
    log.flush()
    truncate(log, 8, now_ms=NOW).complete()
    assert (log.log_end_offset, log.high_watermark, log.flushed_offset) == (8, 8, 8)
    assert offsets(log) == list(range(8))
    assert log.epochs.latest_epoch == 1
    entry = log.producers.entry(1)
    assert entry is not None
    assert [last for _, last, _, _ in entry.batches] == [3, 4, 5, 6, 7]
    assert put(log, b"new", producer_id=1, producer_epoch=0, base_sequence=8) == 8
    truncate(log, 30, now_ms=NOW).complete()
    assert log.log_end_offset == 9


def test_log_starts_again_at_any_offset(log: Log) -> None:
    for _ in range(20):
        put(log, b"x" * 60)
    for offset in (500, 7):
        start_again(log, offset, now_ms=NOW).complete()
        assert (log.log_start_offset, log.log_end_offset, log.size) == (offset, offset, 0)
        assert log.high_watermark == offset
        assert put(log, b"y") == offset


def test_truncation_lowers_the_recovery_point() -> None:
    written: list[object] = []
    log = load(disk(), checkpoints=written)
    for _ in range(20):
        put(log, b"x" * 60)
    log.flush()
    log.recovery_point = 20
    truncate(log, 8, now_ms=NOW).complete()
    assert written == [log.log_dir]
    assert log.recovery_point == 8
    put(log, b"a", b"b", b"c")
    log.recovery_point = log.flush()
    truncate(log, 10, now_ms=NOW).complete()
    assert log.recovery_point == log.log_end_offset == 8, "the batch is dropped whole"


def test_deleted_records_are_unreadable_and_retention_removes_their_segments(log: Log) -> None:
    for _ in range(30):
        put(log, b"x" * 60)
    log.delete_records_before(20)
    assert log.log_start_offset == 20
    with pytest.raises(KafkaError):
        log.read(19, 100, limit=30)
    with pytest.raises(KafkaError) as refused:
        log.delete_records_before(31)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    before = len(log.segments)
    dropped = retain(log, NOW)
    assert 0 < dropped < before
    assert log.segments.first.base_offset <= 20
    assert log.log_start_offset == 20
    assert f"{DIRECTORY}/{0:020d}.log.deleted" in log.to_delete


def test_retention_may_delete_all_segments_and_offsets_continue(log: Log) -> None:
    for _ in range(30):
        put(log, b"x" * 60, timestamp=NOW)
    log.configure(SMALL.replace(retention_ms=1000))
    retain(log, NOW + 1001)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (30, 30, 0)
    assert put(log, b"y", timestamp=NOW) == 30


def test_flush_covers_the_records_appended_before_it_began(log: Log) -> None:
    put(log, b"a")
    first = log.begin_flush()
    put(log, b"b")
    second = log.begin_flush()
    put(log, b"c")
    second.run()
    assert log.finish_flush(second) == 0, "the first one holds files that are not synced yet"
    first.run()
    assert log.finish_flush(first) == 2
    assert log.flush() == 3


def test_truncation_voids_the_running_flush(log: Log) -> None:
    put(log, b"a")
    put(log, b"b")
    job = log.begin_flush()
    truncate(log, 1, now_ms=NOW).complete()
    put(log, b"c", b"d")
    job.run()
    assert log.finish_flush(job) <= 1
    assert log.flush() == 3


@pytest.mark.parametrize("call", ["append", "sync"])
def test_failed_directory_is_not_used_again(call: str) -> None:
    files = disk()
    log = load(files)
    put(log, b"a")
    files.faults.append(Fault(call, ".log"))
    if call == "sync":
        put(log, b"b")
    with pytest.raises(LogDirFailed) as failed:
        log.flush() if call == "sync" else put(log, b"b")
    assert failed.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    size = files.size(f"{DIRECTORY}/{0:020d}.log")
    for attempt in (
        lambda: put(log, b"c"),
        log.flush,
        lambda: log.read(0, 1, limit=1),
        lambda: truncate(log, 0, now_ms=NOW).complete(),
    ):
        with pytest.raises(LogDirFailed):
            attempt()
    assert files.size(f"{DIRECTORY}/{0:020d}.log") == size
    assert files.faults[0].hits == 1


def test_wrong_index_is_rebuilt_by_the_read_that_finds_it() -> None:
    files = disk()
    log = load(files)
    for _ in range(30):
        put(log, b"x" * 60)
    log.close()
    index = files.open(f"{DIRECTORY}/{0:020d}.index")
    size = index.size()
    wrong = index.read(8, 0)[:4] + b"\0\0\0\x09" + index.read(size, 8)
    index.truncate(0)
    index.append(wrong)
    again = load(files, clean=True)
    assert offsets(again, 4)[0] == 4
    assert offsets(again) == list(range(30))


def test_reads_find_records_that_a_wrong_index_skips() -> None:
    files = disk()
    log = load(files)
    for _ in range(30):
        put(log, b"x" * 60)
    log.close()
    index = files.open(f"{DIRECTORY}/{0:020d}.index")
    size = index.size()
    skips = index.read(size, 0)[4:8] + index.read(4, size - 4) + index.read(size, 8)
    index.truncate(0)
    index.append(b"\0\0\0\0" + skips[4:])
    again = load(files, clean=True)
    assert offsets(again, 1)[0] == 1
    assert offsets(again) == list(range(30))


def test_damaged_log_raises_corrupt_message() -> None:
    files = disk()
    log = load(files)
    for _ in range(3):
        put(log, b"x" * 60)
    file = files.open(f"{DIRECTORY}/{0:020d}.log")
    data = bytearray(file.read(10_000, 0))
    data[len(data) // 3 + 16] = 9
    file.truncate(0)
    file.append(data)
    with pytest.raises(KafkaError) as refused:
        log.read(1, 10, limit=3)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_preallocated_segment_that_does_not_fit_the_disk_takes_the_directory_offline() -> None:
    files = disk()
    log = load(files, SMALL.replace(preallocate=True))
    put(log, b"a")
    files.faults.append(Fault("reserve", error=errno.ENOSPC))
    with pytest.raises(LogDirFailed):
        log.roll(now_ms=NOW)


ROOMY = TopicConfig(segment_bytes=1 << 24, index_interval_bytes=100)
LATER = NOW + 5


def planted(*batches: bytes, config: TopicConfig = ROOMY) -> Log:
    """Return a log into which batches came that the leader had not looked into."""
    log = load(disk(), config)
    for data in batches:
        log.append(bytearray(data), leader_epoch=0, now_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)
    return log


def pauses(steps: RecordSteps[Any]) -> int:
    """Return the number of steps in which a search can be interrupted."""
    count = 0
    try:
        step = next(steps)
        while True:
            count += 1
            step = call(steps, step) if callable(step) else next(steps)
    except StopIteration:
        return count


@pytest.mark.parametrize("codec", Compression)
def test_search_by_time_pauses_within_a_planted_batch(codec: Compression) -> None:
    """A search over a batch of 140 KB held the event loop for 41 s."""
    log = planted(crowd(codec, 20_000), batch(b"later", timestamp=LATER))
    assert pauses(log.offset_for_timestamp(LATER)) >= 20_000 // RECORDS_PER_STEP
    found = at_once(log.offset_for_timestamp(LATER))
    assert found is not None
    assert found.offset == 20_000
    with pytest.raises(CorruptRecordError, match="no record has the maximum timestamp"):
        at_once(log.offset_of_max_timestamp())


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_search_by_time_ends_at_a_bomb(codec: Compression) -> None:
    log = planted(bomb(codec, 64 << 20))
    for steps in (log.offset_for_timestamp(LATER), log.offset_of_max_timestamp()):
        with pytest.raises(ProtocolError):
            at_once(steps)


def test_search_by_time_pauses_between_headers() -> None:
    # The index of times has no entry as long as timestamps do not rise.
    log = planted(*[bytes(batch(b"v"))] * 2000, bytes(batch(b"later", timestamp=LATER)))
    assert pauses(log.offset_for_timestamp(LATER)) >= 2000 // RECORDS_PER_STEP


def test_segments_may_be_deleted_during_a_search_by_time() -> None:
    config = SMALL.replace(segment_bytes=2000, retention_bytes=50)
    lying = crowd(Compression.GZIP, 3000)
    log = planted(*[lying] * 60, bytes(batch(b"later", timestamp=LATER)), config=config)
    assert len(log.segments) > 2
    steps = log.offset_for_timestamp(LATER)
    next(steps)
    assert retain(log, NOW + 1000)
    assert len(log.segments) == 1
    found = at_once(steps)
    assert found is not None
    assert found.offset == 60 * 3000
