"""The table of the APIs that a broker serves, and the routes that its listeners get from it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from random import Random
from types import GeneratorType, MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVarTuple, cast

from barnabas.broker.cluster.broker_epochs import BrokerEpochs
from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.config_admin import ConfigAdmin
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.control_receiver import ControlReceiver
from barnabas.broker.cluster.features import Features
from barnabas.broker.cluster.forwarding import Forwarder
from barnabas.broker.cluster.producer_ids import ProducerIdBlocks
from barnabas.broker.cluster.stored_quotas import StoredQuotas
from barnabas.broker.cluster.topic_creator import TopicCreator
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.groups.group_service import GroupService, import_groups
from barnabas.broker.loop.offload import Offload
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import LoggerLevels
from barnabas.broker.replication.leader.fetch_lookup import FetchLookup
from barnabas.broker.replication.leader.fetch_session import FetchSessionCache
from barnabas.broker.replication.leader.follower_read import FollowerServices
from barnabas.broker.replication.leader.replica_selector import ReplicaSelector
from barnabas.broker.replication.quota import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.broker.security.delegation_tokens import DelegationTokens, TokenRequests
from barnabas.broker.security.gate import Gate
from barnabas.broker.security.rights import Rights
from barnabas.broker.security.scram_users import ScramUsers
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Route, error_alone
from barnabas.broker.transactions.producer_id_limit import ProducerIdLimit
from barnabas.broker.transactions.transaction_service import TransactionService
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.coordinator.expressions import takes_patterns
from barnabas.coordinator.ports import Clock
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.protocol.apis import APIS, KEYS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.late_import import import_late
from barnabas.protocol.messages.api_versions import ApiVersion
from barnabas.protocol.schema import Api
from barnabas.protocol.steps import Steps
from barnabas.storage.opening.log_manager import LogManager

if TYPE_CHECKING:
    from barnabas.broker.handlers import (
        add_offsets_to_txn,
        add_partitions_to_txn,
        allocate_producer_ids,
        alter_client_quotas,
        alter_configs,
        alter_partition,
        alter_partition_reassignments,
        alter_replica_log_dirs,
        alter_user_scram_credentials,
        api_versions,
        consumer_group_describe,
        consumer_group_heartbeat,
        controlled_shutdown,
        create_acls,
        create_delegation_token,
        create_partitions,
        create_topics,
        delete_acls,
        delete_groups,
        delete_records,
        delete_topics,
        describe_acls,
        describe_client_quotas,
        describe_cluster,
        describe_configs,
        describe_delegation_token,
        describe_groups,
        describe_log_dirs,
        describe_producers,
        describe_topic_partitions,
        describe_transactions,
        describe_user_scram_credentials,
        elect_leaders,
        end_txn,
        envelope,
        expect_producers,
        expire_delegation_token,
        fetch,
        find_coordinator,
        heartbeat,
        incremental_alter_configs,
        init_producer_id,
        join_group,
        leader_and_isr,
        leave_group,
        list_config_resources,
        list_groups,
        list_offsets,
        list_partition_reassignments,
        list_transactions,
        metadata,
        offset_commit,
        offset_delete,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        renew_delegation_token,
        sasl_authenticate,
        sasl_handshake,
        stop_replica,
        sync_group,
        txn_offset_commit,
        update_features,
        update_metadata,
        write_txn_markers,
    )
else:
    # A name stands for its module, which is imported at the first request of the API.
    globals().update({each.module: each.module for each in APIS.values()})

Cs = TypeVarTuple("Cs")
Guard = Callable[[Route, Rights], Route]
"""A function that puts a route behind the gate."""


class BrokerParts(NamedTuple):
    """The parts of a broker from which handlers get their collaborators."""

    broker_id: int
    broker_epochs: BrokerEpochs
    dynamic: DynamicConfig
    configs: Configs
    features: Features
    scram_users: ScramUsers
    tokens: DelegationTokens | None
    """None without `delegation.token.secret.key`."""
    config_admin: ConfigAdmin
    loggers: LoggerLevels
    cache: MetadataCache
    controller: Controller
    receiver: ControlReceiver
    replica_admin: ReplicaAdmin
    topic_creator: TopicCreator
    producer_ids: ProducerIdBlocks
    producer_id_limit: ProducerIdLimit
    replicas: ReplicaManager
    quotas: ReplicationQuotas
    client_quotas: StoredQuotas
    logs: LogManager
    sessions: FetchSessionCache
    groups: GroupService
    transactions: TransactionService
    clock: Clock
    random: Random
    slicer: Slicer
    offload: Offload
    metrics: BrokerMetrics
    acls: ClusterAcls | None
    """None without an authorizer, and `gate` too."""
    forwarder: Forwarder | None = None
    """None outside of a cluster: this broker is the controller."""
    served: Mapping[int, range] = {}
    """The versions that the listener serves, by API key."""
    gate: Gate | None = None

    def config(self) -> BrokerConfig:
        """Return the configuration that is in effect now."""
        return self.dynamic.current


class HandlerModule(Protocol[*Cs]):
    """A module of barnabas/broker/handlers.

    The response to a request that fails as a whole is derived. If Kafka's is different, the module
    also has a function `error_response(request, code, version)`, which may be a generator function.
    If its requests repeat, the module has a function `again` with the collaborators of `handle`
    (`barnabas/broker/server/repeats.py`).
    """

    API: Api
    RIGHTS: Rights
    """The rights that its requests need (`barnabas/broker/security/rights.py`)."""

    @property
    def handle(self) -> Callable[[*Cs, Any, RequestContext], Any]:
        """The function that answers a request: its collaborators, the request, its context."""
        ...


class ApiRow(NamedTuple):
    """A row of the table."""

    name: str
    """The name of its two modules."""
    collaborators: Callable[[BrokerParts], tuple[Any, ...]]
    of_controller: bool = False
    """Whether only the controller can answer: other brokers forward the requests of clients."""

    @property
    def module(self) -> HandlerModule[*tuple[Any, ...]]:
        """The handler. The first use of the API imports it.

        Raises ReleaseReplaced.
        """
        return cast(
            HandlerModule[*tuple[Any, ...]], import_late(f"barnabas.broker.handlers.{self.name}")
        )

    @property
    def api(self) -> Api:
        return self.module.API

    @property
    def key(self) -> int:
        return KEYS[self.name]

    @property
    def versions(self) -> range:
        return APIS[self.key].served

    @property
    def clients(self) -> range:
        """The versions for clients of a cluster."""
        return APIS[self.key].clients

    def refuse(self, request: Any, code: ErrorCode, version: int) -> Steps[Any]:
        """Return the response to a request that fails as a whole.

        The error is at its top, if there is a field for it, and at each element that has a
        separate result.
        """
        own = getattr(self.module, "error_response", None)
        if own is not None:
            answer = own(request, code, version)
            return (yield from answer) if type(answer) is GeneratorType else answer
        answer = error_alone(self.api.response, code, version)
        each = self.module.RIGHTS.each
        if each is not None:
            refusals = []
            for element in getattr(request, each.elements) or ():
                yield None
                refusals.append((yield from each.refusal(element, code, version)))
            setattr(answer, each.answers, refusals)
        return answer

    def route(self, parts: BrokerParts, versions: range, guard: Guard | None) -> Route:
        """Return the route with the handler bound to its collaborators, and behind a guard.

        Raises TypeError for a handler that does not declare its rights.
        """
        rights: Rights | None = getattr(self.module, "RIGHTS", None)
        if rights is None:
            raise TypeError(
                f"The handler of {self.api.name} ({self.api.key}) declares no RIGHTS: "
                "see barnabas/broker/security/rights.py"
            )
        collaborators = self.collaborators(parts)
        handle = _bound(self.module.handle, collaborators)
        again = getattr(self.module, "again", None)
        if again is not None:
            enabled = parts.config().fast_paths_enable
            again = _bound(again, collaborators) if enabled else None
        route = Route(
            self.api,
            versions,
            handle,
            self.refuse,
            for_brokers=not self.clients,
            again=again,
        )
        return route if guard is None else guard(route, rights)


def _bound(handle: Callable[..., Any], collaborators: tuple[Any, ...]) -> Callable[..., Any]:
    if len(collaborators) == 1 and collaborators[0] is not None:
        # A bound method costs less per call than a partial, but takes no None.
        return MethodType(handle, *collaborators)
    return partial(handle, *collaborators)


class Routes(Mapping[int, Route]):
    """The routes of a listener, by API key. A route is made when it is first looked up: a start
    imports no handlers."""

    def __init__(
        self,
        rows: Iterable[tuple[ApiRow, range]],
        make: Callable[[ApiRow, range], Route],
    ) -> None:
        """`rows` have the served versions."""
        self._rows = {row.key: (row, versions) for row, versions in rows}
        self._make = make
        self._made: dict[int, Route] = {}

    def __getitem__(self, key: int) -> Route:
        """Raises KeyError for an API without a row, TypeError for a handler without rights, and
        ReleaseReplaced."""
        if key not in self._made:
            self._made[key] = self._make(*self._rows[key])
        return self._made[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def client_routes(parts: BrokerParts, around: Callable[[Route], Route]) -> Routes:
    """Return the routes of a client listener.

    A broker that is not in a cluster has no other listener, and serves clients all versions.
    """
    in_cluster = parts.config().in_cluster
    rows = [(row, row.clients if in_cluster else row.versions) for row in API_TABLE if row.clients]
    guard = None if parts.gate is None else parts.gate.guard
    return _routes(parts, rows, guard, parts.forwarder, around)


def inter_broker_routes(parts: BrokerParts, around: Callable[[Route], Route]) -> Routes:
    """Return the routes of the inter-broker listener: all APIs in all versions."""
    gate, guard = parts.gate, None
    shared = parts.config().serves_clients_and_brokers
    if gate is not None:
        guard = gate.guard_shared if shared else gate.guard_between
    rows = [(row, row.versions) for row in API_TABLE]
    return _routes(parts, rows, guard, parts.forwarder if shared else None, around)


def _routes(
    parts: BrokerParts,
    rows: list[tuple[ApiRow, range]],
    guard: Guard | None,
    forwarder: Forwarder | None,
    around: Callable[[Route], Route],
) -> Routes:
    parts = parts._replace(served={row.key: versions for row, versions in rows})

    def make(row: ApiRow, versions: range) -> Route:
        route = row.route(parts, versions, guard)
        route = forwarder.route(route) if forwarder and row.of_controller else route
        return around(route)

    return Routes(rows, make)


def import_handlers() -> Steps[None]:
    """Import the handlers of all APIs, and what they share. Raises ReleaseReplaced."""
    yield from import_groups()
    for row in API_TABLE:
        _ = row.module
        yield None


def _row(
    module: HandlerModule[*Cs],
    collaborators: Callable[[BrokerParts], tuple[*Cs]],
    *,
    of_controller: bool = False,
) -> ApiRow:
    return ApiRow(cast(str, module), collaborators, of_controller)


def _fetch(
    parts: BrokerParts,
) -> tuple[FetchSessionCache, FetchLookup, ReplicaSelector, FollowerServices, Callable[[], int]]:
    lookup = FetchLookup(parts.replicas, parts.cache)
    followers = FollowerServices(
        lookup,
        parts.quotas.leader,
        parts.metrics.replication,
        parts.clock.monotonic,
        parts.broker_epochs.is_present,
    )
    selector = ReplicaSelector(
        parts.broker_id, parts.cache, lambda: parts.config().replica_selector_class
    )
    most_bytes = partial(attrgetter("current.fetch_max_bytes"), parts.dynamic)
    return parts.sessions, lookup, selector, followers, most_bytes


def _token_requests(parts: BrokerParts) -> TokenRequests:
    return TokenRequests(parts.tokens, parts.config, parts.clock.now_ms, parts.random.getrandbits)


def _controller_routes(parts: BrokerParts) -> Routes:
    """Return the routes of the requests that other brokers forward, as clients have them."""
    guard = None if parts.gate is None else parts.gate.guard
    rows = [(row, row.versions) for row in API_TABLE if row.of_controller]
    return Routes(rows, lambda row, versions: row.route(parts, versions, guard))


def _announced(parts: BrokerParts) -> list[ApiVersion]:
    # Asked for by the row of the API alone, so the module is there.
    from barnabas.broker.handlers.api_versions import announce

    return announce(
        parts.served,
        two_phase_commit=parts.config().transaction_two_phase_commit_enable,
        patterns=takes_patterns(),
    )


API_TABLE: Final = (
    _row(api_versions, lambda p: (p.cache.cluster_id, p.broker_id, p.features, _announced(p))),
    _row(sasl_handshake, lambda p: (p,)),
    _row(sasl_authenticate, lambda p: (p,)),
    # data
    _row(
        produce,
        lambda p: (
            p.replicas,
            p.cache,
            p.transactions.produce_verification,
            p.producer_id_limit,
        ),
    ),
    _row(fetch, _fetch),
    _row(list_offsets, lambda p: (p.replicas, lambda: p.config().group_lag_counted_batches)),
    _row(delete_records, lambda p: (p.replicas,)),
    _row(offset_for_leader_epoch, lambda p: (p.replicas,)),
    _row(describe_log_dirs, lambda p: (p.logs, p.offload)),
    _row(alter_replica_log_dirs, lambda p: (p.replicas,)),
    # topics and replicas
    _row(
        metadata,
        lambda p: (p.cache, lambda: p.config().auto_create_topics_enable, p.topic_creator.create),
    ),
    _row(create_topics, lambda p: (p.controller, p.dynamic), of_controller=True),
    _row(
        delete_topics,
        lambda p: (p.controller, p.cache, lambda: p.config().delete_topic_enable),
        of_controller=True,
    ),
    _row(create_partitions, lambda p: (p.controller, p.cache), of_controller=True),
    _row(describe_cluster, lambda p: (p.cache,)),
    _row(
        describe_topic_partitions,
        lambda p: (p.cache, lambda: p.config().max_request_partition_size_limit),
    ),
    _row(elect_leaders, lambda p: (p.replica_admin,), of_controller=True),
    _row(alter_partition_reassignments, lambda p: (p.replica_admin,), of_controller=True),
    _row(list_partition_reassignments, lambda p: (p.replica_admin,), of_controller=True),
    # configurations and features
    _row(describe_configs, lambda p: (p.configs, p.cache, p.broker_id, p.loggers)),
    _row(alter_configs, lambda p: (p.config_admin,)),
    _row(incremental_alter_configs, lambda p: (p.config_admin,)),
    _row(list_config_resources, lambda p: (p.configs, p.cache)),
    _row(update_features, lambda p: (p.features,)),
    # users
    _row(describe_client_quotas, lambda p: (p.client_quotas.quotas,)),
    _row(alter_client_quotas, lambda p: (p.client_quotas, p.slicer)),
    _row(describe_user_scram_credentials, lambda p: (p.scram_users,)),
    _row(alter_user_scram_credentials, lambda p: (p.scram_users, p.slicer)),
    # delegation tokens
    _row(create_delegation_token, lambda p: (_token_requests(p),)),
    _row(renew_delegation_token, lambda p: (_token_requests(p),)),
    _row(expire_delegation_token, lambda p: (_token_requests(p),)),
    _row(describe_delegation_token, lambda p: (_token_requests(p),)),
    # access control rules
    _row(describe_acls, lambda p: (p.acls,)),
    _row(create_acls, lambda p: (p.acls,)),
    _row(delete_acls, lambda p: (p.acls,)),
    # groups
    _row(
        find_coordinator,
        lambda p: (
            p.groups,
            p.transactions.coordinator,
            p.cache,
            p.topic_creator.ensure_internal_topic,
        ),
    ),
    _row(join_group, lambda p: (p.groups.coordinator,)),
    _row(sync_group, lambda p: (p.groups.coordinator,)),
    _row(heartbeat, lambda p: (p.groups.coordinator,)),
    _row(leave_group, lambda p: (p.groups.coordinator,)),
    _row(offset_commit, lambda p: (p.groups.coordinator, p.cache)),
    _row(
        offset_fetch,
        lambda p: (
            p.groups.coordinator,
            p.cache,
            lambda: p.config().group_unstable_offsets_block_old_clients,
        ),
    ),
    _row(offset_delete, lambda p: (p.groups.coordinator, p.cache)),
    _row(describe_groups, lambda p: (p.groups.coordinator,)),
    _row(list_groups, lambda p: (p.groups.coordinator,)),
    _row(consumer_group_heartbeat, lambda p: (p.groups.coordinator, p.features)),
    _row(consumer_group_describe, lambda p: (p.groups.coordinator, p.features)),
    _row(delete_groups, lambda p: (p.groups.coordinator,)),
    # transactions
    _row(
        init_producer_id,
        lambda p: (
            p.producer_ids.next_id,
            p.transactions.coordinator,
            p.producer_id_limit,
            p.config().transaction_two_phase_commit_enable,
        ),
    ),
    _row(add_partitions_to_txn, lambda p: (p.transactions.coordinator, p.groups, p.cache)),
    _row(add_offsets_to_txn, lambda p: (p.transactions.coordinator, p.groups)),
    _row(
        txn_offset_commit,
        lambda p: (
            p.groups.coordinator,
            p.cache,
            p.transactions.verifier,
            p.transactions.coordinator,
        ),
    ),
    _row(end_txn, lambda p: (p.transactions.coordinator,)),
    _row(expect_producers, lambda p: (p.replicas, p.transactions.origins)),
    _row(
        write_txn_markers,
        lambda p: (
            p.transactions.writer,
            p.transactions.origins,
            p.config().transaction_refuse_future_markers,
        ),
    ),
    _row(describe_transactions, lambda p: (p.transactions.coordinator,)),
    _row(list_transactions, lambda p: (p.transactions.coordinator, p.clock)),
    _row(describe_producers, lambda p: (p.replicas,)),
    # between the controller and its brokers
    _row(leader_and_isr, lambda p: (p.receiver,)),
    _row(stop_replica, lambda p: (p.receiver,)),
    _row(update_metadata, lambda p: (p.receiver,)),
    _row(controlled_shutdown, lambda p: (p.controller,)),
    _row(alter_partition, lambda p: (p.controller,)),
    _row(allocate_producer_ids, lambda p: (p.controller, p.producer_ids)),
    _row(envelope, lambda p: (p.controller, _controller_routes(p), p.client_quotas.quotas)),
)
"""Every API that a broker serves: the handler, and the function that names its collaborators. The
versions are in `barnabas/protocol/apis.py`; ApiVersions announces them."""
