"""Ports of this host that a broker keeps over its restarts."""

import errno
import socket
import sys
from contextlib import suppress


class ReservedPorts:
    """Ports of the loopback addresses that are given to no other process until they are released.

    A server may listen on one, crash, and listen again: no client's connection can take the port
    meanwhile, as happens to a port that was only found free. Without a server connections to the
    port are refused.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def take(self, port: int = 0) -> int:
        """Reserve the port, or any for 0, and return it. Raises OSError if it is in use."""
        while True:
            bound = [_bind(socket.AF_INET, "127.0.0.1", port)]
            taken: int = bound[0].getsockname()[1]
            try:
                # `localhost` is this address too, where the host has it.
                bound.append(_bind(socket.AF_INET6, "::1", taken))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    bound[0].close()
                    if port:
                        raise
                    continue
            # Only Linux lets a server bind to the port of a socket that does not listen.
            if sys.platform == "linux":
                self._sockets += bound
            else:
                for each in bound:
                    each.close()
            return taken

    def take_in_a_row(self, count: int) -> int:
        """Reserve consecutive ports, and return the first."""
        while True:
            first = self.take()
            with suppress(OSError, OverflowError):
                for other in range(first + 1, first + count):
                    self.take(other)
                return first

    def release(self) -> None:
        """Release all ports."""
        while self._sockets:
            self._sockets.pop().close()


def _bind(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    bound = socket.socket(family)
    try:
        bound.bind((host, port))
        # Set before, it would let another process reserve the same port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        bound.close()
        raise
    return bound
