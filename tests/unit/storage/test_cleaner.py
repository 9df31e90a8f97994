"""The cleaner: the choice of a log, the end of its clean part, and the swap in a log in use."""

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.topic import TopicConfig
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.storage.cleaning.cleaner import (
    CHECKPOINT_NAME,
    CompactionLimits,
    CompactionRun,
    DirtyPart,
    LogCleaner,
    measure,
)
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from barnabas.storage.cleaning.compaction_job import CompactionFailed
from barnabas.storage.files.files import OsFiles
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.flush import RolledLogs
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_parts import LogLocation, LogOptions
from barnabas.storage.opening.recovery import load_log
from barnabas.storage.origin import Origin
from tests.unit.storage.log_bench import retain

FILES = OsFiles()
NOW = 1_700_000_000_000
LIMITS = CompactionLimits(dedupe_buffer_bytes=1 << 20, bytes_per_second=1e18)
DEFAULTS = BrokerConfig.from_properties({})


here = InlineCleaner(FILES).clean


Make = Callable[..., Log]


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDir:
    return LogDir(FILES, str(tmp_path))


@pytest.fixture
def make(log_dir: LogDir, tmp_path: Path) -> Make:
    """Return a function that opens the log of a compacted topic."""

    def make(topic: str = "t", **overrides: object) -> Log:
        directory = tmp_path / f"{topic}-0"
        directory.mkdir(exist_ok=True)
        keys = {key.replace("_", "."): str(value) for key, value in overrides.items()}
        return load_log(
            LogLocation(FILES, log_dir, str(directory), topic, 0, bytes(16)),
            TopicConfig.resolve({"cleanup.policy": "compact", **keys}, DEFAULTS),
            LogOptions(lambda: 10**9, lambda _: 0, lambda _: None, RolledLogs()),
            clean=False,
            recovery_point=0,
            log_start_offset=0,
            now_ms=NOW,
        )

    return make


def append(log: Log, *keys: str, at: int = NOW, roll: bool = True, **kind: int) -> None:
    """Append a batch of one record per key, in a segment of its own."""
    value = str(log.log_end_offset).encode()
    records = [Record(i, at, key.encode(), value) for i, key in enumerate(keys)]
    log.append(build_batch(records, **kind), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    log.advance_high_watermark(log.log_end_offset)
    if roll:
        log.roll(now_ms=NOW)
    log.flush()
    # As a checkpoint does that is written later, when the log is longer.
    log.recovery_point = log.flushed_offset + 1


def offsets(log: Log) -> list[int]:
    """Return the offsets that a consumer reads from the beginning."""
    data = log.read(log.log_start_offset, 1 << 20, limit=log.high_watermark).read_bytes()
    return [
        record.offset
        for pos, header in iter_headers(data)
        if not header.is_control
        for record in iter_records(data, pos, header)
    ]


def run(cleaner: LogCleaner, cleaning: CompactionRun | None) -> None:
    assert cleaning is not None
    while (group := cleaning.next_group()) is not None:
        cleaner.swap(cleaning, group).complete()
    cleaner.finish(cleaning)


def test_a_log_is_compacted_while_it_is_in_use(make: Make) -> None:
    log, cleaner = make(), LogCleaner(FILES, here)
    for _ in range(3):
        append(log, "a", "b")
    cleaning = cleaner.start([log], LIMITS, NOW)
    assert cleaning is not None
    reader = log.read(0, 1 << 20, limit=6)
    append(log, "c")
    run(cleaner, cleaning)
    assert offsets(log) == [4, 5, 6]
    assert len(reader.read_bytes()) == len(reader)
    assert log.log_end_offset == 7


def test_compaction_survives_a_restart(make: Make) -> None:
    log, cleaner = make(), LogCleaner(FILES, here)
    for _ in range(3):
        append(log, "a", "b")
    run(cleaner, cleaner.start([log], LIMITS, NOW))
    append(log, "a", roll=False)
    log.close()
    again = make()
    again.advance_high_watermark(7)
    assert offsets(again) == [4, 5, 6]


def test_checkpoint_has_kafkas_text_and_keeps_clean_logs_clean(make: Make, tmp_path: Path) -> None:
    log, cleaner = make(), LogCleaner(FILES, here)
    append(log, "a")
    append(log, "a")
    run(cleaner, cleaner.start([log], LIMITS, NOW))
    cleaner.checkpoint(str(tmp_path))()
    assert (tmp_path / CHECKPOINT_NAME).read_text() == "0\n1\nt 0 2\n"
    assert LogCleaner(FILES, here).start([log], LIMITS, NOW) is None


def test_torn_cleaner_checkpoint_only_repeats_the_compaction(make: Make, tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT_NAME).write_text("0\n1\nt")
    log = make()
    append(log, "a")
    assert LogCleaner(FILES, here).start([log], LIMITS, NOW) is not None


def test_dirtiest_log_is_compacted_first(make: Make) -> None:
    cleaner = LogCleaner(FILES, here)
    logs = [make("one"), make("two")]
    for log in logs:
        append(log, "a")
        run(cleaner, cleaner.start([log], LIMITS, NOW))
    append(logs[0], "a")
    append(logs[1], "a")
    append(logs[1], "a")
    cleaning = cleaner.start(logs, LIMITS, NOW)
    assert cleaning is not None
    assert cleaning.log is logs[1]


def test_deleted_closed_and_empty_logs_are_not_compacted(make: Make) -> None:
    deleted = make("deleted", cleanup_policy="delete")
    closed = make("closed")
    empty = make("empty")
    for log in (deleted, closed):
        append(log, "a")
    closed.close()
    assert LogCleaner(FILES, here).start([deleted, closed, empty], LIMITS, NOW) is None


def test_log_below_the_dirty_ratio_is_not_compacted(make: Make) -> None:
    log, cleaner = make(min_cleanable_dirty_ratio=0.5), LogCleaner(FILES, here)
    append(log, "a", "b", "c")
    run(cleaner, cleaner.start([log], LIMITS, NOW))
    append(log, "a")
    assert cleaner.start([log], LIMITS, NOW) is None
    append(log, "a", "b", "c")
    assert cleaner.start([log], LIMITS, NOW) is not None


def test_max_compaction_lag_overrides_the_dirty_ratio(make: Make) -> None:
    log = make(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1000)
    append(log, "a")
    assert LogCleaner(FILES, here).start([log], LIMITS, NOW + 1000) is None
    assert LogCleaner(FILES, here).start([log], LIMITS, NOW + 1001) is not None


def test_first_timestamp_of_a_segment_is_read_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, cleaner = make(max_compaction_lag_ms=1000), LogCleaner(FILES, here)
    append(log, "a")
    append(log, "b")
    run(cleaner, cleaner.start([log], LIMITS, NOW))
    assert not measure(log, 0, NOW + 1000).overdue
    monkeypatch.setattr(OsFiles, "open", lambda *_, **__: pytest.fail("the disk is read again"))
    assert measure(log, 0, NOW + 1001).overdue


def test_active_and_unflushed_segments_are_never_compacted(make: Make) -> None:
    log = make()
    append(log, "a")
    append(log, "a")
    append(log, "a", roll=False)
    assert measure(log, 0, NOW).end_offset == 2
    log.recovery_point = 2
    assert measure(log, 0, NOW).end_offset == 1
    log.recovery_point = 1
    assert measure(log, 0, NOW).dirty_bytes == 0


def test_an_open_transaction_holds_compaction_back(make: Make) -> None:
    log = make()
    append(log, "a")
    append(log, "a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    append(log, "a")
    assert measure(log, 0, NOW).end_offset == 1
    marker = TxnMarker(1, 0, 0, True).packed(NOW)[0]
    log.append(marker, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    log.advance_high_watermark(4)
    assert measure(log, 0, NOW).end_offset == 3


def test_records_younger_than_the_min_lag_are_not_compacted(make: Make) -> None:
    log = make(min_compaction_lag_ms=1000)
    append(log, "a", at=NOW - 1001)
    append(log, "a", at=NOW - 999)
    append(log, "a", at=NOW - 5000)
    assert measure(log, 0, NOW).end_offset == 1


@pytest.mark.parametrize("clean_until", [3, 10**6])
def test_clean_offset_outside_the_log_is_ignored(make: Make, clean_until: int) -> None:
    log = make()
    append(log, "a")
    append(log, "a")
    assert measure(log, clean_until, NOW).first_dirty_offset == 0


def test_clean_and_dirty_bytes_add_up_to_the_closed_segments(make: Make) -> None:
    log = make()
    for _ in range(3):
        append(log, "a")
    size = log.size // 3
    assert measure(log, 1, NOW) == DirtyPart(1, 3, size, 2 * size, overdue=False)
    assert measure(log, 1, NOW).ratio == pytest.approx(2 / 3)


def test_segments_that_changed_during_compaction_are_not_replaced(make: Make) -> None:
    log, cleaner = make(cleanup_policy="compact,delete"), LogCleaner(FILES, here)
    for _ in range(3):
        append(log, "a")
    cleaning = cleaner.start([log], LIMITS, NOW)
    assert cleaning is not None
    group = cleaning.next_group()
    assert group is not None
    log.delete_records_before(1)
    assert retain(log, NOW) == 1
    with pytest.raises(CompactionFailed) as caught:
        cleaner.swap(cleaning, group)
    assert not caught.value.damaged
    cleaner.fail(cleaning, caught.value)
    with pytest.raises(StopIteration):
        cleaning.next_group()
    assert offsets(log) == [1, 2]
    run(cleaner, cleaner.start([log], LIMITS, NOW))
    assert offsets(log) == [2]


def test_damaged_log_is_skipped_and_others_are_compacted(make: Make, tmp_path: Path) -> None:
    cleaner = LogCleaner(FILES, here)
    logs = [make("bad"), make("good")]
    for log in logs:
        append(log, "a")
    path = tmp_path / "bad-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    for log in logs:
        cleaning = cleaner.start(logs, LIMITS, NOW)
        assert cleaning is not None
        assert cleaning.log is log
        try:
            run(cleaner, cleaning)
        except CompactionFailed as error:
            cleaner.fail(cleaning, error)
    assert cleaner.start(logs, LIMITS, NOW) is None


def test_clean_offset_of_a_deleted_log_does_not_apply_to_a_new_one_of_its_name(
    make: Make, tmp_path: Path
) -> None:
    old, cleaner = make(), LogCleaner(FILES, here)
    append(old, "a")
    append(old, "a")
    run(cleaner, cleaner.start([old], LIMITS, NOW))
    cleaner.checkpoint(str(tmp_path))()
    assert "t 0 2" in (tmp_path / CHECKPOINT_NAME).read_text()
    again = LogCleaner(FILES, here)
    assert again.start([old], LIMITS, NOW) is None
    old.close()
    (tmp_path / "t-0").rename(tmp_path / "t-0.deleted")
    new = make()
    for _ in range(3):
        append(new, "a")
    cleaning = again.start([new], LIMITS, NOW)
    assert cleaning is not None
    assert cleaning.job.first_dirty_offset == 0
    again.checkpoint(str(tmp_path))()
    assert (tmp_path / CHECKPOINT_NAME).read_text() == "0\n1\nt 0 0\n"


def test_producers_are_still_known_after_compaction_and_a_lost_snapshot(
    make: Make, tmp_path: Path
) -> None:
    log, cleaner = make(), LogCleaner(FILES, here)
    for sequence in range(3):
        append(log, "a", producer_id=9, producer_epoch=0, base_sequence=sequence)
    append(log, "a")
    run(cleaner, cleaner.start([log], LIMITS, NOW))
    assert offsets(log) == [3]
    log.close()
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    entry = make().producers.entry(9)
    assert entry is not None
    assert (entry.last_sequence, entry.last_offset) == (2, 2)
