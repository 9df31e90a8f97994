"""The limits on connections of the broker, of each listener, and of each address.

As in Kafka, a connection beyond max.connections waits until another one is closed, and one beyond
max.connections.per.ip is closed. A connection beyond the connection_creation_rate of its address is
closed too; in Kafka it waits first (KIP-612). One beyond max.connection.creation.rate, of the
broker or of its listener, waits. The inter-broker listener may exceed the broker's limits, unless
it is the only listener: of the other listeners' connections, the one that is idle longest is closed
instead.

Connections whose client has not authenticated yet have a share of the descriptors. Beyond it the
oldest of them is closed, so that a crowd of them takes no descriptors of other clients, and
newcomers can still authenticate.

In contrast to Kafka, anonymous connections that do nothing are closed for connections that wait,
even for those that wait for a file descriptor (KIP-402 and KIP-612 let them wait). No request is
lost: a connection with a request in progress stays.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, NamedTuple, Protocol

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.limits.quotas import ClientQuotas, Rate
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import INT_MAX
from barnabas.config.listeners import parse_connection_overrides
from barnabas.security.acl.rules import host_key

ROUND_MS: Final = 100
"""The interval in ms in which connections make way for those that wait."""
STAND_S: Final = 0.4
"""The time in seconds after which a connection without progress may be closed for another one."""
SILENT_S: Final = 0.1
"""The same for a connection that has not sent a whole request yet."""
SILENT_AT_ONCE: Final = 256
"""The connections without any request that are closed at once, so that a crowd of them passes."""
STRANGERS_SHARE: Final = 4
"""The part of the file descriptors, one in four, for connections before authentication."""
LOG_S: Final = 10.0
"""The least time in seconds between two log events about the same crowd."""
_BROKER: Final = ""
"""The key of the broker's rate; no listener has an empty name."""
_log = get_logger(__name__)


class ClosableConnection(NamedTuple):
    """A connection that may be closed for one that waits. They are closed in this order."""

    served: bool
    """Whether it has ever sent a whole request."""
    half_sent: bool
    since: float
    """The time of its last progress."""
    connection_id: int
    close: Callable[[], None]


class LimitedListener(Protocol):
    """A listener, as the limits use it."""

    name: str

    @property
    def newcomers(self) -> int:
        """The known connections that wait; 0 if none waits."""
        ...

    def standing(self, now: float) -> Iterator[ClosableConnection]:
        """Yield the places of anonymous connections that stand, at the time `now` in seconds.

        Those that have been served are left out while others make way, or soon will.
        """
        ...

    def admit_waiting(self) -> None:
        """Admit as many waiting connections as the limits allow."""
        ...

    def cut_idlest(self, count: int) -> None:
        """Close `count` connections, those first that are idle longest."""
        ...


class ConnectionLimits:
    """The open connections of a broker, counted and limited."""

    def __init__(self, config: BrokerConfig, descriptors: int, quotas: ClientQuotas) -> None:
        """`descriptors` is the number of file descriptors for connections."""
        self._quotas = quotas
        self._rates: dict[str, Rate] = {}
        """The rates of new connections that are limited: of listeners, and of the broker."""
        self.ids = count(1)
        """The ids of the broker's connections."""
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._listeners: list[LimitedListener] = []
        self._untold = 0
        self._told_at = -math.inf
        self._descriptors = descriptors
        self._strangers: dict[bool, dict[int, Callable[[], None]]] = {False: {}, True: {}}
        """Functions that close connections before authentication, by id, the oldest first; those of
        a listener that passes apart from those of the others."""
        self.limit(config)

    def limit(self, config: BrokerConfig) -> None:
        """Apply the configured limits, initially and after each change."""
        self._config = config
        self._between_brokers = config.broker_listeners()
        self._overrides = parse_connection_overrides(
            "max.connections.per.ip.overrides", config.max_connections_per_ip_overrides
        )
        self._limit_rates()
        self._cut_excess()
        self._admit_waiting()

    def add(self, listener: LimitedListener) -> None:
        """Add a listener."""
        self._listeners.append(listener)

    @property
    def open(self) -> int:
        """The number of open connections."""
        return self._by_listener.total()

    def has_room(self, listener: str) -> bool:
        """Return whether the listener may admit one more connection now."""
        if self._is_too_fast(listener):
            return False
        if self._by_listener[listener] >= self._config.max_connections_of(listener):
            return False
        return self._passes(listener) or self.open < self._config.max_connections

    def enter(self, listener: str, host: str) -> bool:
        """Count a new connection; return False if its address has too many, open or of late."""
        if not (self._passes(listener) or self._quotas.admits(host_key(host))):
            return False
        if self._by_host[host] >= self._overrides.get(host, self._config.max_connections_per_ip):
            return False
        self._by_host[host] += 1
        self._by_listener[listener] += 1
        for rate in self._rates_of(listener):
            rate.record(1, self._quotas.monotonic())
        self._cut_excess()
        return True

    def leave(self, listener: str, host: str) -> None:
        """Count a closed connection, and admit waiting ones."""
        self._by_listener[listener] -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self._admit_waiting()

    def add_stranger(self, listener: str, connection_id: int, close: Callable[[], None]) -> None:
        """Count a connection before authentication; beyond the share close the oldest one.

        The inter-broker listener has a separate share, so that a crowd of clients closes no
        connection of a broker.
        """
        strangers = self._strangers[self._passes(listener)]
        strangers[connection_id] = close
        share = min(self._descriptors, self._config.max_connections) // STRANGERS_SHARE
        while len(strangers) > max(1, share):
            strangers.pop(next(iter(strangers)))()

    def forget_stranger(self, connection_id: int) -> None:
        """Stop counting a connection: its client has authenticated, or it is closed."""
        for strangers in self._strangers.values():
            strangers.pop(connection_id, None)

    def make_way(self, now: float) -> int:
        """Close connections that stand for those that wait; return their number.

        Called every ROUND_MS; `now` is in seconds.
        """
        closed = 0
        if self._rates:
            self._admit_waiting()
        for listener in self._listeners:
            if (newcomers := listener.newcomers) and not self._is_too_fast(listener.name):
                places = sorted(
                    place
                    for each in self._listeners
                    if self._may_close(each.name, listener.name)
                    for place in each.standing(now)
                )
                silent = bisect_left(places, (True,))
                for place in places[: max(newcomers, min(silent, SILENT_AT_ONCE))]:
                    place.close()
                    closed += 1
        self._untold += closed
        if self._untold and now - self._told_at >= LOG_S:
            _log.warning("connections closed for new ones", count=self._untold)
            self._untold, self._told_at = 0, now
        return closed

    def _may_close(self, listener: str, newcomer: str) -> bool:
        """Return whether a connection of `listener` makes way for one of the listener
        `newcomer`."""
        if self._passes(listener):
            return False
        own_limit = self._config.max_connections_of(newcomer)
        return listener == newcomer or self._by_listener[newcomer] < own_limit

    def _limit_rates(self) -> None:
        config, known = self._config, self._rates
        limits = {
            each.name: config.max_connection_creation_rate_of(each.name)
            for each in config.resolved_listeners()
        }
        limits[_BROKER] = config.max_connection_creation_rate
        self._rates = {}
        for name, limit in limits.items():
            if limit < INT_MAX:
                self._rates[name] = rate = known.get(name) or self._quotas.periods.rate()
                rate.limit = limit

    def _rates_of(self, listener: str) -> Iterator[Rate]:
        """Yield the limited rates to which the connections of a listener count."""
        for name in (listener,) if self._passes(listener) else (listener, _BROKER):
            if name in self._rates:
                yield self._rates[name]

    def _is_too_fast(self, listener: str) -> bool:
        """Whether new connections of a listener have to wait for the limit on their rate."""
        return any(
            each.throttle_s(self._quotas.monotonic()) > 0 for each in self._rates_of(listener)
        )

    def _passes(self, listener: str) -> bool:
        return listener in self._between_brokers and len(self._listeners) > 1

    def _admit_waiting(self) -> None:
        for listener in self._listeners:
            listener.admit_waiting()

    def _cut_excess(self) -> None:
        excess = self.open - self._config.max_connections
        for listener in self._listeners:
            if excess > 0 and not self._passes(listener.name):
                listener.cut_idlest(excess)
                excess -= self._by_listener[listener.name]
