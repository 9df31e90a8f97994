"""A listening socket, those who wait to be admitted, and the end of idle or stuck connections."""

import asyncio
import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.broker.clock import Clock
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.admission import Admission
from barnabas.broker.server.connection import Connection, Shared
from barnabas.broker.server.network import Network, Server
from barnabas.config.broker import BrokerConfig
from barnabas.metrics.catalogue import RequestMetrics

_log = get_logger(__name__)


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
        admission: Admission,
        clock: Clock,
        metrics: RequestMetrics,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        """The port asked for; after `bind` the port that was bound."""
        self._shared = shared
        self._admission = admission
        self._clock = clock
        self._connections: dict[Connection, _Seen] = {}
        self._waiting: dict[Connection, None] = {}
        self._server: Server | None = None
        self._stopping = False
        self._drained = asyncio.Event()
        self._opened = metrics.connections_opened.cell(name)
        self._refused = metrics.connections_refused.cell(name)
        admission.join(self)

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
        return Connection(self._shared, self, next(self._admission.ids))

    def opened(self, connection: Connection) -> None:
        if self._stopping:
            self._refuse(connection)
        elif self._waiting or not self._admission.has_room(self.name):
            self._hold(connection)
        else:
            self._admit(connection)

    def closed(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        if self._connections.pop(connection, None) is not None:
            self._admission.leave(self.name, connection.host)
        if not self._connections:
            self._drained.set()

    def admit_waiting(self) -> None:
        while self._waiting and self._admission.has_room(self.name):
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            self._admit(connection)
            connection.proceed()
        if not self._waiting and self._server is not None and not self._stopping:
            self._server.resume()

    def cut_stillest(self, count: int) -> None:
        def stillest(each: tuple[Connection, _Seen]) -> tuple[bool, float]:
            connection, seen = each
            return connection.progress != seen.progress, seen.since

        for connection, _ in heapq.nsmallest(count, self._connections.items(), key=stillest):
            _log.info("connection cut for others", host=connection.host, listener=self.name)
            connection.abort()

    def _hold(self, connection: Connection) -> None:
        connection.hold()
        self._waiting[connection] = None
        assert self._server is not None
        self._server.pause()

    def _admit(self, connection: Connection) -> None:
        if not self._admission.enter(self.name, connection.host):
            self._refuse(connection)
            return
        self._opened.value += 1
        self._connections[connection] = _Seen(connection.progress, self._clock.monotonic())

    def _refuse(self, connection: Connection) -> None:
        self._refused.value += 1
        _log.warning("connection refused", host=connection.host, listener=self.name)
        connection.abort()

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
        for connection in list(self._waiting):
            self._refuse(connection)
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
    shared: Mapping[str, Shared],
    admission: Admission,
    clock: Clock,
    metrics: RequestMetrics,
) -> dict[str, Listener]:
    """The listeners of a broker by name, as `shared` is; none of them is bound yet."""
    return {
        each.name: Listener(
            each.name,
            each.address.host,
            each.address.port,
            shared=shared[each.name],
            admission=admission,
            clock=clock,
            metrics=metrics,
        )
        for each in config.resolved_listeners()
    }
