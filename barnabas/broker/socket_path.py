"""Unix sockets at paths of any length, whose files outlive a crashed server."""

import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_BACKLOG: Final = 128
_LONGEST_ADDRESS: Final = 100


@contextmanager
def socket_address(path: str) -> Iterator[str]:
    """Yield a short name for the path: a socket address has room for about a hundred bytes."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield path
        return
    directory, name = os.path.split(path)
    if sys.platform != "linux":
        import tempfile  # which imports shutil, before each start of a broker

        with tempfile.TemporaryDirectory(dir="/tmp") as short:
            link = os.path.join(short, "d")
            os.symlink(os.path.abspath(directory), link)
            yield os.path.join(link, name)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def bind(path: str) -> socket.socket:
    """Return a socket that listens at a path, for this user only.

    A socket that a crashed server left is deleted. Raises OSError, FileExistsError if the path is
    another kind of file.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_address(path) as address:
            _clear(path, address)
            _bind(bound, address)
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        error.filename = path
        raise
    return bound


def _bind(bound: socket.socket, address: str) -> None:
    """Bind a socket, which has its permissions first: at no moment may other users connect."""
    if sys.platform != "linux":
        # A descriptor of a socket has no mode there: EINVAL.
        mask = os.umask(0o177)
        try:
            bound.bind(address)
        finally:
            os.umask(mask)
        return
    os.fchmod(bound.fileno(), 0o600)
    bound.bind(address)


def _clear(path: str, address: str) -> None:
    """Delete the socket of a crashed server."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
