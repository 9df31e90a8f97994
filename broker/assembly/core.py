"""What every part of a broker is made with."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from barnabas.broker.doors import Doors
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.configs import Configs
from barnabas.broker.metadata.features import Features
from barnabas.broker.metadata.membership import Membership
from barnabas.broker.metadata.store import MetadataStore
from barnabas.broker.peers.peers import Peers
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.metrics.catalogue import BrokerMetrics


@dataclass(frozen=True, slots=True)
class Core:
    """The doors, what is known of the cluster, and whom to tell of what nobody waits for."""

    doors: Doors
    dynamic: DynamicConfig
    metrics: BrokerMetrics
    store: MetadataStore
    membership: Membership
    configs: Configs
    features: Features
    cache: MetadataCache
    peers: Peers
    fatal: Callable[[BaseException], None]
    """Told of a failure after which the broker cannot go on."""
    soon: Callable[[Coroutine[Any, Any, None]], None]
    """Runs what nobody waits for; its failure is the broker's."""

    @property
    def config(self) -> BrokerConfig:
        """What holds now, dynamic values included."""
        return self.dynamic.current

    @property
    def broker_id(self) -> int:
        return self.dynamic.current.broker_id
