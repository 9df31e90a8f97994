"""A whole broker, from its start to its end; `assembly/` says what it is made of.

    doors -> store -> parts -> logs -> handlers and listeners -> cluster and controller

Nothing is served before the controller has told this broker what it leads: the first Metadata
answer is already true.
"""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from barnabas.broker.assembly.control import make_control
from barnabas.broker.assembly.coordination import make_coordination
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import make_replication
from barnabas.broker.assembly.server import make_server
from barnabas.broker.controller.balance import LeaderBalance
from barnabas.broker.doors import Doors, real_doors
from barnabas.broker.maintenance import CleanerChore, ConnectionChore, LogChores
from barnabas.broker.metadata.addresses import advertised_endpoints, bootstrap_address
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.cluster import (
    announce_log_dir_failure,
    prepare_cluster,
)
from barnabas.broker.metadata.configs import Configs
from barnabas.broker.metadata.features import Features
from barnabas.broker.metadata.membership import Membership
from barnabas.broker.metadata.znodes import BrokerInfo, Restart
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.observability.loop_lag import LoopLag
from barnabas.broker.observability.process import observe_process
from barnabas.broker.peers.peers import Peers
from barnabas.broker.rounds import Rounds
from barnabas.broker.server.listener import Listener
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.listeners import parse_host_port
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.types import uuid_text
from barnabas.storage.errors import LogDirFailed
from barnabas.storage.files import make_dirs
from barnabas.storage.meta_properties import require_cluster

DRAIN_SECONDS = 5.0
"""How long a stopping broker waits for its peers to take their answers."""
_CLOSERS = 8
"""Threads that wait for the disk at the end, so that its queue is never empty."""
_log = get_logger(__name__)


class Broker:
    """One broker on the running event loop. `start` and `stop` are each called once.

    A new cluster takes `cluster_id`, an old one must have it; an empty one is chosen by chance.
    """

    def __init__(
        self, config: BrokerConfig, *, doors: Doors | None = None, cluster_id: str = ""
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._doors = doors or real_doors(config)
        self._dynamic = DynamicConfig(config)
        self.registry = Registry()
        self._metrics = BrokerMetrics(self.registry)
        self._listeners: dict[str, Listener] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._exits = AsyncExitStack()
        self._ready = False
        self._hands_over = True
        self.failed = asyncio.Event()
        """Set when the broker cannot go on: whoever runs it should stop it and exit."""

    # -- what others ask -------------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        """What holds now, dynamic values included."""
        return self._dynamic.current

    @property
    def port(self) -> int:
        """The bound port of the first listener."""
        return next(iter(self._listeners.values())).port

    @property
    def ports(self) -> dict[str, int]:
        """The bound ports, by the names of their listeners."""
        return {name: listener.port for name, listener in self._listeners.items()}

    @property
    def connections(self) -> int:
        """Clients that are connected now."""
        return sum(listener.connections for listener in self._listeners.values())

    @property
    def bootstrap_servers(self) -> str:
        """What a client of the first listener takes as `bootstrap.servers`."""
        return str(bootstrap_address(self._config, self._doors.hostname, self.ports))

    def not_ready(self) -> Sequence[str]:
        """Why clients should stay away; empty where they need not."""
        if self.failed.is_set():
            return ["failed"]
        return [] if self._ready else ["starting or stopping"]

    # -- starting and stopping --------------------------------------------------------------------

    async def start(self) -> None:
        """Open what is on disk, join the cluster, and serve.

        Raises OSError where an address or a directory cannot be had, and the errors of what is on
        disk: another broker's, damaged metadata, a newer format.
        """
        for warning in self._config.warnings:
            _log.warning(warning)
        try:
            await self._start()
        except BaseException:
            await self._exits.aclose()
            raise
        self._ready = True
        _log.info("broker started", broker=self._config.broker_id, at=self.bootstrap_servers)

    async def stop(self, *, hand_over: bool = True) -> None:
        """Answer what was begun, make everything durable, and leave a clean shutdown behind.

        First others lead what it led, unless it is known that nobody could arrange that.
        """
        self._ready = False
        self._hands_over = hand_over
        await self._exits.aclose()
        _log.info("broker stopped", broker=self._config.broker_id)

    async def _start(self) -> None:
        """Step by step; each step says how it is undone, last step first."""
        await self._open_store()
        # Before the logs are opened: a directory may fail then, and replicas are told.
        self._make_parts()
        await self._open_logs()
        self._make_server()
        for listener in self._listeners.values():
            await listener.bind(self._doors.network)
            self._exits.callback(listener.stop_accepting)
        if self._config.in_cluster:
            # Over it the controller says what this broker leads; clients come after that.
            await self._listeners[self._config.inter_broker_listener().name].serve()
        await self._join_cluster()
        self._start_chores()
        await self._start_endpoint()
        for listener in self._listeners.values():
            await listener.serve()
        self._exits.callback(self._coordination.producer_ids.close)
        # Not sooner: clients need not wait for it.
        self._coordination.producer_ids.have_spare()
        self._exits.push_async_callback(self._stop_serving)
        self._exits.push_async_callback(self._hand_over)

    async def _open_store(self) -> None:
        doors, config = self._doors, self._config
        self._exits.callback(doors.offload.close)
        self._paths = [
            os.path.join(doors.working_directory, path) for path in config.data_directories
        ]
        make_dirs(doors.files, self._paths[0])
        opened = await doors.open_store(config, self._paths[0], doors.files, doors.offload)
        self._exits.push_async_callback(opened.close)
        store = opened.session
        new_id = self._cluster_id or uuid_text(doors.random.getrandbits(128).to_bytes(16, "big"))
        found = await prepare_cluster(store, new_id)
        self._cluster_id = require_cluster(found, self._cluster_id, self._paths[0])
        membership = Membership(
            store, clock=doors.clock, soon=self._soon, end_earlier=opened.end_earlier
        )
        configs = Configs(store, self._dynamic, config.broker_id)
        await configs.start(lambda: self._soon(membership.see_through(configs.catch_up)))
        self._exits.callback(configs.stop)
        features = Features(store)
        self._exits.callback(features.stop)
        await features.start(lambda: self._soon(membership.see_through(features.catch_up)))
        cache = MetadataCache(self._cluster_id)
        self._core = Core(
            doors=doors,
            dynamic=self._dynamic,
            metrics=self._metrics,
            store=store,
            membership=membership,
            configs=configs,
            features=features,
            cache=cache,
            peers=Peers(
                cache,
                doors.network,
                broker_id=config.broker_id,
                listener=config.inter_broker_listener().name,
            ),
            fatal=self._fatal,
            soon=self._soon,
        )

    def _make_parts(self) -> None:
        loop = asyncio.get_running_loop()

        def tell(error: LogDirFailed) -> None:
            # From whichever call failed, in the middle of whatever it did.
            loop.call_soon_threadsafe(self._log_dir_failed, error)

        core = self._core
        self._replication = make_replication(core, self._paths, tell)
        self._control = make_control(core, self._replication)
        self._coordination = make_coordination(core, self._replication, self._control)

    async def _open_logs(self) -> None:
        core, logs = self._core, self._replication.logs
        await core.configs.load_topics(await core.configs.names("topics"))
        self._exits.callback(logs.abandon)
        await core.doors.offload.submit("logs", lambda: logs.open(core.configs.topic))
        self._exits.push_async_callback(self._close_logs)

    async def _close_logs(self) -> None:
        submit, logs = self._core.doors.offload.submit, self._replication.logs
        of = min(len(logs.logs), _CLOSERS)
        shares = (submit(f"close {n}", partial(logs.close_share, n, of)) for n in range(of))
        await asyncio.gather(*shares)
        await submit("logs", logs.close)

    def _make_server(self) -> None:
        self._server = make_server(self._core, self._replication, self._control, self._coordination)
        self._listeners = self._server.listeners

    async def _join_cluster(self) -> None:
        """Register, stand for controller, and wait until this broker knows what it leads."""
        core, control, known = self._core, self._control, asyncio.Event()
        core.cache.on_change(known.set)
        config = self._config
        at = advertised_endpoints(config, self._doors.hostname, self.ports)
        info = BrokerInfo(
            config.broker_id,
            at,
            config.broker_rack,
            features=core.features.supported,
            restart=self._how_the_last_run_ended(),
        )
        core.membership.on_joined(control.receiver.joined)
        self._exits.callback(core.membership.leave)
        await core.membership.join(info)
        self._server.guard.start()
        self._exits.callback(self._server.guard.stop)
        self._exits.push_async_callback(control.controller.stop)
        await control.controller.start()
        while not core.cache.ready:
            known.clear()
            await known.wait()
        core.membership.settled()
        # Clients need not wait for it; a stop does, on the same lane.
        self._soon(self._settle_logs())

    async def _settle_logs(self) -> None:
        await self._core.doors.offload.submit("logs", self._replication.logs.settle)

    def _how_the_last_run_ended(self) -> Restart:
        last_run = self._replication.logs.last_run
        if last_run.clean:
            return Restart.CLEAN
        if last_run.is_new:
            return Restart.EMPTY
        return Restart.KILLED if last_run.same_boot else Restart.REBOOTED

    def _start_chores(self) -> None:
        doors, rounds = self._doors, Rounds()
        self._coordination.groups.schedule(rounds)
        self._coordination.transactions.schedule(rounds)
        LeaderBalance(self._control.controller, self._dynamic.now).schedule(rounds)
        replication = self._replication
        logs, flusher, replicas = replication.logs, replication.flusher, replication.replicas
        replication.in_sync.schedule(rounds)
        self._exits.push_async_callback(replication.in_sync.stop)
        offload, clock, config = doors.offload, doors.clock, self._dynamic.now
        passed = self._metrics.transactions.passed_by_retention.cell()
        for chore in (
            LogChores(logs, replicas, flusher, offload, clock, config, passed),
            CleanerChore(replication.cleaner, logs, replicas, offload, clock, config),
            ConnectionChore(
                list(self._listeners.values()),
                self._server.memory,
                self._metrics.requests.connections_expired.cell(),
                clock,
                config,
            ),
        ):
            chore.schedule(rounds)
        self._exits.push_async_callback(rounds.stop)
        self._exits.callback(doors.cleaner.stop)

    async def _start_endpoint(self) -> None:
        """Serve /metrics, where it is wanted; nothing is sampled for nobody."""
        if self._config.metrics_listener is None:
            return
        # Here and not above: a broker without the endpoint starts 40 ms sooner.
        from barnabas.broker.observability.http import HttpEndpoint

        observe_process(self._metrics.process)
        loop_lag = LoopLag(asyncio.get_running_loop(), self._metrics.loop_lag.cell())
        loop_lag.start()
        self._exits.callback(loop_lag.stop)
        endpoint = HttpEndpoint(self.registry, self.not_ready)
        at = parse_host_port("metrics.listener", self._config.metrics_listener)
        await endpoint.start(at.host, at.port)
        self._exits.push_async_callback(endpoint.stop)

    async def _hand_over(self) -> None:
        """Let others lead, while clients are still told whom to ask."""
        if self._hands_over:
            await self._control.handover.run(self._core.membership.broker_epoch)
        await self._control.reach.close()

    async def _stop_serving(self) -> None:
        """Answer what was begun, and let everybody go."""
        for listener in self._listeners.values():
            listener.stop_accepting()
        await self._replication.flusher.idle()
        await self._replication.fetchers.stop()
        await self._replication.replicas.moves.close()
        self._replication.replicas.resign_all()
        await self._coordination.groups.close()
        await self._coordination.transactions.close()
        for listener in self._listeners.values():
            await listener.drained(DRAIN_SECONDS)

    # -- failures --------------------------------------------------------------------------------

    def _fatal(self, error: BaseException) -> None:
        _log.critical("broker cannot go on", exc_info=error)
        self.failed.set()

    def _log_dir_failed(self, error: LogDirFailed) -> None:
        self._replication.replicas.log_dir_failed(error.log_dir)
        if not self._replication.logs.online_dirs:
            self._fatal(error)
            return
        announce = partial(announce_log_dir_failure, self._core.store, self._config.broker_id)
        self._soon(self._core.membership.see_through(announce))

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what nobody waits for; its failure is the broker's."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal(error)
