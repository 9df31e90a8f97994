"""A listening socket, the limits on who may connect, and the end of idle or stuck connections."""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from barnabas.broker.clock import Clock
from barnabas.broker.server.connection import Connection, Shared

_log = structlog.get_logger(__name__)


class Server(Protocol):
    """A bound socket: what `loop.create_server` gives."""

    @property
    def sockets(self) -> Any: ...

    def close(self) -> None: ...


class Network(Protocol):
    """The door to sockets; the simulation lends one that has none."""

    async def listen(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> tuple[Server, int]:
        """Accept connections at an address; the server, and the port it got."""
        ...


class TcpNetwork:
    """Sockets of the operating system. Buffer sizes in bytes; -1 leaves them to the system."""

    def __init__(self, *, backlog: int, send_buffer: int, receive_buffer: int) -> None:
        self._backlog = backlog
        self._send_buffer = send_buffer
        self._receive_buffer = receive_buffer

    async def listen(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> tuple[Server, int]:
        server = await asyncio.get_running_loop().create_server(
            factory, host or None, port, backlog=self._backlog, reuse_address=True
        )
        for listening in server.sockets:
            self._size_buffers(listening)
        return server, int(server.sockets[0].getsockname()[1])

    def _size_buffers(self, listening: socket.socket) -> None:
        # Accepted sockets inherit the sizes, and the window scale is agreed on at the handshake.
        if self._send_buffer > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        if self._receive_buffer > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)


@dataclass(slots=True)
class ConnectionLimits:
    """How many may connect, over all listeners; changeable while running."""

    total: int
    per_host: int
    per_host_overrides: dict[str, int]


class ConnectionCount:
    """Open connections of a broker, over all listeners."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.accepted = 0
        self.refused = 0
        self._by_host: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """Connections open now."""
        return self._by_host.total()

    def admit(self, host: str) -> bool:
        """Count a connection in; False where a limit is reached."""
        limits = self.limits
        per_host = limits.per_host_overrides.get(host, limits.per_host)
        if self.open >= limits.total or self._by_host[host] >= per_host:
            self.refused += 1
            return False
        self.accepted += 1
        self._by_host[host] += 1
        return True

    def leave(self, host: str) -> None:
        """Count a connection out."""
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


@dataclass(slots=True)
class _Seen:
    """When a connection last moved, as far as the sweeps have seen."""

    progress: int
    since: float


class Listener:
    """One named listener: its socket and the connections that came through it."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        *,
        shared: Shared,
        count: ConnectionCount,
        clock: Clock,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        """The port asked for; after `start` the port that was bound."""
        self._shared = shared
        self._count = count
        self._clock = clock
        self._connections: dict[Connection, _Seen] = {}
        self._server: Server | None = None
        self._drained: asyncio.Event = asyncio.Event()

    async def start(self, network: Network) -> None:
        """Bind and accept. Raises OSError where the address cannot be had."""
        self._server, self.port = await network.listen(self._connect, self.host, self.port)

    def _connect(self) -> Connection:
        return Connection(self._shared, self, self._count.accepted)

    def opened(self, connection: Connection) -> None:
        if self._server is None or not self._count.admit(connection.host):
            _log.warning("connection refused", host=connection.host, listener=self.name)
            connection.abort()
            return
        self._connections[connection] = _Seen(connection.progress, self._clock.monotonic())

    def closed(self, connection: Connection) -> None:
        if self._connections.pop(connection, None) is not None:
            self._count.leave(connection.host)
        if not self._connections:
            self._drained.set()

    @property
    def connections(self) -> int:
        """Connections open now."""
        return len(self._connections)

    def sweep(self, now: float, max_idle: float) -> int:
        """Cut the connections that stood still for `max_idle` seconds; how many they were.

        A connection whose answer the broker still owes is never idle; one whose peer does not
        take its answer is. Memory of those that have fallen silent is given back.
        """
        expired = 0
        for connection, seen in list(self._connections.items()):
            if connection.waiting_for_handler or connection.progress != seen.progress:
                seen.progress, seen.since = connection.progress, now
            elif now - seen.since >= max_idle >= 0:
                expired += 1
                connection.abort()
            else:
                connection.trim()
        return expired

    def stop_accepting(self) -> None:
        """Refuse new connections and begin no new request on the open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.finish()

    async def drained(self, timeout: float) -> None:
        """Wait until every connection has its answers, at most `timeout` seconds; cut the rest."""
        if self._connections:
            self._drained.clear()
            try:
                await asyncio.wait_for(self._drained.wait(), timeout)
            except TimeoutError:
                _log.warning("connections cut at shutdown", count=len(self._connections))
        for connection in list(self._connections):
            connection.abort()
