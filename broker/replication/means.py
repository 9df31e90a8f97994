"""What fetching from leaders takes: a line to each, and what all fetchers of a broker share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from barnabas.broker.clock import Clock
from barnabas.broker.offload import Offload
from barnabas.broker.replication.quota import ReplicationQuota
from barnabas.config.broker import BrokerConfig
from barnabas.metrics.catalogue import FetcherMetrics
from barnabas.protocol.schema import Api


class Line(Protocol):
    """A connection to the leader, opened when it is used; see `broker/peers`."""

    async def request(
        self, api: Api, request: object, *, version: int | None = None, timeout: float = 30.0
    ) -> Any: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Means:
    """What the fetchers of a broker work with."""

    broker_id: int
    config: Callable[[], BrokerConfig]
    clock: Clock
    offload: Offload
    quota: ReplicationQuota
    metrics: FetcherMetrics
    broker_epoch: Callable[[], int]
    """Of this broker's registration: a leader tells its incarnations apart (KIP-903)."""
