"""The assembly of the listeners: those for clients, and the inter-broker listener."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.control import Control
from barnabas.broker.assembly.coordination import Coordination
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import Replication
from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.replication.leader.fetch_session import FetchSessionCache
from barnabas.broker.routes import BrokerParts, client_routes, inter_broker_routes
from barnabas.broker.server.budget import RequestMemory, UnreadAnswers
from barnabas.broker.server.connection import SharedResources, ignore_departure
from barnabas.broker.server.connection_limits import ConnectionLimits
from barnabas.broker.server.dispatch import Dispatcher
from barnabas.broker.server.listener import Listener, make_listeners
from barnabas.broker.server.pause_guard import PauseGuard
from barnabas.protocol.frame import SpareBuffers

if TYPE_CHECKING:
    from barnabas.broker.server.sasl import ListenerSasl

_UNNOTICED_PAUSE = 1 / 3
"""The part of the session timeout that a pause may take: the session survives it."""


class Server(NamedTuple):
    """The listeners and what they share."""

    listeners: dict[str, Listener]
    memory: RequestMemory
    limits: ConnectionLimits
    guard: PauseGuard


def make_server(
    core: Core, replication: Replication, control: Control, coordination: Coordination
) -> Server:
    """Make the listeners; they are not bound yet."""
    config, platform, metrics = core.config, core.platform, core.metrics
    parts = _parts(core, replication, control, coordination)
    memory, spares = RequestMemory(config.queued_max_request_bytes), SpareBuffers()
    unread = UnreadAnswers(config.queued_max_response_bytes)
    guard = PauseGuard(
        platform.clock,
        allowed=core.store.session_timeout * _UNNOTICED_PAUSE,
        recheck=core.membership.confirm_registration,
        soon=core.spawn,
    )

    def shared(*, inter_broker: bool) -> SharedResources:
        routes = inter_broker_routes(parts) if inter_broker else client_routes(parts)
        return SharedResources(
            dispatcher=Dispatcher(
                platform.around(routes, core.cache),
                clock=platform.clock,
                slicer=core.slicer,
                metrics=metrics.requests,
                inter_broker=inter_broker,
            ),
            offload=platform.offload,
            memory=memory,
            max_request_bytes=config.socket_request_max_bytes,
            spares=spares,
            unread=unread,
            departed=replication.isr_manager.connection_closed
            if inter_broker
            else ignore_departure,
            guard=guard,
        )

    limits = ConnectionLimits(config)
    core.dynamic.subscribe(limits.limit)
    clients = shared(inter_broker=False)
    among_brokers = shared(inter_broker=True) if config.in_cluster else clients
    shared_by = {
        each.name: among_brokers if each == config.inter_broker_listener() else clients
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
    return Server(listeners, memory, limits, guard)


def _sasl(core: Core, shared: Mapping[str, SharedResources]) -> "dict[str, ListenerSasl]":
    """Return the SASL of the listeners that have it; raise ConfigError."""
    config = core.config
    names = [each.name for each in config.resolved_listeners() if each.has_sasl]
    if not names:
        return {}
    # Imported here: most brokers on a developer's machine start without it.
    from barnabas.broker.security.mechanisms import Mechanisms
    from barnabas.broker.server.sasl import ListenerSasl

    assert core.stand_ins is not None, "a broker with SASL reads them at its start"
    mechanisms = Mechanisms(
        config, core.platform.offload, core.platform.clock, core.scram_users, core.stand_ins
    )
    return {
        name: ListenerSasl(
            name,
            mechanisms.of(name),
            config,
            shared=shared[name],
            clock=core.platform.clock,
            metrics=core.metrics.requests,
        )
        for name in names
    }


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
        config_admin=control.config_admin,
        loggers=control.loggers,
        cache=core.cache,
        controller=control.controller,
        receiver=control.receiver,
        replica_admin=ReplicaAdmin(control.controller),
        topic_creator=control.topic_creator,
        producer_ids=coordination.producer_ids,
        replicas=replication.replicas,
        quotas=replication.quotas,
        logs=replication.logs,
        sessions=FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots,
            lambda: platform.random.randrange(1, 2**31),
            max_partitions=config.max_incremental_fetch_session_cache_partitions,
        ),
        groups=coordination.groups.coordinator,
        transactions=coordination.transactions,
        clock=platform.clock,
        slicer=core.slicer,
        offload=platform.offload,
        metrics=core.metrics,
        acls=None,
    )
