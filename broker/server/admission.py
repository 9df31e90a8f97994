"""Who may be connected: limits on the broker, on each listener, and on each address.

As in Kafka, a connection beyond max.connections waits until another one leaves, and one beyond
max.connections.per.ip is closed. The listener between brokers passes the broker's limit where it is
not the only one: the connection of another listener that has stood still longest makes way.
"""

from collections import Counter
from itertools import count
from typing import Protocol

from barnabas.config.broker import BrokerConfig
from barnabas.config.listeners import parse_connection_overrides


class Gate(Protocol):
    """A listener, as far as admission goes."""

    name: str

    def admit_waiting(self) -> None:
        """There may be room for those who wait."""
        ...

    def cut_stillest(self, count: int) -> None:
        """Cut so many of its connections, those first that have stood still longest."""
        ...


class Admission:
    """Counts the open connections of a broker, and says how many there may be."""

    def __init__(self, config: BrokerConfig) -> None:
        self.ids = count(1)
        """Gives each connection of the broker a number."""
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._gates: list[Gate] = []
        self.limit(config)

    def limit(self, config: BrokerConfig) -> None:
        """Take over max.connections and its kin, now and whenever they change."""
        self._config = config
        self._between_brokers = config.inter_broker_listener().name
        self._overrides = parse_connection_overrides(
            "max.connections.per.ip.overrides", config.max_connections_per_ip_overrides
        )
        self._cut_excess()
        self._admit_waiting()

    def join(self, gate: Gate) -> None:
        """A listener whose connections are counted."""
        self._gates.append(gate)

    @property
    def open(self) -> int:
        """Connections open now."""
        return self._by_listener.total()

    def has_room(self, listener: str) -> bool:
        """Whether one more connection need not wait."""
        if self._by_listener[listener] >= self._config.max_connections_of(listener):
            return False
        return self._passes(listener) or self.open < self._config.max_connections

    def enter(self, listener: str, host: str) -> bool:
        """Count a connection in; False where its address has too many."""
        if self._by_host[host] >= self._overrides.get(host, self._config.max_connections_per_ip):
            return False
        self._by_host[host] += 1
        self._by_listener[listener] += 1
        self._cut_excess()
        return True

    def leave(self, listener: str, host: str) -> None:
        """Count a connection out; whoever waits may come in."""
        self._by_listener[listener] -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self._admit_waiting()

    def _passes(self, listener: str) -> bool:
        return listener == self._between_brokers and len(self._gates) > 1

    def _admit_waiting(self) -> None:
        for gate in self._gates:
            gate.admit_waiting()

    def _cut_excess(self) -> None:
        excess = self.open - self._config.max_connections
        for gate in self._gates:
            if excess > 0 and not self._passes(gate.name):
                gate.cut_stillest(excess)
                excess -= self._by_listener[gate.name]
