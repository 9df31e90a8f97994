"""The network port: sockets of the operating system, or a simulated network."""

import asyncio
import errno
import math
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.socket_path import bind, socket_address

ACCEPTED_PER_TURN = 16
"""The most connections that are accepted in one iteration of the event loop."""
RETRY_S = 0.1
"""The wait in seconds if no file descriptor is left for a new connection."""
LOG_S = 10.0
"""The least time in seconds between two log events about that."""
RESERVED_DESCRIPTORS = 1024
"""The file descriptors that connections cannot use, an eighth of all if that is less: a log needs
one for its first append."""
FEWEST_RESERVED = 32
"""The same where an eighth is less: logs need some for themselves, and some for their flushes."""
NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""Errors of an address that this host lacks: without IPv6, /etc/hosts may still name ::1."""
_log = get_logger(__name__)
Factory = Callable[[], asyncio.BufferedProtocol]


class Server(Protocol):
    """A bound address that accepts connections after `serve`."""

    @property
    def port(self) -> int: ...

    @property
    def starved(self) -> bool:
        """Whether a new connection waits for a file descriptor."""
        ...

    async def serve(self) -> None: ...

    def announce(self, host: str, port: int) -> None:
        """Take the connections of brokers of this host that look for an advertised address."""
        ...

    def pause(self) -> None:
        """Leave new connections in the system's queue; a few accepted ones may still follow."""
        ...

    def resume(self) -> None:
        """Accept connections again."""
        ...

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        ...


class Network(Protocol):
    """The network, as listeners and connections between brokers use it."""

    async def listen(self, factory: Factory, host: str, port: int) -> Server:
        """Bind an address: an empty host is every interface, port 0 a free port.

        Of the addresses of a name those are left out that this host does not have. Raises OSError
        if none is left, or if another process listens on one.
        """
        ...

    async def connect(self, factory: Factory, host: str, port: int) -> object:
        """Connect a protocol to another broker. Raises OSError."""
        ...


def descriptor_behind(transport: asyncio.BaseTransport) -> int | None:
    """Return the socket, to which bytes may be sent while the transport's own buffer is empty.

    Return None if the transport encrypts, or has no socket: then all bytes must go through it.
    """
    found = transport.get_extra_info("socket")
    if found is None or transport.get_extra_info("sslcontext") is not None:
        return None
    descriptor: int = found.fileno()
    return descriptor


class TcpServer:
    """The sockets of one listener: one for each address of its host name, and that of `announce`.

    It accepts connections itself, because an asyncio server cannot pause, and closing one would
    lose the connections in the system's queue.
    """

    def __init__(
        self,
        factory: Factory,
        sockets: list[socket.socket],
        backlog: int,
        local: str | None = None,
    ) -> None:
        self._factory = factory
        self._sockets = sockets
        self._backlog = backlog
        self._local = local
        self._path: str | None = None
        """The path of the socket of `announce`."""
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[Any]] = set()
        self._listening = self._reading = self._paused = False
        self._parked: socket.socket | None = None
        """An accepted connection that has one of the reserved descriptors."""
        self.starved = False
        self._told_at = -math.inf
        self.port = int(sockets[0].getsockname()[1])

    async def serve(self) -> None:
        for bound in self._sockets:
            bound.listen(self._backlog)
        self._listening = True
        self._watch()

    def announce(self, host: str, port: int) -> None:
        """Listen at the Unix socket of an advertised address too, before `serve`."""
        if self._local is None:
            return
        path = _local_path(self._local, host, port)
        try:
            bound = bind(path)
        except OSError as error:
            _log.warning("no unix socket for brokers of this host", path=path, reason=str(error))
            return
        bound.setblocking(False)
        self._sockets.append(bound)
        self._path = path

    def pause(self) -> None:
        self._paused = True
        self._watch()

    def resume(self) -> None:
        self._paused = False
        self._watch()

    def close(self) -> None:
        self.pause()
        if self._path is not None:
            # While it still listens: afterwards the path may be another process's.
            with suppress(OSError):
                os.unlink(self._path)
            self._path = None
        for bound in self._sockets:
            bound.close()
        self._sockets = []
        if self._parked is not None:
            self._parked.close()
            self._parked = None

    def _watch(self) -> None:
        """Accept connections, unless the listener or the lack of descriptors forbids it."""
        reading = self._listening and not (self._paused or self.starved)
        if reading == self._reading:
            return
        self._reading = reading
        for bound in self._sockets:
            if reading:
                self._loop.add_reader(bound, self._accept, bound)
            else:
                self._loop.remove_reader(bound)

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                accepted, _ = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor is left: the socket stays readable, and a retry at once would spin.
                self._rest(str(error))
                return
            accepted.setblocking(False)
            if accepted.fileno() > last_descriptor():
                self._parked = accepted
                self._rest("the remaining file descriptors are reserved for logs")
                return
            self._start(accepted)

    def _start(self, accepted: socket.socket) -> None:
        task = self._loop.create_task(self._begin(accepted))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    def _rest(self, reason: str) -> None:
        if (now := self._loop.time()) - self._told_at >= LOG_S:
            _log.error("connections cannot be accepted", port=self.port, reason=reason)
            self._told_at = now
        self.starved = True
        self._watch()
        self._loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        if (parked := self._parked) is not None:
            try:
                # A copy has the lowest number that is free.
                self._parked = accepted = parked.dup()
            except OSError:
                # Files that are open for a moment have the last ones.
                self._loop.call_later(RETRY_S, self._retry)
                return
            parked.close()
            if accepted.fileno() > last_descriptor():
                self._loop.call_later(RETRY_S, self._retry)
                return
            self._parked = None
            self._start(accepted)
        self.starved = False
        self._watch()

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError:
            # The peer has gone already.
            accepted.close()


class TcpNetwork:
    """The network of the operating system. Buffer sizes in bytes; -1 is the system's default.

    `local` is a directory that all brokers of a host share: there they have Unix sockets, named
    after the addresses that they advertise, and try those first. Each can be missing.
    """

    def __init__(
        self, *, backlog: int, send_buffer: int, receive_buffer: int, local: str | None = None
    ) -> None:
        self._backlog = backlog
        self._local = local
        self._send_buffer = send_buffer
        self._receive_buffer = receive_buffer

    async def listen(self, factory: Factory, host: str, port: int) -> TcpServer:
        sockets = await bind_addresses(
            host, port, send_buffer=self._send_buffer, receive_buffer=self._receive_buffer
        )
        return TcpServer(factory, sockets, self._backlog, self._local)

    async def connect(self, factory: Factory, host: str, port: int) -> object:
        loop = asyncio.get_running_loop()
        near = None if self._local is None else _connected(_local_path(self._local, host, port))
        if near is not None:
            transport, _ = await loop.create_unix_connection(factory, sock=near)
        else:
            transport, _ = await loop.create_connection(factory, host, port)
        return transport


def _local_path(directory: str, host: str, port: int) -> str:
    return os.path.join(directory, f"{host}:{port}.socket")


def _connected(path: str) -> socket.socket | None:
    """Return a socket that is connected to a path.

    Return None if no process listens, if the queue is full, or if another user has put the socket
    there, as is possible in a directory that is open to all.

    Unix sockets connect at once or not at all. An asyncio loop would wait for one whose queue is
    full, as for TCP, and take it for connected.
    """
    near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    near.setblocking(False)
    with suppress(OSError):
        if os.lstat(path).st_uid == os.geteuid():
            with socket_address(path) as address:
                near.connect(address)
            return near
    near.close()
    return None


async def bind_addresses(
    host: str, port: int, *, send_buffer: int = -1, receive_buffer: int = -1
) -> list[socket.socket]:
    """Bind the addresses of a name, as `Network.listen` does."""
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in await _addresses(host, port):
            # A name with several addresses has one port, whichever was free for the first.
            taken = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(
                    _bind(family, (address[0], taken, *address[2:]), send_buffer, receive_buffer)
                )
            except OSError as error:
                if error.errno not in NOT_HERE:
                    raise
                _log.info("address is not of this host", host=host, address=address[0])
                missing = error
        if missing is not None and not sockets:
            raise missing
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    return sockets


async def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    if not host:
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, ("::", port))]
        return [(socket.AF_INET, ("0.0.0.0", port))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bind(family: int, address: Any, send_buffer: int, receive_buffer: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setblocking(False)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        # Accepted sockets inherit the sizes: the window scale is agreed on at the handshake.
        if send_buffer > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        if receive_buffer > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def last_descriptor() -> int:
    """Return the greatest descriptor for connections: the system assigns the lowest free number."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return without_reserve(limit)


def without_reserve(limit: int) -> int:
    """Return how many of all descriptors may be promised to connections and partitions."""
    return limit - min(RESERVED_DESCRIPTORS, max(limit // 8, min(FEWEST_RESERVED, limit // 2)))
