"""A whole broker: the only place where its parts are made and put together.

    doors -> store -> logs -> replicas -> cluster and controller -> handlers -> listeners

Nothing is served before the controller has told this broker what it leads: the first Metadata
answer is already true.
"""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

from barnabas.broker import gauges
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.internal_topics import internal_topics
from barnabas.broker.controller.receiver import ControlReceiver
from barnabas.broker.controller.topic_admin import Defaults
from barnabas.broker.controller.topic_creator import TopicCreator
from barnabas.broker.coordination.groups import GroupCoordination
from barnabas.broker.coordination.transactions import TransactionCoordination
from barnabas.broker.doors import Doors, real_doors
from barnabas.broker.maintenance import CleanerChore, ConnectionChore, LogChores
from barnabas.broker.metadata.addresses import advertised_endpoints, bootstrap_address
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.cluster import (
    announce_log_dir_failure,
    partition_exists,
    prepare_cluster,
    register_broker,
)
from barnabas.broker.metadata.config_admin import ConfigAdmin
from barnabas.broker.metadata.configs import Configs
from barnabas.broker.metadata.embedded import open_store
from barnabas.broker.metadata.features import Features
from barnabas.broker.metadata.producer_ids import ProducerIdBlocks
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.broker.observability.logging import LoggerLevels, get_logger
from barnabas.broker.observability.loop_lag import LoopLag
from barnabas.broker.observability.process import observe_process
from barnabas.broker.replication.fetch_session import FetchSessionCache
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.rounds import Rounds
from barnabas.broker.routes import Parts, all_routes
from barnabas.broker.server.admission import Admission
from barnabas.broker.server.budget import RequestMemory
from barnabas.broker.server.connection import Shared
from barnabas.broker.server.dispatch import Dispatcher
from barnabas.broker.server.listener import Listener, make_listeners
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.listeners import parse_host_port
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.types import uuid_text
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.errors import LogDirFailed
from barnabas.storage.files import make_dirs
from barnabas.storage.log_manager import BrokerIdentity, LogManager
from barnabas.storage.meta_properties import require_cluster

METADATA_DIRECTORY = "metadata"
"""Of the embedded store, in the first log directory; no partition can have this name."""
DRAIN_SECONDS = 5.0
"""How long a stopping broker waits for its peers to take their answers."""
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

    async def stop(self) -> None:
        """Answer what was begun, make everything durable, and leave a clean shutdown behind."""
        self._ready = False
        await self._exits.aclose()
        _log.info("broker stopped", broker=self._config.broker_id)

    async def _start(self) -> None:
        """Step by step; each step says how it is undone, last step first."""
        await self._open_store()
        # Before the logs are opened: a directory may fail then, and replicas are told.
        self._make_replicas()
        await self._open_logs()
        self._make_server()
        for listener in self._listeners.values():
            await listener.bind(self._doors.network)
            self._exits.callback(listener.stop_accepting)
        await self._join_cluster()
        self._start_chores()
        await self._start_endpoint()
        for listener in self._listeners.values():
            await listener.serve()
        self._exits.push_async_callback(self._stop_serving)

    async def _open_store(self) -> None:
        doors, config = self._doors, self._config
        self._exits.callback(doors.offload.close)
        self._paths = [
            os.path.join(doors.working_directory, path) for path in config.data_directories
        ]
        make_dirs(doors.files, self._paths[0])
        directory = os.path.join(self._paths[0], METADATA_DIRECTORY)
        self._store = await open_store(doors.files, directory, doors.offload)
        self._exits.push_async_callback(self._store.close)
        self._session = self._store.session()
        new_id = self._cluster_id or uuid_text(doors.random.getrandbits(128).to_bytes(16, "big"))
        found = await prepare_cluster(self._session, new_id)
        self._cluster_id = require_cluster(found, self._cluster_id, self._paths[0])
        self._configs = Configs(self._session, self._dynamic, config.broker_id)
        await self._configs.start(lambda: self._soon(self._configs.catch_up()))
        self._exits.callback(self._configs.stop)
        self._features = Features(self._session)
        self._exits.callback(self._features.stop)
        await self._features.start(lambda: self._soon(self._features.catch_up()))

    async def _open_logs(self) -> None:
        offload = self._doors.offload
        await self._configs.load_topics(await self._configs.names("topics"))
        self._exits.callback(self._logs.abandon)
        await offload.submit("logs", lambda: self._logs.open(self._configs.topic))
        self._exits.push_async_callback(offload.submit, "logs", self._logs.close)

    def _make_replicas(self) -> None:
        doors, config = self._doors, self._config
        loop = asyncio.get_running_loop()

        def tell(error: LogDirFailed) -> None:
            # From whichever call failed, in the middle of whatever it did.
            loop.call_soon_threadsafe(self._log_dir_failed, error)

        self._logs = LogManager(
            doors.files,
            self._paths,
            BrokerIdentity(config.broker_id, self._cluster_id, doors.boot_id),
            now_ms=doors.clock.now_ms,
            rng=doors.random,
            producer_expiration_ms=self.config.producer_id_expiration_ms,
            on_failure=tell,
        )
        self._cleaner = LogCleaner(doors.files, doors.cleaner.clean)
        self._cache = MetadataCache(self._cluster_id)
        self._flusher = Flusher(doors.offload, doors.clock, self._metrics.logs.flush_time_ms.cell())
        self._replicas = ReplicaManager(
            self._config.broker_id,
            logs=self._logs,
            cache=self._cache,
            flusher=self._flusher,
            offload=doors.offload,
            topic_config=self._configs.topic,
            metrics=self._metrics.topics,
        )
        self._configs.follow_topics(self._replicas.configure)
        self._receiver = ControlReceiver(self._replicas, self._cache, self._configs)
        self._loggers = LoggerLevels()
        self._config_admin = ConfigAdmin(
            self._configs, self._cache, config.broker_id, self._loggers
        )
        self._controller = Controller(
            self._session,
            self._config.broker_id,
            clock=doors.clock,
            random=doors.random,
            connect=lambda _broker: self._receiver,
            unclean=lambda topic: self._configs.topic(topic).unclean_leader_election_enable,
            defaults=lambda: Defaults(
                self.config.num_partitions, self.config.default_replication_factor
            ),
            check_configs=self._config_admin.check_new_topic,
            on_fatal=self._fatal,
        )
        self._make_coordinators()
        gauges.read_replicas(self._metrics, self._replicas, self._logs)
        gauges.read_cluster(self._metrics, self._controller, self._cache)

    def _make_coordinators(self) -> None:
        doors, metrics = self._doors, self._metrics
        self._groups = GroupCoordination(
            self._config,
            cache=self._cache,
            replicas=self._replicas,
            clock=doors.clock,
            random=doors.random,
            offload=doors.offload,
        )
        self._producer_ids = ProducerIdBlocks(self._session, self._config.broker_id)
        self._transactions = TransactionCoordination(
            lambda: self.config,
            cache=self._cache,
            replicas=self._replicas,
            groups=self._groups.runtime,
            producer_ids=self._producer_ids,
            transaction_version=lambda: self._features.transaction_version,
            partition_exists=lambda *place: partition_exists(self._session, *place),
            clock=doors.clock,
            offload=doors.offload,
            metrics=metrics.transactions,
        )
        gauges.read_groups(metrics.groups, self._groups, self._replicas)
        gauges.read_transactions(metrics.transactions, self._transactions, self._replicas)

    def _make_server(self) -> None:
        doors, config, metrics = self._doors, self._config, self._metrics.requests
        parts = Parts(
            broker_id=config.broker_id,
            dynamic=self._dynamic,
            configs=self._configs,
            features=self._features,
            config_admin=self._config_admin,
            loggers=self._loggers,
            cache=self._cache,
            controller=self._controller,
            topic_creator=TopicCreator(
                self._controller, self._cache, internal_topics(lambda: self.config)
            ),
            producer_ids=self._producer_ids,
            replicas=self._replicas,
            logs=self._logs,
            sessions=FetchSessionCache(
                config.max_incremental_fetch_session_cache_slots,
                lambda: doors.random.randrange(1, 2**31),
            ),
            groups=self._groups.coordinator,
            transactions=self._transactions,
            clock=doors.clock,
            offload=doors.offload,
        )
        self._memory = RequestMemory(config.queued_max_request_bytes)
        shared = Shared(
            dispatcher=Dispatcher(all_routes(parts), clock=doors.clock, metrics=metrics),
            offload=doors.offload,
            memory=self._memory,
            max_request_bytes=config.socket_request_max_bytes,
        )
        admission = Admission(self.config)
        self._dynamic.follow(admission.limit)
        self._listeners = make_listeners(
            config, shared=shared, admission=admission, clock=doors.clock, metrics=metrics
        )
        gauges.read_server(self._metrics, list(self._listeners.values()), self._memory)

    async def _join_cluster(self) -> None:
        """Register, stand for controller, and wait until this broker knows what it leads."""
        known = asyncio.Event()
        self._cache.on_change(known.set)
        config = self._config
        at = advertised_endpoints(config, self._doors.hostname, self.ports)
        features = self._features.supported
        info = BrokerInfo(config.broker_id, at, config.broker_rack, features=features)
        broker = await register_broker(self._session, info, self._doors.clock.now_ms())
        self._receiver.broker_epoch = broker.epoch
        self._exits.push_async_callback(self._controller.stop)
        await self._controller.start()
        while not self._cache.ready:
            known.clear()
            await known.wait()
        self._replicas.set_strays_aside()

    def _start_chores(self) -> None:
        doors, rounds = self._doors, Rounds()
        self._groups.schedule(rounds)
        self._transactions.schedule(rounds)
        logs, offload, clock = self._logs, doors.offload, doors.clock
        config, passed = self._dynamic.now, self._metrics.transactions.passed_by_retention.cell()
        for chore in (
            LogChores(logs, self._replicas, self._flusher, offload, clock, config, passed),
            CleanerChore(self._cleaner, logs, self._replicas, offload, clock, config),
            ConnectionChore(
                list(self._listeners.values()),
                self._memory,
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

    async def _stop_serving(self) -> None:
        """Answer what was begun, and let everybody go."""
        for listener in self._listeners.values():
            listener.stop_accepting()
        await self._flusher.idle()
        self._replicas.resign_all()
        await self._groups.close()
        await self._transactions.close()
        for listener in self._listeners.values():
            await listener.drained(DRAIN_SECONDS)

    # -- failures --------------------------------------------------------------------------------

    def _fatal(self, error: BaseException) -> None:
        _log.critical("broker cannot go on", exc_info=error)
        self.failed.set()

    def _log_dir_failed(self, error: LogDirFailed) -> None:
        self._replicas.log_dir_failed(error.log_dir)
        if not self._logs.online_dirs:
            self._fatal(error)
            return
        self._soon(announce_log_dir_failure(self._session, self._config.broker_id))

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what nobody waits for; its failure is the broker's."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal(error)
