"""The parts that all other parts of a broker need."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from barnabas.broker.cluster.broker_epochs import BrokerEpochs
from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.features import Features
from barnabas.broker.cluster.membership import Membership
from barnabas.broker.cluster.peers import Peers
from barnabas.broker.cluster.stored_quotas import StoredQuotas
from barnabas.broker.groups.configs import GroupConfigs
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.events import EventLog
from barnabas.broker.platform import Platform
from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.broker.security.scram_users import ScramUsers
from barnabas.broker.store.metadata_store import MetadataStore
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.security.sasl.credentials import StandIns


@dataclass(frozen=True, slots=True)
class Core:
    """The platform, the configuration, the cluster metadata, and callbacks for failures and
    tasks."""

    platform: Platform
    events: EventLog
    dynamic: DynamicConfig
    metrics: BrokerMetrics
    store: MetadataStore
    membership: Membership
    broker_epochs: BrokerEpochs
    configs: Configs
    features: Features
    scram_users: ScramUsers
    group_configs: GroupConfigs
    tokens: DelegationTokens | None
    """None without `delegation.token.secret.key`."""
    quotas: StoredQuotas
    stand_ins: StandIns | None
    """Credentials in place of those of unknown users; None without a listener with SASL."""
    acls: ClusterAcls | None
    """None without an authorizer."""
    cache: MetadataCache
    peers: Peers
    checks: list[Callable[[BrokerConfig], object]]
    """Functions that raise ConfigError for keys that contradict what they name, such as users: each
    is called before a dynamic value is stored."""
    slicer: Slicer
    fatal: Callable[[BaseException], None]
    """Called with an error after which the broker cannot continue."""
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    """Runs a coroutine in a new task; an error in it is fatal for the broker."""

    @property
    def config(self) -> BrokerConfig:
        """The current configuration, dynamic values included."""
        return self.dynamic.current

    @property
    def broker_id(self) -> int:
        return self.dynamic.current.broker_id
