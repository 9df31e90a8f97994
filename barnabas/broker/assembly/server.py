"""The assembly of the listeners: those for clients, and the inter-broker listener."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.control import Control
from barnabas.broker.assembly.coordination import Coordination
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import Replication
from barnabas.broker.cluster.forwarding import Forwarder
from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.loop.clock import LoopTimers
from barnabas.broker.loop.pause_guard import PauseGuard
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.leader.fetch_session import FetchSessionCache
from barnabas.broker.routes import BrokerParts, client_routes, inter_broker_routes
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.gate import Gate
from barnabas.broker.server.connection import Connection, SharedResources, ignore_departure
from barnabas.broker.server.dispatch import Dispatcher
from barnabas.broker.server.limits.budget import STRANGERS_BYTES, RequestMemory, UnreadAnswers
from barnabas.broker.server.limits.connection_limits import ConnectionLimits
from barnabas.broker.server.listener import ServedListener, make_listeners
from barnabas.broker.server.network import last_descriptor
from barnabas.broker.transactions.producer_id_limit import ProducerIdLimit
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError
from barnabas.protocol.frame import SpareBuffers
from barnabas.security.acl.matcher import Policy, parse_super_users
from barnabas.security.sasl.credentials import ScramMechanism

if TYPE_CHECKING:
    from barnabas.broker.server.sasl import ListenerSasl

_log = get_logger(__name__)
_UNNOTICED_PAUSE = 1 / 3
"""The part of the session timeout that a pause may take: the session survives it."""


class BrokerServer(NamedTuple):
    """The listeners and what they share."""

    listeners: dict[str, ServedListener]
    memories: tuple[RequestMemory, ...]
    limits: ConnectionLimits
    guard: PauseGuard


def make_server(
    core: Core, replication: Replication, control: Control, coordination: Coordination
) -> BrokerServer:
    """Make the listeners; they are not bound yet."""
    config, platform, metrics = core.config, core.platform, core.metrics
    parts = _parts(core, replication, control, coordination)
    memory, strangers = map(RequestMemory, (config.queued_max_request_bytes, STRANGERS_BYTES))
    spares, unread = SpareBuffers(), UnreadAnswers(config.queued_max_response_bytes)
    guard = _pause_guard(core)

    def departed(connection: Connection) -> None:
        gate = parts.gate
        if gate is None or gate.is_broker(connection.principal, connection.host):
            replication.isr_manager.connection_closed(connection.connection_id)

    def shared(*, inter_broker: bool) -> SharedResources:
        routes = inter_broker_routes if inter_broker else client_routes
        serves_clients = not inter_broker or config.serves_clients_and_brokers
        return SharedResources(
            dispatcher=Dispatcher(
                routes(parts, platform.around(core.cache)),
                clock=platform.clock,
                slicer=core.slicer,
                metrics=metrics.requests,
                inter_broker=inter_broker,
                quotas=core.quotas.quotas if serves_clients else None,
            ),
            offload=platform.offload,
            memory=memory,
            max_request_bytes=config.socket_request_max_bytes,
            spares=spares,
            strangers=strangers,
            unread=unread,
            departed=departed if inter_broker else ignore_departure,
            guard=guard,
        )

    limits = ConnectionLimits(config, last_descriptor(), core.quotas.quotas)
    core.dynamic.subscribe(limits.limit)
    clients = shared(inter_broker=False)
    among_brokers = shared(inter_broker=True) if config.in_cluster else clients
    shared_by = {
        each.name: among_brokers if each.name in config.broker_listeners() else clients
        for each in config.resolved_listeners()
    }
    listeners = make_listeners(
        config,
        shared=shared_by,
        limits=limits,
        metrics=metrics.requests,
        offload=platform.offload,
        sasl=_sasl(core, shared_by),
    )
    gauges.read_server(metrics, list(listeners.values()), memory)
    return BrokerServer(listeners, (memory, strangers), limits, guard)


def _pause_guard(core: Core) -> PauseGuard:
    return PauseGuard(
        core.platform.clock,
        allowed=core.store.session_timeout * _UNNOTICED_PAUSE,
        events=core.events,
        recheck=core.membership.confirm_registration,
        soon=core.spawn,
    )


def _sasl(core: Core, shared: Mapping[str, SharedResources]) -> "dict[str, ListenerSasl]":
    """Return the SASL of the listeners that have it; raise ConfigError."""
    config = core.config
    names = [each.name for each in config.resolved_listeners() if each.has_sasl]
    if not names:
        return {}
    # Imported here: most brokers on a developer's machine start without it.
    from barnabas.broker.security.mechanisms import Mechanisms
    from barnabas.broker.security.token_credentials import TokenCredentials
    from barnabas.broker.server.login_queue import LoginQueue
    from barnabas.broker.server.sasl import ListenerSasl

    assert core.stand_ins is not None, "a broker with SASL reads them at its start"
    offload, tokens = core.platform.offload, None
    if core.tokens is not None:
        tokens = TokenCredentials(
            core.tokens, core.stand_ins, offload, core.spawn, lambda: _scram(core.config)
        )
    mechanisms = Mechanisms(offload, core.platform.clock, core.scram_users, core.stand_ins, tokens)
    # A crowd of clients keeps no broker waiting.
    of_clients, of_brokers = LoginQueue(offload, "logins"), LoginQueue(offload, "logins of brokers")
    sasl = {
        name: ListenerSasl(
            name,
            mechanisms.of(name, config),
            config,
            shared=shared[name],
            logins=of_brokers if name in config.broker_listeners() else of_clients,
            clock=core.platform.clock,
            metrics=core.metrics.requests,
        )
        for name in names
    }

    def changed(new: BrokerConfig) -> None:
        for name, each in sasl.items():
            before = each.mechanisms
            try:
                each.mechanisms = mechanisms.of(name, new, before)
            except ConfigError as error:
                _log.error("keys of SASL refused", listener=name, reason=str(error))
                continue
            for mechanism in each.mechanisms.values():
                if mechanism.refresh is not None and mechanism not in before.values():
                    core.spawn(mechanism.refresh.run())

    def check(new: BrokerConfig) -> None:
        for name, each in sasl.items():
            mechanisms.of(name, new, each.mechanisms)

    core.dynamic.subscribe(changed)
    core.checks.append(check)
    return sasl


def _scram(config: BrokerConfig) -> set[ScramMechanism]:
    """Return the SCRAM mechanisms of all listeners."""
    enabled = {
        mechanism
        for listener in config.resolved_listeners()
        if listener.has_sasl
        for mechanism in config.sasl_of(listener.name).sasl_enabled_mechanisms
    }
    return {each for each in ScramMechanism if each.value in enabled}


def _parts(
    core: Core, replication: Replication, control: Control, coordination: Coordination
) -> BrokerParts:
    platform, config = core.platform, core.config
    return BrokerParts(
        broker_id=core.broker_id,
        broker_epochs=core.broker_epochs,
        dynamic=core.dynamic,
        configs=core.configs,
        features=core.features,
        scram_users=core.scram_users,
        tokens=core.tokens,
        config_admin=control.config_admin,
        loggers=control.loggers,
        cache=core.cache,
        controller=control.controller,
        receiver=control.receiver,
        replica_admin=ReplicaAdmin(control.controller),
        topic_creator=control.topic_creator,
        producer_ids=coordination.producer_ids,
        producer_id_limit=ProducerIdLimit(core.dynamic.now, platform.clock.monotonic),
        replicas=replication.replicas,
        quotas=replication.quotas,
        client_quotas=core.quotas,
        logs=replication.logs,
        sessions=FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots,
            lambda: platform.random.randrange(1, 2**31),
            max_partitions=config.max_incremental_fetch_session_cache_partitions,
        ),
        groups=coordination.groups,
        transactions=coordination.transactions,
        clock=platform.clock,
        random=platform.random,
        slicer=core.slicer,
        offload=platform.offload,
        metrics=core.metrics,
        acls=core.acls,
        gate=_gate(core),
        forwarder=Forwarder(control.controller_client) if config.in_cluster else None,
    )


def _gate(core: Core) -> Gate | None:
    """Return the gate before all handlers; None without an authorizer."""
    config = core.config
    if core.acls is None:
        return None
    super_users = parse_super_users(config.super_users)
    policy = Policy(super_users, config.allow_everyone_if_no_acl_found)
    return Gate(Authorizer(core.acls, policy, LoopTimers()), core.cache)
