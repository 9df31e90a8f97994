"""The check of the page cache before a send: the event loop must not wait for the disk."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.storage.files.files import is_cached

SIZE = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """Yield a file that was just written."""
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.write(fd, os.urandom(SIZE))
    yield fd
    os.close(fd)


def at_hand(fd: int, offset: int) -> bool:
    """Return whether a page can be read without the disk, by the call that never waits for it."""
    try:
        return os.preadv(fd, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False


def test_range_just_written_is_cached(fd: int) -> None:
    if not is_cached(fd, 1, 0):
        pytest.skip("the kernel does not tell what it has cached (Linux 6.5)")
    assert is_cached(fd, SIZE, 0)
    assert is_cached(fd, SIZE - 5, 5)
    assert is_cached(fd, 2, PAGE - 1)


def test_range_past_the_end_is_not_cached(fd: int) -> None:
    assert not is_cached(fd, SIZE + 1, 0)
    assert not is_cached(fd, 1, SIZE)
    os.ftruncate(fd, SIZE // 2)
    assert not is_cached(fd, SIZE, 0)


def test_range_that_the_kernel_dropped_is_not_cached(fd: int) -> None:
    os.fsync(fd)
    os.posix_fadvise(fd, 0, SIZE, os.POSIX_FADV_DONTNEED)
    if at_hand(fd, SIZE // 2):
        pytest.skip("this file system keeps its pages")
    assert not is_cached(fd, 1, 0)
    assert not is_cached(fd, SIZE // 2, 0)


def test_range_with_a_dropped_page_is_not_cached(fd: int) -> None:
    os.fsync(fd)
    # The kernel must not read ahead.
    os.posix_fadvise(fd, 0, SIZE, os.POSIX_FADV_RANDOM)
    os.posix_fadvise(fd, 0, SIZE, os.POSIX_FADV_DONTNEED)
    for end in (0, SIZE - 1):
        os.pread(fd, 1, end)
    if at_hand(fd, SIZE // 2):
        pytest.skip("this file system keeps its pages")
    assert at_hand(fd, SIZE - 1)
    assert not is_cached(fd, SIZE, 0)


def test_pipe_counts_as_not_cached() -> None:
    read, write = os.pipe()
    try:
        assert not is_cached(read, 10, 0)
    finally:
        os.close(read)
        os.close(write)
