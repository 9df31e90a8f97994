"""Whether the page cache holds a stretch of a file: cachestat(2), of Linux 6.5.

sendfile(2) has no flag that keeps it from waiting for the disk, so it is asked for beforehand.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from struct import Struct

_CACHESTAT = 451
_RANGE = Struct("=QQ")
_COUNTS = Struct("=QQQQQ")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def is_cached(fd: int, length: int, offset: int) -> bool:
    """Whether `length` bytes from `offset` on, at least one, can be had without the disk.

    False also where the kernel cannot tell. It counts pages that it is still reading ahead, so the
    last byte is read: no page after one that is missing has arrived.
    """
    last = offset + length - 1
    if _count_cached()(fd, length, offset) < last // _PAGE - offset // _PAGE + 1:
        return False
    try:
        return os.preadv(fd, [bytearray(1)], last, os.RWF_NOWAIT) == 1
    except OSError:
        return False


@cache
def _count_cached() -> Callable[[int, int, int], int]:
    """What tells how many pages of a range are in the cache."""
    if sys.platform != "linux":
        return lambda _fd, _length, _offset: 0
    # Loaded when a long range is first sent: a broker starts without it.
    import ctypes

    # PyDLL keeps the interpreter lock: the call takes less time than letting go of it.
    syscall = ctypes.PyDLL(None).syscall
    number, pointer = ctypes.c_long, ctypes.c_char_p
    syscall.argtypes = [number, ctypes.c_int, pointer, pointer, ctypes.c_uint]
    syscall.restype = number

    def count(fd: int, length: int, offset: int) -> int:
        counts = ctypes.create_string_buffer(_COUNTS.size)
        if syscall(_CACHESTAT, fd, _RANGE.pack(offset, length), counts, 0):
            return 0
        cached: int = _COUNTS.unpack(counts)[0]
        return cached

    return count
