"""The one door to disk: a small port, and its implementation on the operating system.

Calls are synchronous and raise OSError, nothing else. Durability is explicit, as on disk: bytes of
a file are safe after `File.sync`, its name in the directory after `Files.sync_dir`.
`barnabas.storage.mem_files` has the in-memory twin that forgets what was not synced.
"""

import errno
import fcntl
import os
from typing import Protocol

from barnabas.protocol.records.varint import Buffer
from barnabas.storage.page_cache import is_cached


class File(Protocol):
    """An open file that is only appended to, cut at its end, and read anywhere.

    It has no `close`: it closes when the last reference goes. A slice of a log on its way to a
    slow socket thereby keeps a deleted segment readable, and no descriptor can be closed, and its
    number given to another file, under a read in another thread.
    """

    @property
    def path(self) -> str:
        """The path it was opened by; a later rename does not change it."""
        ...

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def append(self, data: Buffer) -> None:
        """Writes all of `data` at the end, or raises OSError with any part of it written."""
        ...

    def read(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def read_nowait(self, length: int, offset: int) -> bytes | bytearray | None:
        """`read` of what the page cache holds, maybe fewer bytes; None where it would wait."""
        ...

    def send(self, socket: int, length: int, offset: int) -> int | None:
        """Hands up to `length` bytes to a non-blocking socket, uncopied; 0 where that is full.

        None where they have to be read, which also tells why: the disk would have to be waited
        for, the file is shorter or cannot be sent, the socket is closed. What has gone is still the
        file's own page until the peer has it: only what no reader is given may be truncated.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cuts the file down to `size` bytes."""
        ...

    def sync(self) -> None:
        """Returns when the bytes and the length are on the device; may run in another thread."""
        ...

    def reserve(self, size: int) -> None:
        """Sets space aside for `size` bytes in all, without a change of the file's size."""
        ...

    def give_back(self) -> None:
        """Frees what was set aside beyond the file's end."""
        ...


class Lock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are absolute; directories are made and synced by the caller."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and appending; FileNotFoundError unless `create`."""
        ...

    def restrict(self, path: str) -> None:
        """Lets nobody but this user read or write the file."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def read_bytes(self, path: str) -> bytes:
        """A whole (small) file."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def is_dir(self, path: str) -> bool: ...

    def make_dir(self, path: str) -> None:
        """One directory; FileExistsError where it is there, FileNotFoundError without parent."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a target that is a file."""
        ...

    def unlink(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """A directory and all in it."""
        ...

    def sync_dir(self, path: str) -> None:
        """Returns when the names in the directory are on the device."""
        ...

    def lock(self, path: str) -> Lock:
        """Takes a lock file, created where missing; BlockingIOError where another holds it."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Bytes in all and bytes free of the volume that holds `path`."""
        ...


def make_dirs(files: Files, path: str) -> None:
    """A directory and every missing one above it, durably."""
    if files.exists(path):
        return
    parent = os.path.dirname(path)
    make_dirs(files, parent)
    files.make_dir(path)
    files.sync_dir(parent)


def write_atomic(files: Files, path: str, data: Buffer, *, private: bool = False) -> None:
    """Replaces a small file so that a crash leaves the old or the new content, durably.

    The bytes go to `<path>.tmp` first, as Kafka's checkpoints do. A private file is for nobody
    else to read.
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


# What only Linux has: elsewhere the plain calls do.
_sync = getattr(os, "fdatasync", os.fsync)
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_KEEP_SIZE = 1


class OsFile:
    """A descriptor; see `File`."""

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
        # A short write is a full disk or a signal: the next one goes on, or says which.
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
            # The socket may take more by the time it has taken some.
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
        _sync(self._fd)

    def reserve(self, size: int) -> None:
        # Loaded where it is wanted; Python's own posix_fallocate would make the file longer.
        import ctypes

        if ctypes.CDLL(None, use_errno=True).fallocate64(
            self._fd, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)
        ):
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


class OsFiles:
    """The operating system's files, without Python's buffering; see `Files`."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags, 0o644))

    def restrict(self, path: str) -> None:
        os.chmod(path, 0o600)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_dir(self, path: str) -> None:
        os.mkdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        # It comes with every archive format of the standard library: only for who deletes.
        import shutil

        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # lockf is what a JVM on the same directory sees; flock also stops a second broker
            # of this very process.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            # The calls know only a descriptor; whoever reads the error wants the name.
            error.filename = path
            raise
        return _OsLock(fd)

    def space(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
