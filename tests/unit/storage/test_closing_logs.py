"""The state in which a broker leaves its log directories, and what the next start reads from it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.files.files import OsFile, OsFiles, write_atomic
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import start_again, truncate
from barnabas.storage.opening.future_logs import FutureLogs
from tests.support.mem_files import Fault, MemFiles
from tests.unit.storage.log_bench import NOW, offsets, put, retain
from tests.unit.storage.log_directories import create, make


def test_killed_process_and_reboot_are_distinguished() -> None:
    files = MemFiles()
    make(files)
    files.kill()
    assert not make(files).last_run.clean
    files.kill()
    again = make(files, boot_id="boot-2")
    assert (again.last_run.clean, again.last_run.same_boot) == (False, False)
    again.close()
    assert make(files, boot_id="boot-2").last_run.clean


def test_failed_start_after_power_loss_keeps_the_unclean_mark() -> None:
    files = MemFiles()
    put(create(make(files), "t"), b"v")
    files.crash(0)
    for _ in range(2):
        failing = make(files, boot_id="boot-2", settled=False)
        assert (failing.last_run.clean, failing.last_run.same_boot) == (False, False)
        failing.close()
    dying = make(files, boot_id="boot-2", settled=False)
    dying.abandon()
    again = make(files, boot_id="boot-2")
    assert (again.last_run.clean, again.last_run.same_boot) == (False, False)
    again.close()
    assert make(files, boot_id="boot-3").last_run.clean


def test_failed_start_after_a_clean_shutdown_keeps_the_clean_mark() -> None:
    files = MemFiles()
    make(files).close()
    make(files, settled=False).close()
    again = make(files, boot_id="boot-2", settled=False)
    assert again.last_run.clean
    again.abandon()
    killed = make(files, boot_id="boot-2")
    assert (killed.last_run.clean, killed.last_run.same_boot) == (False, True)


def test_new_directory_counts_as_possibly_lost() -> None:
    files = MemFiles()
    first = make(files, "/data/a")
    assert (first.last_run.clean, first.last_run.is_new) == (False, True)
    first.close()
    again = make(files, "/data/a")
    assert (again.last_run.clean, again.last_run.is_new) == (True, False)
    again.close()
    more = make(files)
    assert (more.last_run.clean, more.last_run.is_new) == (False, True)
    more.abandon()
    again = make(files)
    assert (again.last_run.clean, again.last_run.is_new) == (False, False)


def test_removed_directory_is_missing_until_the_cluster_knows() -> None:
    files = MemFiles()
    make(files).close()
    for _ in range(2):
        failing = make(files, "/data/a", settled=False)
        assert (failing.last_run.clean, failing.last_run.is_new) == (False, True)
        failing.close()
    informed = make(files, "/data/a")
    assert informed.last_run.is_new
    informed.close()
    assert make(files, "/data/a").last_run.clean


def test_directory_added_in_an_unacknowledged_run_is_missing_too() -> None:
    files = MemFiles()
    make(files, "/data/a", seed=2).close()
    assert not files.exists("/data/a/.log_dirs"), "a broker with one directory has no list"
    make(files, settled=False).close()
    for path in ("/data/a", "/data/b"):
        left = make(files, path, settled=False)
        assert left.last_run.is_new
        left.abandon()


@pytest.mark.parametrize("seed", range(12))
def test_power_loss_hides_no_removed_directory(seed: int) -> None:
    files = MemFiles()
    make(files)
    files.crash(seed)
    assert make(files, "/data/a", boot_id="boot-2").last_run.is_new


def test_offline_directory_does_not_count_as_missing() -> None:
    files = MemFiles()
    make(files).close()
    files.faults.append(Fault("open", "/data/a/.lock"))
    partly = make(files)
    assert partly.last_run.clean
    partly.close()
    assert make(files, "/data/b").last_run.is_new, "removed, it counts as missing"


def test_one_offline_directory_excuses_one_missing_directory() -> None:
    files = MemFiles()
    make(files, "/data/a", "/data/b", "/data/c").close()
    files.faults.append(Fault("open", "/data/a/.lock"))
    assert make(files).last_run.is_new


def test_directory_whose_list_cannot_be_written_goes_offline() -> None:
    files = MemFiles()
    make(files, "/data/a", seed=2).close()
    files.faults.append(Fault("append", "/data/a/.log_dirs.tmp"))
    assert [each.path for each in make(files).online_dirs] == ["/data/b"]


def test_closing_in_shares_makes_all_logs_durable_and_directories_clean() -> None:
    files = MemFiles()
    manager = make(files)
    for partition in range(5):
        put(create(manager, "t", partition), b"v")
    for share in range(2):
        manager.close_share(share, 2)
    assert all(log.closed for log in manager.logs)
    manager.close()
    files.crash(0)
    again = make(files, boot_id="boot-2")
    assert again.last_run.clean
    assert [log.log_end_offset for log in again.logs] == [1] * 5


def test_a_directory_that_fails_while_its_share_is_closed_is_not_clean() -> None:
    files = MemFiles()
    failures: list[LogDirFailed] = []
    manager = make(files, failures=failures)
    for partition in range(4):
        put(create(manager, "t", partition), b"v")
    files.faults.append(Fault("sync", "b/t-1/00000000000000000000.log"))
    manager.close_share(0, 1)
    manager.close()
    assert len(failures) == 1
    assert not files.exists("/data/b/.kafka_cleanshutdown")
    assert files.exists("/data/a/.kafka_cleanshutdown")


class CountingFile(OsFile):
    __slots__ = ()

    synced: Counter[str] = Counter()

    def sync(self) -> None:
        self.synced[self.path] += 1


class CountingFiles(OsFiles):
    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        file.__class__ = CountingFile
        return file


def test_closing_syncs_each_file_once(tmp_path: Path) -> None:
    manager = make(CountingFiles(), str(tmp_path))
    put(create(manager, "t"), b"v")
    CountingFile.synced.clear()
    manager.close()
    assert CountingFile.synced[str(tmp_path / "t-0" / "00000000000000000000.log")] == 1
    assert set(CountingFile.synced.values()) == {1}


def closed_once(files: MemFiles) -> Log:
    """Return a log that was closed with some segments, and opened again."""
    manager = make(files, "/data")
    log = create(manager, "t")
    for _ in range(4):
        put(log, b"v" * 300)
    manager.close()
    return make(files, "/data").logs[0]


def syncs_of_closing(files: MemFiles, log: Log) -> int:
    """Close a log; return how many fsyncs this needs."""
    counted = Fault("sync", nth=1 << 30)
    files.faults.append(counted)
    log.close()
    return counted.seen


def test_unchanged_log_is_closed_without_an_fsync() -> None:
    files = MemFiles()
    log = closed_once(files)
    log.assign_leader_epoch(7)
    log.advance_high_watermark(log.log_end_offset)
    assert offsets(log) == [0, 1, 2, 3]
    assert syncs_of_closing(files, log) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda log: put(log, b"v"),
        lambda log: log.roll(now_ms=NOW),
        lambda log: truncate(log, 3, now_ms=NOW).complete(),
        lambda log: start_again(log, log.log_end_offset, now_ms=NOW).complete(),
        lambda log: (log.delete_records_before(3), retain(log, NOW)),
        lambda log: log.take_over(log),
    ],
    ids=["append", "roll", "truncation", "start again", "retention", "take over"],
)
def test_changed_log_is_closed_with_fsyncs(change: Callable[[Log], object]) -> None:
    files = MemFiles()
    log = closed_once(files)
    log.advance_high_watermark(log.log_end_offset)
    change(log)
    assert syncs_of_closing(files, log) > 0


def test_log_without_a_producer_snapshot_is_closed_with_one() -> None:
    files = MemFiles()
    manager = make(files, "/data")
    put(create(manager, "t"), b"v", producer_id=1, producer_epoch=0, base_sequence=0)
    manager.close()
    path = "/data/t-0/00000000000000000001.snapshot"
    files.unlink(path)
    make(files, "/data").close()
    assert files.exists(path)


def test_log_that_was_created_at_an_offset_is_closed_with_its_names() -> None:
    files = MemFiles()
    manager = make(files)
    log = create(manager, "t")
    start_again(log, 50, now_ms=NOW).complete()
    moves = FutureLogs(manager)
    other = next(each for each in manager.dirs if each is not log.log_dir)
    future = moves.create(log, other)
    named = Fault("sync_dir", "", nth=1 << 30)
    files.faults.append(named)
    future.close()
    assert named.seen > 0


def test_abandoned_directory_is_unlocked_and_recovered() -> None:
    files = MemFiles()
    manager = make(files)
    put(create(manager, "t"), b"v")
    manager.abandon()
    again = make(files)
    assert not again.last_run.clean
    assert again.logs[0].log_end_offset == 1
    total, free = again.space(again.dirs[0])
    assert 0 < free < total


@pytest.mark.parametrize("damaged", [b"0\n1\n0 \x160\n", b"0\n1\n5 0\n", b"0\n0\n"])
def test_damaged_leader_epochs_of_a_closed_log_are_mended_when_it_closes_again(
    damaged: bytes,
) -> None:
    files = MemFiles()
    manager = make(files)
    put(create(manager, "t"), b"v")
    manager.close()
    path = "/data/a/t-0/leader-epoch-checkpoint"
    whole = files.read_bytes(path)
    write_atomic(files, path, damaged)
    make(files).close()
    assert files.read_bytes(path) == whole
