"""The file system port: both implementations behave alike, and the one in memory can crash."""

import ctypes
import errno
import fcntl
import os
import resource
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.storage.files import files as files_module
from barnabas.storage.files.files import Files, OsFiles, write_atomic
from tests.support.mem_files import Fault, MemFiles


@pytest.fixture(params=["os", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "os":
        return OsFiles(), str(tmp_path)
    files = MemFiles()
    files.make_dir("/data")
    return files, "/data"


def test_file_is_appended_to_truncated_and_read_anywhere(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/log", create=True)
    file.append(b"abcdef")
    file.append(memoryview(b"ghi"))
    file.truncate(7)
    file.append(b"!")
    assert file.read(100, 4) == b"efg!"
    assert bytes(file.read_nowait(2, 1) or b"") == b"bc"
    assert file.size() == files.size(f"{root}/log") == 8


def test_open_file_stays_readable_after_unlink(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/log", create=True)
    file.append(b"still here")
    files.unlink(f"{root}/log")
    assert not files.exists(f"{root}/log")
    assert file.read(100, 0) == b"still here"


def test_missing_paths_raise_file_not_found(place: tuple[Files, str]) -> None:
    files, root = place
    for call in (files.open, files.size, files.read_bytes, files.listdir, files.unlink):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/nothing")
    with pytest.raises(FileNotFoundError):
        files.make_dir(f"{root}/no/parent")
    files.make_dir(f"{root}/dir")
    with pytest.raises(FileExistsError):
        files.make_dir(f"{root}/dir")


def test_renamed_directory_keeps_its_content(place: tuple[Files, str]) -> None:
    files, root = place
    files.make_dir(f"{root}/a")
    files.open(f"{root}/a/one", create=True).append(b"1")
    files.rename(f"{root}/a", f"{root}/b")
    assert files.listdir(root) == ["b"]
    assert files.is_dir(f"{root}/b")
    assert files.read_bytes(f"{root}/b/one") == b"1"
    files.remove_tree(f"{root}/b")
    assert files.listdir(root) == []


def test_lock_has_one_holder(place: tuple[Files, str]) -> None:
    files, root = place
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    lock.release()
    files.lock(f"{root}/.lock").release()


def test_write_atomic_overwrites_a_temporary_file_of_a_crash(
    place: tuple[Files, str],
) -> None:
    files, root = place
    files.open(f"{root}/point.tmp", create=True).append(b"torn and longer")
    write_atomic(files, f"{root}/point", b"old")
    write_atomic(files, f"{root}/point", b"new")
    assert files.read_bytes(f"{root}/point") == b"new"
    assert files.listdir(root) == ["point"]


def test_space_returns_total_and_free_bytes_of_the_volume(place: tuple[Files, str]) -> None:
    files, root = place
    total, free = files.space(root)
    assert 0 < free <= total


def test_full_disk_raises_an_error_after_a_short_write(tmp_path: Path) -> None:
    file = OsFiles().open(str(tmp_path / "log"), create=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            file.append(b"more than five")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read(100, 0) == b"more "


def crashed(seed: int) -> MemFiles:
    files = MemFiles()
    files.make_dir("/d")
    files.sync_dir("/")
    file = files.open("/d/log", create=True)
    file.append(b"safe")
    file.sync()
    files.sync_dir("/d")
    file.append(b"-maybe")
    file.append(b"-torn")
    files.open("/d/new", create=True)
    files.crash(seed)
    return files


def test_crash_keeps_synced_bytes_and_any_part_of_the_others() -> None:
    contents = {crashed(seed).read_bytes("/d/log") for seed in range(200)}
    assert all(content.startswith(b"safe") for content in contents)
    assert {b"safe", b"safe-maybe-torn", b"safe-maybe"} <= contents
    assert any(content.startswith(b"safe\0\0") for content in contents), "a hole"
    assert {crashed(seed).exists("/d/new") for seed in range(50)} == {True, False}


def test_crash_loses_a_name_that_was_not_synced() -> None:
    for seed in range(50):
        files = MemFiles()
        files.make_dir("/d")
        file = files.open("/d/log", create=True)
        file.append(b"x")
        file.sync()
        files.crash(seed)
        assert not files.exists("/d/log") or files.read_bytes("/d/log") == b"x"


def test_later_sync_does_not_save_the_bytes_of_a_failed_one() -> None:
    files = MemFiles()
    file = files.open("/log", create=True)
    files.sync_dir("/")
    files.faults.append(Fault("sync"))
    file.append(b"doomed")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert file.read(6, 0) == b"doomed"
    files.crash(0)
    assert files.read_bytes("/log") == b""


def test_failing_append_may_leave_a_part_of_its_bytes() -> None:
    files = MemFiles()
    file = files.open("/log", create=True)
    files.faults.append(Fault("append", nth=2, written=3))
    file.append(b"one")
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"two-three")
    assert file.read(100, 0) == b"onetwo"


def test_files_of_a_crashed_process_are_unusable() -> None:
    files = MemFiles()
    file = files.open("/log", create=True)
    files.kill()
    with pytest.raises(AssertionError):
        file.append(b"ghost")


def test_reserve_and_give_back_keep_the_file_size(
    tmp_path: Path,
) -> None:
    file = OsFiles().open(str(tmp_path / "log"), create=True)
    file.append(b"abc")
    file.reserve(1 << 20)
    taken = (tmp_path / "log").stat()
    file.give_back()
    left = (tmp_path / "log").stat()
    assert (taken.st_size, left.st_size) == (3, 3)
    assert taken.st_blocks * 512 >= 1 << 20
    assert left.st_blocks * 512 < 1 << 20


def test_platforms_without_fallocate_reserve_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFiles().open(str(tmp_path / "log"), create=True)
    monkeypatch.setattr(sys, "platform", "darwin")
    file.reserve(1 << 20)
    assert (tmp_path / "log").stat().st_blocks == 0


def test_reserve_calls_fallocate_where_the_c_library_has_no_fallocate64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(fallocate=libc.fallocate))
    OsFiles().open(str(tmp_path / "log"), create=True).reserve(1 << 20)
    assert (tmp_path / "log").stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize(
    ("error", "synced"),
    [(None, ["device"] * 2), (errno.ENOTSUP, ["file", "directory"]), (errno.EIO, None)],
    ids=["supported", "not supported", "failed"],
)
def test_sync_lets_the_device_write_its_cache_where_fsync_does_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: int | None,
    synced: list[str] | None,
) -> None:
    calls: list[str] = []

    def control(_fd: int, command: int) -> None:
        assert command == 51
        if error is not None:
            raise OSError(error, "refused")
        calls.append("device")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(files_module, "_sync", lambda _: calls.append("file"))
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("directory"))
    files = OsFiles()
    file = files.open(str(tmp_path / "log"), create=True)
    if synced is None:
        for sync in (file.sync, lambda: files.sync_dir(str(tmp_path))):
            with pytest.raises(OSError, match="refused"):
                sync()
    else:
        file.sync()
        files.sync_dir(str(tmp_path))
    assert calls == (synced or [])


def test_lock_is_taken_once_where_both_kinds_exclude_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "lockf", lambda *_: pytest.fail("the lock excludes itself"))
    lock = OsFiles().lock(str(tmp_path / ".lock"))
    with pytest.raises(BlockingIOError):
        OsFiles().lock(str(tmp_path / ".lock"))
    lock.release()
