"""File descriptors: which files stay open, and what happens while none is left."""

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.control import TxnMarker
from barnabas.storage.cleaning.cleaner import CompactionLimits, LogCleaner
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from barnabas.storage.files.errors import OutOfDescriptors
from barnabas.storage.files.files import OsFile, OsFiles, count_descriptors
from barnabas.storage.log import flush, sparse_index
from barnabas.storage.log.log import Log
from barnabas.storage.log.rearrangement import Rearrangement
from barnabas.storage.log.truncation import start_again, truncate
from barnabas.storage.opening.future_logs import FutureLogs
from barnabas.storage.opening.log_manager import LogManager
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import AbortedTxn
from tests.support.mem_files import Fault, MemFiles
from tests.support.waiting import until
from tests.unit.storage.log_bench import DIRECTORY, NOW, batch, disk, load, offsets, put, retain
from tests.unit.storage.log_directories import create, make

CRASH_THAT_KEEPS_NOTHING = 2
"""A seed of `MemFiles.crash` that loses all bytes and names that are not durable."""
LARGE = b"v" * 600
"""Two records of this size do not fit one segment."""


def make_one(files: MemFiles) -> LogManager:
    return make(files, "/data/a")


@pytest.fixture
def files() -> MemFiles:
    return MemFiles()


@pytest.fixture
def manager(files: MemFiles) -> LogManager:
    return make_one(files)


def lacking(call: str = "open", suffix: str = "", nth: int = 1, *, for_good: bool = True) -> Fault:
    return Fault(call, suffix, nth, errno.EMFILE, from_then_on=for_good)


# --- which files stay open


def test_partition_without_records_holds_no_descriptor(
    files: MemFiles, manager: LogManager
) -> None:
    before = files.open_count
    logs = [create(manager, "t", partition) for partition in range(20)]
    for log in logs:
        assert offsets(log) == []
        assert log.flush() == 0
    assert files.open_count == before
    assert {"00000000000000000000.log", "partition.metadata"} <= set(files.listdir("/data/a/t-3"))


def test_segment_has_its_indexes_from_its_creation_and_holds_one_descriptor(
    files: MemFiles, manager: LogManager
) -> None:
    """Kafka's DumpLogSegments looks for them."""
    before = files.open_count
    log = create(manager, "t")
    for value in (b"v", LARGE, LARGE):
        for segment in log.segments:
            names = {f"{segment.base_offset:020d}{kind}" for kind in (".index", ".timeindex")}
            assert names <= set(files.listdir("/data/a/t-0"))
        put(log, value)
        assert log.flush() == log.log_end_offset
    assert len(log.segments) > 1
    assert files.open_count == before + 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_roll_without_a_descriptor_for_an_index_leaves_it_to_a_later_write(
    files: MemFiles, manager: LogManager, suffix: str
) -> None:
    """The roll has created the log file already: an append to the old segment would be lost."""
    log = create(manager, "t")
    put(log, LARGE)
    files.faults.append(lacking(suffix=f"{1:020d}{suffix}"))
    assert put(log, LARGE) == 1
    assert [each.base_offset for each in log.segments] == [0, 1]
    files.faults.clear()
    manager.close()
    assert offsets(make_one(files).logs[0]) == [0, 1]


def test_first_append_opens_the_active_segment_and_a_restart_closes_it(
    files: MemFiles, manager: LogManager
) -> None:
    before = files.open_count
    log = create(manager, "t")
    for _ in range(5):
        put(log, b"v")
    assert files.open_count == before + 1
    manager.close()
    again = make_one(files)
    log = again.logs[0]
    assert offsets(log) == [0, 1, 2, 3, 4]
    assert files.open_count == before
    put(log, b"v")
    assert files.open_count == before + 1


def test_files_that_wait_for_their_fsync_hold_no_descriptor(
    files: MemFiles, manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "ROLLED_HELD_OPEN", 2)
    before = files.open_count
    logs = [create(manager, "t", partition) for partition in range(10)]
    for log in logs:
        put(log, LARGE, producer_id=7, producer_epoch=0, base_sequence=0)
        put(log, LARGE, producer_id=7, producer_epoch=0, base_sequence=1)
        assert log.awaits_flush
    assert files.open_count == before + len(logs) + 2, "the rolled segments of two logs are open"
    for log in logs:
        assert log.flush() == log.log_end_offset
    assert files.open_count == before + len(logs)


@pytest.mark.parametrize("seed", range(8))
def test_first_flush_after_a_kill_makes_the_records_of_the_killed_process_durable(
    files: MemFiles, seed: int
) -> None:
    put(create(make_one(files), "t"), b"a", b"b")
    files.kill()
    log = make_one(files).logs[0]
    assert log.flush() == log.log_end_offset == 2
    files.crash(seed)
    assert make_one(files).logs[0].log_end_offset == 2


@pytest.mark.parametrize("seed", range(8))
def test_first_flush_makes_the_topic_id_durable(files: MemFiles, seed: int) -> None:
    log = create(make_one(files), "t")
    put(log, b"v")
    log.flush()
    files.crash(seed)
    assert make_one(files).logs[0].topic_id == log.topic_id


def test_segment_that_is_deleted_before_its_flush_is_no_failure_of_the_disk() -> None:
    files = disk()
    log = load(files, TopicConfig(segment_bytes=1000, retention_bytes=0))
    for _ in range(4):
        put(log, LARGE)
    job = log.begin_flush()
    assert retain(log, NOW) == 3
    for path in log.to_delete:
        files.unlink(path)
    job.run()
    assert log.finish_flush(job) == 4
    assert log.log_dir.failure is None


def test_empty_log_is_truncated_rolled_moved_and_deleted_without_open_files(
    files: MemFiles,
) -> None:
    manager = make(files)
    before = files.open_count
    log = create(manager, "t")
    log.roll(now_ms=NOW)
    truncate(log, 0, now_ms=NOW).complete()
    start_again(log, 50, now_ms=NOW).complete()
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    other = next(each for each in manager.dirs if each is not log.log_dir)
    moves = FutureLogs(manager)
    future = moves.rename_to_current(moves.create(log, other))
    moves.switch(log, future)
    moves.retire(log, durable_elsewhere=True)
    assert files.open_count == before
    assert put(future, b"v") == 50
    manager.delete("t", 0)
    assert files.open_count == before


def test_log_that_was_truncated_to_its_start_holds_no_descriptor() -> None:
    files = disk()
    log = load(files)
    put(log, b"v")
    truncate(log, 0, now_ms=NOW).complete()
    assert files.open_count == 0
    assert put(log, b"w") == 0
    assert offsets(log) == [0]


def test_preallocated_segment_is_reserved_before_its_first_append() -> None:
    files = disk()
    files.faults.append(Fault("reserve", error=errno.ENOSPC))
    with pytest.raises(OSError, match="space"):
        load(files, TopicConfig(preallocate=True))
    load(files, TopicConfig(preallocate=True))
    assert files.open_count == 0


def test_rebuilt_index_of_the_active_segment_stays_open_for_appends() -> None:
    files = disk()
    config = TopicConfig(index_interval_bytes=100)
    log = load(files, config)
    for _ in range(7):
        put(log, b"v" * 60)
    log.close()
    index = files.open(f"{DIRECTORY}/00000000000000000000.index")
    size = index.size()
    first = index.read(4, 0)
    wrong = first + b"\0\0\0\x09" + index.read(size, 8)
    index.truncate(0)
    index.append(wrong)
    del index
    log = load(files, config, clean=True)
    put(log, b"opens the segment")
    assert offsets(log, int.from_bytes(first))[-1] == 7
    assert log.segments.active.is_active
    assert files.open_count == 1


# --- out of descriptors


def test_append_without_a_descriptor_is_refused_and_takes_no_directory_offline(
    files: MemFiles, manager: LogManager
) -> None:
    log, other = create(manager, "t"), create(manager, "t", 1)
    put(other, b"before")
    files.most_kept = files.open_count
    with pytest.raises(OutOfDescriptors) as refused:
        put(log, b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, len(log.producers), offsets(log)) == (0, 0, [])
    assert log.log_dir.failure is None
    assert put(other, b"an open segment takes records") == 1
    files.most_kept = None
    assert put(log, b"v", producer_id=7, producer_epoch=0, base_sequence=0) == 0
    assert offsets(log) == [0]


def test_follower_without_a_descriptor_appends_later(files: MemFiles, manager: LogManager) -> None:
    leader, follower = create(manager, "t"), create(manager, "t", 1)
    put(leader, b"v")
    data = leader.read(0, 1 << 20, limit=1).read_bytes()
    files.most_kept = files.open_count
    with pytest.raises(OutOfDescriptors):
        follower.append_as_follower(data, now_ms=NOW)
    assert follower.log_end_offset == 0
    files.most_kept = None
    assert follower.append_as_follower(data, now_ms=NOW) == len(data)


@pytest.mark.parametrize("nth", range(1, 7))
def test_roll_without_a_descriptor_is_repeated_by_the_next_append(nth: int) -> None:
    files = disk()
    log = load(files)
    put(log, LARGE, producer_id=7, producer_epoch=0, base_sequence=0)
    files.faults.append(lacking(nth=nth))
    with pytest.raises(OutOfDescriptors):
        put(log, LARGE, producer_id=7, producer_epoch=0, base_sequence=1)
    assert (log.log_end_offset, log.log_dir.failure) == (1, None)
    files.faults.clear()
    assert put(log, LARGE, producer_id=7, producer_epoch=0, base_sequence=1) == 1
    assert offsets(log) == [0, 1]
    assert log.flush() == 2
    files.crash(0)
    assert load(files, recovery_point=2).log_end_offset == 2


def test_append_succeeds_although_its_index_entries_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sparse_index, "_TAIL_BYTES", 16)
    files = disk()
    log = load(files, TopicConfig(index_interval_bytes=1))
    put(log, b"v")
    files.faults.append(lacking(suffix="index"))
    for _ in range(9):
        put(log, b"v")
    assert files.faults[0].hits
    assert offsets(log, 5) == list(range(5, 10))
    files.faults.clear()
    log.close()
    assert files.size(f"{DIRECTORY}/00000000000000000000.index") == 9 * 8


def abort(log: Log) -> None:
    """Append an aborted transaction of two batches."""
    data = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW)
    marker = bytearray(TxnMarker(1, 0, 0, False).packed(NOW)[0])
    log.append(marker, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    log.advance_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("is_read", [True, False])
def test_abort_marker_is_written_although_its_index_cannot_be_opened(is_read: bool) -> None:
    files = disk()
    log = load(files)
    files.faults.append(lacking(suffix=".txnindex"))
    abort(log)
    assert log.log_end_offset == 2
    with pytest.raises(OutOfDescriptors):
        log.aborted_transactions(0, 2)
    files.faults.clear()
    if is_read:
        assert log.aborted_transactions(0, 2) == [AbortedTxn(1, 0, 1, 2)]
    log.close()
    again = load(files, clean=True, recovery_point=2)
    assert again.aborted_transactions(0, 2) == [AbortedTxn(1, 0, 1, 2)]


def test_read_without_a_descriptor_ends_before_a_closed_segment() -> None:
    files = disk()
    log = load(files)
    for _ in range(3):
        put(log, LARGE)
    log.segments.first.hold_open()
    files.most_kept = 0
    assert offsets(log) == [0]
    with pytest.raises(OutOfDescriptors):
        offsets(log, 1)
    files.most_kept = None
    assert offsets(log) == [0, 1, 2]


@pytest.mark.parametrize("nth", range(1, 8))
def test_flush_without_a_descriptor_is_repeated(nth: int) -> None:
    files = disk()
    log = load(files)
    put(log, LARGE)
    put(log, LARGE)
    job = log.begin_flush()
    files.faults.append(lacking(nth=nth) if nth < 6 else lacking("sync_dir", nth=nth - 5))
    job.run()
    with pytest.raises(OutOfDescriptors):
        log.finish_flush(job)
    assert (log.flushed_offset, log.log_dir.failure) == (0, None)
    files.faults.clear()
    assert log.flush() == 2
    files.crash(0)
    assert load(files, recovery_point=2).log_end_offset == 2


def test_files_of_a_refused_flush_are_synced_by_the_next_one(
    files: MemFiles, manager: LogManager
) -> None:
    log = create(manager, "t")
    log.assign_leader_epoch(3)
    put(log, b"v", epoch=3)
    job = log.begin_flush()
    files.faults.append(lacking(suffix="partition.metadata"))
    job.run()
    with pytest.raises(OutOfDescriptors):
        log.finish_flush(job)
    files.faults.clear()
    assert log.flush() == 1
    files.crash(CRASH_THAT_KEEPS_NOTHING)
    again = make_one(files).logs[0]
    assert (again.topic_id, again.log_end_offset) == (log.topic_id, 1)
    assert files.exists("/data/a/t-0/leader-epoch-checkpoint")


@pytest.mark.parametrize("suffix", ["partition.metadata", ".log"])
def test_refused_log_can_be_created_later(
    files: MemFiles, manager: LogManager, suffix: str
) -> None:
    files.faults.append(lacking(suffix=suffix))
    with pytest.raises(OutOfDescriptors):
        create(manager, "t")
    assert manager.get("t", 0) is None
    assert not files.exists("/data/a/t-0")
    assert manager.dirs[0].failure is None
    files.faults.clear()
    assert put(create(manager, "t"), b"v") == 0


def test_checkpoint_without_a_descriptor_leaves_the_old_one(
    files: MemFiles, manager: LogManager
) -> None:
    log = create(manager, "t")
    put(log, b"v")
    log.flush()
    job = manager.begin_checkpoint(log.log_dir)
    files.faults.append(lacking(suffix=".tmp"))
    job.run()
    with pytest.raises(OutOfDescriptors):
        manager.finish_checkpoint(job)
    assert (log.recovery_point, log.log_dir.failure) == (0, None)


def test_directory_whose_logs_could_not_be_closed_is_not_marked_as_clean(
    files: MemFiles, manager: LogManager
) -> None:
    put(create(manager, "t"), b"v")
    files.faults.append(lacking(suffix=".index"))
    manager.close()
    files.faults.clear()
    again = make_one(files)
    assert not again.last_run.clean
    assert again.logs[0].log_end_offset == 1


@pytest.mark.parametrize("nth", range(1, 9))
def test_truncation_without_a_descriptor_is_repeated(nth: int) -> None:
    files = disk()
    log = load(files)
    for number in range(8):
        put(log, b"v" * 150, timestamp=NOW + number)
    change: Rearrangement = truncate(log, 6, now_ms=NOW)
    files.faults.append(lacking(nth=nth))
    for _ in range(5):
        change.run()
        change.advance()
    files.faults.clear()
    change.complete()
    assert offsets(log) == [0, 1, 2, 3, 4, 5]
    assert log.segments.active.max_timestamp == NOW + 5
    assert put(log, b"w") == 6


@pytest.mark.parametrize("fault", [lacking(suffix=".log"), lacking("sync_dir")])
def test_start_at_another_offset_without_a_descriptor_is_repeated(fault: Fault) -> None:
    files = disk()
    log = load(files)
    put(log, b"v")
    change = start_again(log, 50, now_ms=NOW)
    files.faults.append(fault)
    for _ in range(3):
        change.run()
        change.advance()
    files.faults.clear()
    change.complete()
    assert len(log.segments) == 1
    assert put(log, b"w") == 50


def test_truncation_without_a_descriptor_for_aborted_transactions_is_repeated() -> None:
    files = disk()
    log = load(files)
    put(log, b"v")
    abort(log)
    change = truncate(log, 1, now_ms=NOW)
    files.faults.append(lacking(suffix=".txnindex"))
    change.run()
    change.advance()
    files.faults.clear()
    change.complete()
    assert (log.log_end_offset, log.aborted_transactions(0, 9)) == (1, [])


@pytest.mark.parametrize("nth", range(1, 4))
def test_swap_of_a_compacted_segment_without_a_descriptor_is_repeated(nth: int) -> None:
    files = disk()
    log = load(files, TopicConfig(cleanup_policy=("compact",)))
    for number in range(3):
        put(log, b"%d" % number * 30)
        log.roll(now_ms=NOW)
    log.recovery_point = log.flush()
    cleaner = LogCleaner(files, InlineCleaner(files).clean)
    cleaning = cleaner.start([log], CompactionLimits(1 << 20, 1e18), NOW)
    assert cleaning is not None
    group = cleaning.next_group()
    assert group is not None
    change = cleaner.swap(cleaning, group)
    files.faults.append(lacking(suffix=".swap", nth=nth))
    change.run()
    change.advance()
    files.faults.clear()
    change.complete()
    assert change.done
    assert log.log_dir.failure is None
    assert offsets(log) == [1, 2]


# --- spare descriptors of the operating system's files


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Take all but 12 descriptors of this process, under a low limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd"))) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 64, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(12):
            os.close(taken.pop())
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def fill(files: OsFiles, path: str) -> list[OsFile]:
    """Open a file until no more may stay open."""
    kept: list[OsFile] = []
    try:
        while True:
            kept.append(files.open_to_keep(path))
    except OSError as error:
        assert (error.errno, error.filename) == (errno.EMFILE, path)  # noqa: PT017
    return kept


@pytest.mark.usefixtures("few_descriptors")
def test_files_that_stay_open_leave_descriptors_for_others(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    files = OsFiles(spare_descriptors=8)
    files.open(path, create=True)
    kept = fill(files, path)
    assert len(kept) == 4
    for_a_moment = [files.open(path) for _ in range(8)]
    with pytest.raises(OSError, match="Too many open files"):
        files.open(path)
    del for_a_moment[0]
    files.sync_dir(str(tmp_path))
    del for_a_moment
    kept.pop()
    until(lambda: fill(files, path))


@pytest.mark.usefixtures("few_descriptors")
def test_thread_waits_for_a_descriptor(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    files = OsFiles(spare_descriptors=8)
    files.open(path, create=True)
    held = [files.open(path) for _ in range(12)]
    with pytest.raises(OSError, match="Too many open files"):
        files.open(path)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(files.read_bytes(path)))
    thread.start()
    assert found == []
    held.clear()
    thread.join()
    assert found == [b""]


def test_descriptors_of_this_process_are_counted() -> None:
    before = count_descriptors()
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    assert count_descriptors() == before + 5
    for each in held:
        os.close(each)


@pytest.mark.usefixtures("few_descriptors")
def test_log_is_flushed_and_closed_while_no_file_may_stay_open(tmp_path: Path) -> None:
    files = OsFiles(spare_descriptors=4)
    manager = make(files, str(tmp_path))
    log = create(manager, "t")
    put(log, b"v")
    kept = fill(files, str(tmp_path / "t-0" / "partition.metadata"))
    assert log.flush() == 1
    other = create(manager, "t", 1)
    with pytest.raises(OutOfDescriptors):
        put(other, b"v")
    manager.close()
    del kept
    assert make(OsFiles(), str(tmp_path)).last_run.clean
