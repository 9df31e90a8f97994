"""A listening socket, the limits on who may connect, and the end of idle or stuck connections."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from itertools import count

from barnabas.broker.clock import Clock
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.connection import Connection, Shared
from barnabas.broker.server.network import Network, Server
from barnabas.config.broker import BrokerConfig
from barnabas.config.listeners import parse_connection_overrides
from barnabas.metrics.catalogue import RequestMetrics

_log = get_logger(__name__)


class ConnectionCount:
    """Open connections of a broker over all listeners, and how many there may be."""

    def __init__(self, config: BrokerConfig) -> None:
        self.ids = count(1)
        """Gives each connection of the broker a number."""
        self._by_host: Counter[str] = Counter()
        self.limit(config)

    def limit(self, config: BrokerConfig) -> None:
        """Take over max.connections and its kin, now and whenever they change."""
        self._total = config.max_connections
        self._per_host = config.max_connections_per_ip
        self._overrides = parse_connection_overrides(
            "max.connections.per.ip.overrides", config.max_connections_per_ip_overrides
        )

    @property
    def open(self) -> int:
        """Connections open now."""
        return self._by_host.total()

    def admit(self, host: str) -> bool:
        """Count a connection in; False where a limit is reached."""
        per_host = self._overrides.get(host, self._per_host)
        if self.open >= self._total or self._by_host[host] >= per_host:
            return False
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
        metrics: RequestMetrics,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        """The port asked for; after `bind` the port that was bound."""
        self._shared = shared
        self._count = count
        self._clock = clock
        self._connections: dict[Connection, _Seen] = {}
        self._server: Server | None = None
        self._stopping = False
        self._drained = asyncio.Event()
        self._opened = metrics.connections_opened.cell(name)
        self._refused = metrics.connections_refused.cell(name)

    async def bind(self, network: Network) -> None:
        """Take the address, so that `port` is known. Raises OSError where it cannot be had."""
        try:
            self._server = await network.listen(self._connect, self.host, self.port)
        except OSError as error:
            error.filename = error.filename or f"{self.name}://{self.host}:{self.port}"
            raise
        self.port = self._server.port

    async def serve(self) -> None:
        """Accept connections."""
        assert self._server is not None
        await self._server.serve()

    def _connect(self) -> Connection:
        return Connection(self._shared, self, next(self._count.ids))

    def opened(self, connection: Connection) -> None:
        if self._stopping or not self._count.admit(connection.host):
            self._refused.value += 1
            _log.warning("connection refused", host=connection.host, listener=self.name)
            connection.abort()
            return
        self._opened.value += 1
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
        self._stopping = True
        if self._server is not None:
            self._server.close()
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


def make_listeners(
    config: BrokerConfig,
    *,
    shared: Shared,
    count: ConnectionCount,
    clock: Clock,
    metrics: RequestMetrics,
) -> dict[str, Listener]:
    """The listeners of a broker by name, none of them bound yet."""
    return {
        each.name: Listener(
            each.name,
            each.address.host,
            each.address.port,
            shared=shared,
            count=count,
            clock=clock,
            metrics=metrics,
        )
        for each in config.resolved_listeners()
    }
