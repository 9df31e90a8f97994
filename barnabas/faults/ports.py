"""Ports of this host that a broker keeps over its restarts."""

import socket
import sys


class ReservedPorts:
    """Ports of 127.0.0.1 that are given to no other process until they are released.

    A server may listen on one, crash, and listen again: no client's connection can take the port
    meanwhile, as happens to a port that was only found free. Without a server connections to the
    port are refused.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def take(self, port: int = 0) -> int:
        """Reserve the port, or any for 0, and return it. Raises OSError if it is in use."""
        bound = socket.socket()
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", port))
            taken: int = bound.getsockname()[1]
        except OSError:
            bound.close()
            raise
        # Only Linux lets a server bind beside a socket that does not listen.
        if sys.platform == "linux":
            self._sockets.append(bound)
        else:
            bound.close()
        return taken

    def release(self) -> None:
        """Release all ports."""
        while self._sockets:
            self._sockets.pop().close()
