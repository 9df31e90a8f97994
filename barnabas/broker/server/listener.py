"""A listening socket, the connections that wait for admission, and the end of idle connections."""

import asyncio
import heapq
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.loop.offload import Offload
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.connection import Connection, SharedResources
from barnabas.broker.server.failure_log import FailureLog
from barnabas.broker.server.limits.connection_limits import (
    SILENT_S,
    STAND_S,
    ClosableConnection,
    ConnectionLimits,
)
from barnabas.broker.server.network import Network, Server
from barnabas.broker.server.tls import ListenerTls
from barnabas.config.broker import BrokerConfig
from barnabas.metrics.catalogue import RequestMetrics
from barnabas.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from barnabas.broker.server.sasl import ListenerSasl

HALF_SENT_ROUND_MS = 1000
"""The interval in ms of the check for requests that are sent too slowly."""
HALF_SENT_ROUNDS = 10
HALF_SENT_SEARCH_ROUNDS = 4
"""The rounds between two searches for incomplete requests: most connections are idle."""
LEAST_BYTES = 16 * 1024
"""The bytes that an incomplete request brings in HALF_SENT_ROUNDS, or its connection is closed."""
TRIM_S = 10.0
"""The idle time in seconds after which a connection gives back memory."""
_log = get_logger(__name__)


class _HalfSent(NamedTuple):
    """An incomplete request: the bytes of the connection before it, its bytes when the present
    rounds began, and the number of these rounds."""

    after: int
    brought: int
    rounds: int


class ServedListener:
    """One named listener: its socket and the connections that came through it."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        *,
        shared: SharedResources,
        limits: ConnectionLimits,
        metrics: RequestMetrics,
        tls: ListenerTls | None = None,
        sasl: "ListenerSasl | None" = None,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        """The port asked for; after `bind` the port that was bound."""
        self.tls = tls
        """None for a listener without TLS."""
        self.sasl = sasl
        """None for a listener without SASL."""
        self._shared = shared
        self._limits = limits
        self._connections: dict[Connection, float] = {}
        """The open connections, with the time of their admission in seconds."""
        self._half_sent: dict[Connection, _HalfSent] = {}
        self._half_sent_rounds = 0
        self._waiting: dict[Connection, None] = {}
        self._server: Server | None = None
        self._stopping = False
        self._drained = asyncio.Event()
        self._opened = metrics.connections_opened.cell(name)
        self._refused = FailureLog("connection refused", metrics.connections_refused.cell(name))
        self._invalid = FailureLog("connection closed", metrics.invalid_requests.cell(name))
        self._cut = FailureLog("connection cut for others")
        limits.add(self)
        if sasl is not None:
            sasl.known = limits.forget_stranger

    async def bind(self, network: Network) -> None:
        """Bind the address, so that `port` is known. Raises OSError."""
        try:
            self._server = await network.listen(self._connect, self.host, self.port)
        except OSError as error:
            error.filename = error.filename or f"{self.name}://{self.host}:{self.port}"
            raise
        self.port = self._server.port

    def announce(self, host: str, port: int) -> None:
        """Take the connections of brokers of this host that look for an advertised address."""
        assert self._server is not None
        self._server.announce(host, port)

    async def serve(self) -> None:
        """Accept connections."""
        assert self._server is not None
        await self._server.serve()

    def _connect(self) -> asyncio.BufferedProtocol:
        connection = Connection(self._shared, self, next(self._limits.ids))
        if self.tls is None:
            return connection
        known = self._limits.forget_stranger if self.sasl is None else None
        return self.tls.over(connection, self._shared.dispatcher.slicer, known)

    def opened(self, connection: Connection) -> None:
        if self._stopping:
            self._refuse(connection, "the broker stops")
        elif self._waiting or not self._limits.has_room(self.name):
            self._hold(connection)
        else:
            self._admit(connection)

    def invalid_request(self, connection: Connection, reason: str) -> None:
        """Count and log a connection that is closed because of what its peer sent."""
        self._invalid.failed(connection, reason)

    def closed(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._half_sent.pop(connection, None)
        if connection in self._connections:
            del self._connections[connection]
            self._limits.leave(self.name, connection.host)
            self._limits.forget_stranger(connection.connection_id)
            if self.sasl is not None:
                self.sasl.forget(connection)
        if not self._connections:
            self._drained.set()

    def admit_waiting(self) -> None:
        while self._waiting and self._limits.has_room(self.name):
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            self._admit(connection)
            connection.proceed()
        if not self._waiting and self._server is not None and not self._stopping:
            self._server.resume()

    @property
    def newcomers(self) -> int:
        return len(self._waiting) + self.starved

    @property
    def starved(self) -> bool:
        """Whether a connection waits for a file descriptor."""
        return self._server is not None and self._server.starved

    def standing(self, now: float) -> Iterator[ClosableConnection]:
        all_served = True
        served = []
        for connection, admitted_at in self._connections.items():
            if connection.principal != ANONYMOUS or connection.waiting_for_broker:
                continue
            stands = now - connection.active_at
            if connection.served_bytes:
                if stands >= STAND_S:
                    served.append(self._place(connection))
            elif stands >= SILENT_S:
                all_served = False
                yield self._place(connection)
            elif now - admitted_at < 2 * SILENT_S:
                all_served = False
        # While some that never asked anything make way, or soon will, the others stay.
        if all_served:
            yield from served

    def _place(self, connection: Connection) -> ClosableConnection:
        return ClosableConnection(
            bool(connection.served_bytes) and self.sasl is None,
            connection.receiving is not None,
            connection.active_at,
            connection.connection_id,
            connection.abort,
        )

    def cut_idlest(self, count: int) -> None:
        idlest = heapq.nsmallest(count, self._connections, key=attrgetter("active_at"))
        for connection in idlest:
            self._cut.failed(connection, "max.connections is reached")
            connection.abort()

    def _hold(self, connection: Connection) -> None:
        connection.hold()
        self._waiting[connection] = None
        assert self._server is not None
        self._server.pause()

    def _admit(self, connection: Connection) -> None:
        if not self._limits.enter(self.name, connection.host):
            self._refuse(connection, "its address has too many, or opened too many of late")
            return
        self._opened.value += 1
        self._connections[connection] = self._shared.dispatcher.monotonic()
        if self.sasl is not None:
            close = self.sasl.admit(connection)
            self._limits.add_stranger(self.name, connection.connection_id, close)
        elif self.tls is not None:
            self._limits.add_stranger(self.name, connection.connection_id, connection.abort)

    def _refuse(self, connection: Connection, reason: str) -> None:
        self._refused.failed(connection, reason)
        connection.abort()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def sweep(self, now: float, max_idle: float) -> int:
        """Close the connections without progress for `max_idle` seconds; return their number.

        A connection that waits for the broker's answer is never idle; one whose peer does not read
        its response is. Connections that are silent give back their memory.
        """
        expired = 0
        for connection in list(self._connections):
            idle = now - connection.active_at
            if connection.waiting_for_broker:
                continue
            if idle >= max_idle >= 0:
                expired += 1
                connection.abort()
            elif idle >= TRIM_S:
                connection.trim()
        return expired

    def cut_half_sent(self) -> int:
        """Close connections whose incomplete request brings too little; return their number.

        Called every HALF_SENT_ROUND_MS. Rounds are counted, not seconds: after a pause of the
        process the bytes that have arrived meanwhile are not read yet.
        """
        known, self._half_sent = self._half_sent, {}
        searches = self._half_sent_rounds % HALF_SENT_SEARCH_ROUNDS == 0
        self._half_sent_rounds += 1
        cut = 0
        for connection in list(self._connections if searches else known):
            brought = connection.receiving
            if brought is None:
                continue
            after = connection.served_bytes
            seen = known.get(connection)
            if seen is None or seen.after != after:
                seen = _HalfSent(after, brought, 0)
            elif seen.rounds + 1 < HALF_SENT_ROUNDS:
                seen = _HalfSent(after, seen.brought, seen.rounds + 1)
            elif brought - seen.brought >= LEAST_BYTES:
                seen = _HalfSent(after, brought, 0)
            else:
                cut += 1
                connection.abort()
                continue
            self._half_sent[connection] = seen
        if cut:
            _log.warning("half-sent requests cut", listener=self.name, count=cut)
        return cut

    def stop_accepting(self) -> None:
        """Refuse new connections and begin no new request on the open ones."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._waiting):
            self._refuse(connection, "the broker stops")
        for connection in list(self._connections):
            connection.finish()

    async def drained(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the last answers, then close all connections."""
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
    shared: Mapping[str, SharedResources],
    limits: ConnectionLimits,
    metrics: RequestMetrics,
    offload: Offload,
    sasl: "Mapping[str, ListenerSasl]",
) -> dict[str, ServedListener]:
    """Return the listeners of a broker by name, not bound yet; `shared` and `sasl` are by name too.

    Raises ConfigError if the certificates of a listener with TLS cannot be used.
    """
    return {
        each.name: ServedListener(
            each.name,
            each.address.host,
            each.address.port,
            shared=shared[each.name],
            limits=limits,
            metrics=metrics,
            tls=ListenerTls(
                each.name,
                config.tls_of(each.name),
                offload,
                metrics.authentication.failed.cell(each.name),
                identifies=not each.has_sasl,
            )
            if each.has_tls
            else None,
            sasl=sasl.get(each.name),
        )
        for each in config.resolved_listeners()
    }
