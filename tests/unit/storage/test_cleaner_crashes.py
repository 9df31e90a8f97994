"""Compaction on a disk that fails or loses power in the middle of it."""

from collections import Counter
from random import Random

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.storage.cleaning.cleaner import CompactionLimits, LogCleaner
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from barnabas.storage.cleaning.compaction_job import CompactionFailed
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.flush import RolledLogs
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_parts import LogLocation, LogOptions
from barnabas.storage.opening.recovery import load_log
from tests.support.mem_files import Fault, MemFiles

NOW = 1_700_000_000_000
CONFIG = TopicConfig(cleanup_policy=("compact",), segment_bytes=500, delete_retention_ms=10)
LIMITS = CompactionLimits(dedupe_buffer_bytes=1 << 20, bytes_per_second=1e18)


def load(files: MemFiles, recovery_point: int) -> Log:
    return load_log(
        LogLocation(files, LogDir(files, "/data"), "/data/t-0", "t", 0, bytes(16)),
        CONFIG,
        LogOptions(lambda: 10**15, lambda _: 0, lambda _: None, RolledLogs()),
        clean=False,
        recovery_point=recovery_point,
        log_start_offset=0,
        now_ms=NOW,
    )


def filled(rng: Random) -> tuple[MemFiles, Log]:
    """Return a durable log of small segments with few keys and some tombstones."""
    files = MemFiles()
    for path in ("/data", "/data/t-0"):
        files.make_dir(path)
    files.sync_dir("/")
    files.sync_dir("/data")
    log = load(files, 0)
    for sequence in range(rng.randint(10, 40)):
        key = b"key-%d" % rng.randrange(5)
        value = b"%d" % sequence * 20 if rng.random() < 0.8 else None
        batch = build_batch(
            [Record(0, NOW, key, value)], producer_id=3, producer_epoch=0, base_sequence=sequence
        )
        log.append(batch, leader_epoch=0, now_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)
    log.recovery_point = log.flush()
    return files, log


def table(log: Log) -> dict[bytes | None, bytes]:
    """Check that batches are whole and in order; return the last value of each key."""
    log.advance_high_watermark(log.log_end_offset)
    found: dict[bytes | None, bytes] = {}
    data = log.read(0, 1 << 20, limit=log.log_end_offset).read_bytes()
    end = 0
    for pos, header in iter_headers(data):
        assert header.base_offset >= end
        end = header.next_offset
        for record in iter_records(data, pos, header):
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
    return found


def clean(files: MemFiles, log: Log, now_ms: int) -> None:
    """Run the cleaner once, in this process."""
    cleaner = LogCleaner(files, InlineCleaner(files).clean)
    cleaning = cleaner.start([log], LIMITS, now_ms)
    if cleaning is not None:
        while (group := cleaning.next_group()) is not None:
            cleaner.swap(cleaning, group).complete()
        cleaner.finish(cleaning)


@pytest.mark.parametrize("seed", range(8))
def test_all_files_of_a_cleaned_segment_are_durable(seed: int) -> None:
    files, log = filled(Random(seed))
    cleaning = LogCleaner(files, InlineCleaner(files).clean).start([log], LIMITS, NOW)
    assert cleaning is not None
    assert cleaning.next_group() is not None

    def cleaned() -> dict[str, bytes]:
        names = [name for name in files.listdir("/data/t-0") if name.endswith(".cleaned")]
        return {name: files.read_bytes(f"/data/t-0/{name}") for name in names}

    written = cleaned()
    assert len(written) == 3
    files.crash(seed)
    assert cleaned() == written


CALLS = ("rename", "append", "sync", "sync_dir", "open", "read")


@pytest.mark.parametrize("call", CALLS)
def test_crash_during_compaction_changes_nothing_for_readers(call: str) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(30):
        rng = Random(f"{call} {seed}")
        files, log = filled(rng)
        before, end, producer = table(log), log.log_end_offset, list(log.producers)
        if rng.random() < 0.5:
            clean(files, log, NOW)
        files.faults.append(Fault(call, nth=rng.randint(1, 40), from_then_on=True))
        try:
            clean(files, log, NOW + rng.choice([0, 20]))
            outcomes["done"] += 1
        except (CompactionFailed, LogDirFailed) as error:
            outcomes[type(error).__name__] += 1
        files.faults.clear()
        files.crash(seed)
        log = load(files, end)
        assert table(log) == before
        assert (log.log_start_offset, log.log_end_offset) == (0, end)
        assert list(log.producers) == producer
        clean(files, log, NOW + 30)
        assert table(log) == before
        log.close()
        assert table(load(files, end)) == before
    assert len(outcomes) > 1, outcomes
