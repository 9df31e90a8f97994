"""The door to sockets. A simulation lends a network that has none."""

import asyncio
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.broker.observability.logging import get_logger

ACCEPTED_PER_TURN = 16
"""Connections that are taken before the others of the loop have their turn."""
RETRY_S = 1.0
"""How long to wait where the system has no descriptor left to accept with."""
RESERVED_DESCRIPTORS = 1024
"""Of the process's, at most an eighth, that a crowd of clients cannot have: a log that cannot open
its files takes its directory offline."""
_log = get_logger(__name__)
Factory = Callable[[], asyncio.BufferedProtocol]


class Server(Protocol):
    """An address that is taken, and accepts connections from `serve` on."""

    @property
    def port(self) -> int: ...

    async def serve(self) -> None: ...

    def pause(self) -> None:
        """Leave new connections to the system's queue; a few may still have been accepted."""
        ...

    def resume(self) -> None:
        """Accept connections again, in a moment."""
        ...

    def close(self) -> None:
        """Accept no more connections; those that are open stay."""
        ...


class Network(Protocol):
    """Where listeners get their addresses, and brokers reach each other."""

    async def listen(self, factory: Factory, host: str, port: int) -> Server:
        """Take an address: an empty host is every interface, port 0 a free one; OSError."""
        ...

    async def connect(self, factory: Factory, host: str, port: int) -> object:
        """Connect a protocol to another broker; OSError."""
        ...


def descriptor_behind(transport: asyncio.BaseTransport) -> int | None:
    """The socket that bytes may be sent to past its transport, while that holds none itself.

    None where all bytes must go through the transport: it encrypts them, or has no socket.
    """
    found = transport.get_extra_info("socket")
    if found is None or transport.get_extra_info("sslcontext") is not None:
        return None
    descriptor: int = found.fileno()
    return descriptor


class TcpServer:
    """The sockets of one listener: one, or one for each address that its host name has.

    They are accepted from by hand: a loop's own servers cannot pause, and closing them would lose
    what is in the system's queue.
    """

    def __init__(self, factory: Factory, sockets: list[socket.socket], backlog: int) -> None:
        self._factory = factory
        self._sockets = sockets
        self._backlog = backlog
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[Any]] = set()
        self._paused = False
        self.port = int(sockets[0].getsockname()[1])

    async def serve(self) -> None:
        for bound in self._sockets:
            bound.listen(self._backlog)
            self._loop.add_reader(bound, self._accept, bound)

    def pause(self) -> None:
        if not self._paused:
            self._paused = True
            for bound in self._sockets:
                self._loop.remove_reader(bound)

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            for bound in self._sockets:
                self._loop.add_reader(bound, self._accept, bound)

    def close(self) -> None:
        self.pause()
        for bound in self._sockets:
            bound.close()
        self._sockets = []

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                accepted, _ = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor is left: the socket stays readable, and asking on would spin.
                self._rest(str(error))
                return
            if accepted.fileno() > _last_descriptor():
                accepted.close()
                self._rest("the descriptors that are left are for the logs")
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._begin(accepted))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    def _rest(self, reason: str) -> None:
        _log.error("connections cannot be accepted", port=self.port, reason=reason)
        self.pause()
        self._loop.call_later(RETRY_S, self.resume)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError:
            # The peer has gone already.
            accepted.close()


class TcpNetwork:
    """Sockets of the operating system. Buffer sizes in bytes; -1 leaves them to the system."""

    def __init__(self, *, backlog: int, send_buffer: int, receive_buffer: int) -> None:
        self._backlog = backlog
        self._send_buffer = send_buffer
        self._receive_buffer = receive_buffer

    async def listen(self, factory: Factory, host: str, port: int) -> TcpServer:
        sockets: list[socket.socket] = []
        try:
            for family, address in await self._addresses(host, port):
                # A name with several addresses has one port, whichever was free for the first.
                taken = sockets[0].getsockname()[1] if sockets else port
                sockets.append(self._bind(family, (address[0], taken, *address[2:])))
        except OSError:
            for bound in sockets:
                bound.close()
            raise
        return TcpServer(factory, sockets, self._backlog)

    async def connect(self, factory: Factory, host: str, port: int) -> object:
        transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port)
        return transport

    async def _addresses(self, host: str, port: int) -> list[tuple[int, Any]]:
        if not host:
            if socket.has_dualstack_ipv6():
                return [(socket.AF_INET6, ("::", port))]
            return [(socket.AF_INET, ("0.0.0.0", port))]
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys((family, address) for family, _, _, _, address in found))

    def _bind(self, family: int, address: Any) -> socket.socket:
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setblocking(False)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
            # Accepted sockets inherit the sizes: the window scale is agreed on at the handshake.
            if self._send_buffer > 0:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
            if self._receive_buffer > 0:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
        return bound


def _last_descriptor() -> int:
    """The greatest that a connection may have: the system gives the lowest number that is free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - min(RESERVED_DESCRIPTORS, limit // 8)
