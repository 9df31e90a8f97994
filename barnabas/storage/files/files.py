"""The port to the disk, and its implementation on the operating system.

Calls are synchronous and raise OSError only. Durability is explicit: the bytes of a file are
durable after `File.sync`, its name in the directory after `Files.sync_dir`.

Most files are open for a moment. `Files.open_to_keep` opens those that stay open, and leaves the
last descriptors to the others: an index, a checkpoint or a snapshot must not fail in the middle of
an operation because logs and readers have taken all descriptors.
`tests/support/mem_files.py` implements the port in memory and forgets what was not synced.
"""

import errno
import fcntl
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Protocol, TypeVar

from barnabas.protocol.records.varint import Buffer
from barnabas.storage.files.errors import lacks_descriptors

T = TypeVar("T")


class Syncable(Protocol):
    """A file, or the content of files that the first `sync` writes."""

    def sync(self) -> None:
        """Return when the bytes and the length are on the device; may run in another thread."""
        ...


class File(Syncable, Protocol):
    """An open file: appended to, truncated at its end, and read anywhere.

    It has no `close`: it closes with its last reference. A log slice on its way to a slow socket
    therefore keeps a deleted segment readable. A descriptor cannot be closed, nor its number be
    reused for another file, while another thread reads from it.
    """

    @property
    def path(self) -> str:
        """The path that the file was opened by; a later rename does not change it."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end, or raise OSError with any part of it written."""
        ...

    def read(self, length: int, offset: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        ...

    def read_nowait(self, length: int, offset: int) -> bytes | bytearray | None:
        """Return what the page cache holds of a range, maybe fewer bytes; None if it would
        block."""
        ...

    def send(self, socket: int, length: int, offset: int) -> int | None:
        """Send up to `length` bytes to a non-blocking socket without copying; 0 if the socket is
        full.

        Returns None if the bytes must be read instead: the disk would block, the file is shorter or
        cannot be sent, or the socket is closed (reading tells which). The kernel sends the file's
        own pages until the peer has received them, so bytes that a reader may have been given must
        not be truncated.
        """
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        ...

    def reserve(self, size: int) -> None:
        """Preallocate space for `size` bytes in all, without changing the file's size."""
        ...

    def give_back(self) -> None:
        """Free the space that was preallocated beyond the end of the file."""
        ...


class Lock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are absolute; the caller creates and syncs directories."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending; raises FileNotFoundError unless `create`."""
        ...

    def open_to_keep(self, path: str) -> File:
        """Open an existing file for long; raises OSError(EMFILE) if only spare descriptors are
        left."""
        ...

    def restrict(self, path: str) -> None:
        """Make the file readable and writable for the current user only."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a (small) file."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def is_dir(self, path: str) -> bool: ...

    def make_dir(self, path: str) -> None:
        """Create one directory; raises FileExistsError, or FileNotFoundError without its parent."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; replaces a target that is a file."""
        ...

    def unlink(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything in it."""
        ...

    def sync_dir(self, path: str) -> None:
        """Return when the names in the directory are on the device."""
        ...

    def lock(self, path: str) -> Lock:
        """Take a lock file, created if missing; raises BlockingIOError if another process holds
        it."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Return the total and the free bytes of the volume that holds `path`."""
        ...

    def most_open(self) -> int | None:
        """Return how many files and connections the process may have open; None for no limit."""
        ...


class UnsyncedFile:
    """A complete file that waits for its fsync without a descriptor."""

    __slots__ = ("_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def sync(self) -> None:
        """Sync the file under its name, unless it was deleted or replaced by a synced one."""
        try:
            file = self._files.open(self.path)
        except FileNotFoundError:
            return
        file.sync()


def size_of(files: Files, path: str) -> int | None:
    """Return the size of a file, None if it does not exist: one system call for two questions."""
    try:
        return files.size(path)
    except FileNotFoundError:
        return None


def make_dirs(files: Files, path: str) -> None:
    """Create a directory and every missing parent, durably."""
    if files.exists(path):
        return
    parent = os.path.dirname(path)
    make_dirs(files, parent)
    files.make_dir(path)
    files.sync_dir(parent)


def write_atomic(files: Files, path: str, data: Buffer, *, private: bool = False) -> None:
    """Replace a small file so that a crash leaves the old or the new content, durably.

    The bytes go to `<path>.tmp` first, as Kafka's checkpoints do. A private file is readable for
    the current user only.
    """
    temporary = path + ".tmp"
    file = files.open(temporary, create=True)
    file.truncate(0)
    if private:
        files.restrict(temporary)
    file.append(data)
    file.sync()
    files.rename(temporary, path)
    files.sync_dir(os.path.dirname(path))


# RWF_NOWAIT and fallocate exist on Linux only; other systems use the plain calls.
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_KEEP_SIZE = 1


_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
_UNSUPPORTED = (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL)


def _sync_device(fd: int, sync: Callable[[int], None]) -> None:
    """Call `sync`, and let the device write its cache.

    On macOS fsync(2) leaves the cache of the device alone, and F_FULLFSYNC does not; some file
    systems lack it.
    """
    command = getattr(fcntl, "F_FULLFSYNC", None)
    if command is not None:
        try:
            fcntl.fcntl(fd, command)
            return
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    sync(fd)


_CACHESTAT = 451
_RANGE = Struct("=QQ")
_COUNTS = Struct("=QQQQQ")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def is_cached(fd: int, length: int, offset: int) -> bool:
    """Return whether the page cache holds `length` bytes (at least 1) from `offset` on.

    sendfile(2) has no flag that keeps it from waiting for the disk, so cachestat(2) of Linux 6.5 is
    asked first. Returns False also if the kernel lacks it. cachestat counts pages whose read-ahead
    is still in progress, so the last byte is read with RWF_NOWAIT: pages arrive in order.
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
    """Return a function that counts the cached pages of a range of a file."""
    if sys.platform != "linux":
        return lambda _fd, _length, _offset: 0
    # Imported when a long range is first sent, to keep it out of the broker's start.
    import ctypes

    # PyDLL keeps the interpreter lock: the call is shorter than releasing the lock.
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


class OsFile:
    """A file descriptor; see `File`."""

    __slots__ = ("_fd", "_nowait", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._nowait = bool(_NOWAIT)

    def __del__(self) -> None:
        os.close(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def append(self, data: Buffer) -> None:
        written = os.write(self._fd, data)
        if written != len(data):
            self._append_rest(memoryview(data)[written:])

    def _append_rest(self, rest: memoryview) -> None:
        # A short write means a full disk or a signal: the next write continues, or raises.
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def read(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_nowait(self, length: int, offset: int) -> bytes | bytearray | None:
        if not self._nowait:
            return os.pread(self._fd, length, offset)
        data = bytearray(length)
        try:
            count = os.preadv(self._fd, [data], offset, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._nowait = False
            return os.pread(self._fd, length, offset)
        del data[count:]
        return data

    def send(self, socket: int, length: int, offset: int) -> int | None:
        if not is_cached(self._fd, length, offset):
            return None
        sent = 0
        try:
            # The socket may have room again after it has taken some bytes.
            while sent < length:
                count = os.sendfile(socket, self._fd, offset + sent, length - sent)
                if not count:
                    return sent or None
                sent += count
        except BlockingIOError:
            return sent
        except OSError:
            return sent or None
        return sent

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        _sync_device(self._fd, _sync)

    def reserve(self, size: int) -> None:
        if sys.platform != "linux":
            return
        # Imported on first use. Python's posix_fallocate would change the file's length.
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        # musl has fallocate alone, with offsets of 64 bits.
        fallocate = getattr(libc, "fallocate64", None) or libc.fallocate
        if fallocate(self._fd, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)):
            error = ctypes.get_errno()
            if error != errno.EOPNOTSUPP:
                raise OSError(error, os.strerror(error), self.path)

    def give_back(self) -> None:
        os.ftruncate(self._fd, self.size())


class _OsLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


_READ_BYTES = 1 << 16
SPARE_DESCRIPTORS = 64
"""Descriptors that a broker leaves for what is open for a moment: files, and also modules that are
imported late, pipes and sockets. If that is more than a sixteenth of all, it leaves fewer."""
_FEWEST_SPARES = 16
"""A flush needs two descriptors, and there are several at once."""
_COUNT_AFTER = 128
"""Files that may stay open, at most, before descriptors are counted again."""
_SHORT_S = 0.05
"""The time in seconds for which a shortage of descriptors is remembered, because counting takes
long."""
_RETRIES, _RETRY_S = 50, 0.02
"""Attempts of a thread to open a file without a free descriptor, and the seconds between two."""
_DESCRIPTORS = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


def count_descriptors() -> int:
    """Return how many descriptors this process has open."""
    # Linux 6.2 and later report their number as the size of the directory.
    return os.stat(_DESCRIPTORS).st_size or len(os.listdir(_DESCRIPTORS))


class OsFiles:
    """The operating system's files, without Python's buffering; see `Files`."""

    def __init__(self, spare_descriptors: int = 0) -> None:
        """`spare_descriptors` are left free by files that stay open."""
        self._spares = spare_descriptors
        # Files that may be opened before the descriptors are counted again.
        self._room = 0
        self._short_until = 0.0

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(path, self._patiently(lambda: os.open(path, flags, 0o644)))

    def open_to_keep(self, path: str) -> OsFile:
        if self._spares:
            if self._room <= 0:
                self._room = self._count_room()
            if self._room <= 0:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            self._room -= 1
        return self.open(path)

    def _count_room(self) -> int:
        """Return how many files may stay open before descriptors are counted again; 0 if only
        spare ones are left."""
        limit = self.most_open()
        if limit is None:
            return sys.maxsize
        if (now := time.monotonic()) < self._short_until:
            return 0
        free = limit - count_descriptors() - min(self._spares, max(limit // 16, _FEWEST_SPARES))
        if free <= 0:
            self._short_until = now + _SHORT_S
            return 0
        # Connections take descriptors meanwhile.
        return min((free + 1) // 2, _COUNT_AFTER)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Do a call that opens a file. A thread without a free descriptor waits for one; the event
        loop does not."""
        try:
            return call()
        except OSError as error:
            in_thread = threading.current_thread() is not threading.main_thread()
            if not (lacks_descriptors(error) and self._spares and in_thread):
                raise
        for _ in range(_RETRIES):
            time.sleep(_RETRY_S)
            try:
                return call()
            except OSError as error:
                if not lacks_descriptors(error):
                    raise
        return call()

    def restrict(self, path: str) -> None:
        os.chmod(path, 0o600)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read_bytes(self, path: str) -> bytes:
        fd = self._patiently(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        try:
            data = part = os.read(fd, _READ_BYTES)
            while part:
                part = os.read(fd, _READ_BYTES)
                data += part
            return data
        finally:
            os.close(fd)

    def listdir(self, path: str) -> list[str]:
        return sorted(self._patiently(lambda: os.listdir(path)))

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_dir(self, path: str) -> None:
        os.mkdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        # shutil imports every archive format of the standard library: only deletions pay for it.
        import shutil

        self._patiently(lambda: shutil.rmtree(path))

    def sync_dir(self, path: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        fd = self._patiently(lambda: os.open(path, flags))
        try:
            _sync_device(fd, os.fsync)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # flock also excludes a second broker in this process, lockf also a JVM on the same
            # directory. On macOS each excludes the other, within one process too.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if sys.platform == "linux":
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            # The calls know only a descriptor; the message needs the path.
            error.filename = path
            raise
        return _OsLock(fd)

    def space(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def most_open(self) -> int | None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if limit == resource.RLIM_INFINITY else limit
