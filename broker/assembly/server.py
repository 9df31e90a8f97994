"""The listeners, and what stands behind each: clients and brokers are not served the same."""

from typing import NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.control import Control
from barnabas.broker.assembly.coordination import Coordination
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import Replication
from barnabas.broker.replication.fetch_session import FetchSessionCache
from barnabas.broker.routes import Parts, client_routes, inter_broker_routes
from barnabas.broker.server.admission import Admission
from barnabas.broker.server.budget import RequestMemory
from barnabas.broker.server.connection import Shared, nobody
from barnabas.broker.server.dispatch import Dispatcher
from barnabas.broker.server.listener import Listener, make_listeners
from barnabas.broker.server.pause_guard import PauseGuard
from barnabas.protocol.frame import SpareBuffers

_UNNOTICED_PAUSE = 1 / 3
"""Of the session: whoever is in touch with the store keeps its session through that."""


class Server(NamedTuple):
    """Where requests come in."""

    listeners: dict[str, Listener]
    memory: RequestMemory
    guard: PauseGuard


def make_server(
    core: Core, replication: Replication, control: Control, coordination: Coordination
) -> Server:
    """None of the listeners is bound yet."""
    config, doors, metrics = core.config, core.doors, core.metrics
    parts = _parts(core, replication, control, coordination)
    memory, spares = RequestMemory(config.queued_max_request_bytes), SpareBuffers()
    guard = PauseGuard(
        doors.clock,
        allowed=core.store.session_timeout * _UNNOTICED_PAUSE,
        recheck=core.membership.after_pause,
        soon=core.soon,
    )

    def shared(*, inter_broker: bool) -> Shared:
        routes = inter_broker_routes(parts) if inter_broker else client_routes(parts)
        return Shared(
            dispatcher=Dispatcher(
                doors.around(routes, core.cache),
                clock=doors.clock,
                metrics=metrics.requests,
                inter_broker=inter_broker,
            ),
            offload=doors.offload,
            memory=memory,
            max_request_bytes=config.socket_request_max_bytes,
            spares=spares,
            departed=replication.in_sync.connection_closed if inter_broker else nobody,
            guard=guard,
        )

    admission = Admission(config)
    core.dynamic.follow(admission.limit)
    clients = shared(inter_broker=False)
    among_brokers = shared(inter_broker=True) if config.in_cluster else clients
    listeners = make_listeners(
        config,
        shared={
            each.name: among_brokers if each == config.inter_broker_listener() else clients
            for each in config.resolved_listeners()
        },
        admission=admission,
        clock=doors.clock,
        metrics=metrics.requests,
    )
    gauges.read_server(metrics, list(listeners.values()), memory)
    return Server(listeners, memory, guard)


def _parts(
    core: Core, replication: Replication, control: Control, coordination: Coordination
) -> Parts:
    doors, config = core.doors, core.config
    return Parts(
        broker_id=core.broker_id,
        dynamic=core.dynamic,
        configs=core.configs,
        features=core.features,
        config_admin=control.config_admin,
        loggers=control.loggers,
        cache=core.cache,
        controller=control.controller,
        receiver=control.receiver,
        topic_creator=control.topic_creator,
        producer_ids=coordination.producer_ids,
        replicas=replication.replicas,
        quotas=replication.quotas,
        logs=replication.logs,
        sessions=FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots,
            lambda: doors.random.randrange(1, 2**31),
        ),
        groups=coordination.groups.coordinator,
        transactions=coordination.transactions,
        clock=doors.clock,
        offload=doors.offload,
        metrics=core.metrics,
    )
