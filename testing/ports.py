"""Ports that stay a test's own, whether a server listens on them or not."""

import socket
import sys


class ReservedPorts:
    """Ports of 127.0.0.1 that nobody else is given until they are released.

    A server may listen on one, die, and come back: no client's connection has taken it meanwhile,
    as happens to a port that was only seen to be free. Clients of one without a server are refused.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def take(self, port: int = 0) -> int:
        """That port, or any; raises OSError where somebody has it."""
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
        """Gives all of them back."""
        while self._sockets:
            self._sockets.pop().close()
