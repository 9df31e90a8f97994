"""How a broker leaves its log directories, and what the next one takes from that."""

from collections import Counter
from pathlib import Path

import pytest

from barnabas.storage.errors import LogDirFailed
from barnabas.storage.files import OsFile, OsFiles
from barnabas.storage.mem_files import Fault, MemFiles
from tests.unit.storage.log_bench import put
from tests.unit.storage.log_directories import create, make


def test_a_dead_process_and_a_reboot_are_told_apart() -> None:
    files = MemFiles()
    make(files)
    files.kill()
    assert not make(files).last_run.clean
    files.kill()
    again = make(files, boot_id="boot-2")
    assert (again.last_run.clean, again.last_run.same_boot) == (False, False)
    again.close()
    assert make(files, boot_id="boot-2").last_run.clean


def test_a_start_that_failed_after_a_loss_of_power_does_not_hide_the_loss() -> None:
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


def test_a_start_that_failed_after_a_clean_shutdown_leaves_it_clean() -> None:
    files = MemFiles()
    make(files).close()
    make(files, settled=False).close()
    again = make(files, boot_id="boot-2", settled=False)
    assert again.last_run.clean
    again.abandon()
    killed = make(files, boot_id="boot-2")
    assert (killed.last_run.clean, killed.last_run.same_boot) == (False, True)


def test_a_new_directory_may_stand_where_another_was_lost() -> None:
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


def test_a_directory_that_was_taken_out_is_missed_until_somebody_knows() -> None:
    files = MemFiles()
    make(files).close()
    for _ in range(2):
        failing = make(files, "/data/a", settled=False)
        assert (failing.last_run.clean, failing.last_run.is_new) == (False, True)
        failing.close()
    told = make(files, "/data/a")
    assert told.last_run.is_new
    told.close()
    assert make(files, "/data/a").last_run.clean


def test_a_directory_that_was_added_is_missed_too_though_nobody_knew_of_it_yet() -> None:
    files = MemFiles()
    make(files, "/data/a", seed=2).close()
    assert not files.exists("/data/a/.log_dirs"), "who has one directory misses none"
    make(files, settled=False).close()
    for path in ("/data/a", "/data/b"):
        left = make(files, path, settled=False)
        assert left.last_run.is_new
        left.abandon()


@pytest.mark.parametrize("seed", range(12))
def test_a_loss_of_power_hides_no_directory_that_was_taken_out(seed: int) -> None:
    files = MemFiles()
    make(files)
    files.crash(seed)
    assert make(files, "/data/a", boot_id="boot-2").last_run.is_new


def test_a_directory_that_is_offline_is_not_missed() -> None:
    files = MemFiles()
    make(files).close()
    files.faults.append(Fault("open", "/data/a/.lock"))
    partly = make(files)
    assert partly.last_run.clean
    partly.close()
    assert make(files, "/data/b").last_run.is_new, "it is when it leaves"


def test_one_directory_that_is_offline_does_not_stand_for_two() -> None:
    files = MemFiles()
    make(files, "/data/a", "/data/b", "/data/c").close()
    files.faults.append(Fault("open", "/data/a/.lock"))
    assert make(files).last_run.is_new


def test_a_list_of_directories_that_cannot_be_written_costs_one_directory() -> None:
    files = MemFiles()
    make(files, "/data/a", seed=2).close()
    files.faults.append(Fault("append", "/data/a/.log_dirs.tmp"))
    assert [each.path for each in make(files).online_dirs] == ["/data/b"]


def test_closed_in_shares_everything_is_durable_and_the_directories_are_clean() -> None:
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


def test_closing_waits_once_for_each_file(tmp_path: Path) -> None:
    manager = make(CountingFiles(), str(tmp_path))
    put(create(manager, "t"), b"v")
    CountingFile.synced.clear()
    manager.close()
    assert CountingFile.synced[str(tmp_path / "t-0" / "00000000000000000000.log")] == 1
    assert set(CountingFile.synced.values()) == {1}


def test_an_abandoned_directory_is_free_and_recovers() -> None:
    files = MemFiles()
    manager = make(files)
    put(create(manager, "t"), b"v")
    manager.abandon()
    again = make(files)
    assert not again.last_run.clean
    assert again.logs[0].log_end_offset == 1
    total, free = again.space(again.dirs[0])
    assert 0 < free < total
