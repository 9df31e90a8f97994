"""Unix sockets at paths of any length, which outlive the servers that made them."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_BACKLOG: Final = 128
_LONGEST_ADDRESS: Final = 100


@contextmanager
def socket_address(path: str) -> Iterator[str]:
    """A name for the path that a socket can have: an address holds about a hundred bytes."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield path
        return
    directory, name = os.path.split(path)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def bind(path: str) -> socket.socket:
    """A socket that listens at a path, for this user only.

    What a dead server left there is taken away. Raises OSError, FileExistsError where there is
    something else than a socket.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_address(path) as address:
            _clear(path, address)
            # Before it has a name: at no moment is it anybody else's.
            os.fchmod(bound.fileno(), 0o600)
            bound.bind(address)
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        error.filename = path
        raise
    return bound


def _clear(path: str, address: str) -> None:
    """Take away what a server that is dead has left."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "is there, and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
