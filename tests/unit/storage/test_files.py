"""The file system port: both implementations behave alike, and the one in memory can crash."""

import resource
from pathlib import Path

import pytest

from barnabas.storage.files.files import Files, OsFiles, write_atomic
from barnabas.storage.files.mem_files import Fault, MemFiles


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
