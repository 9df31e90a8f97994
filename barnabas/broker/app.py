"""The broker, from start to stop; `assembly/` creates its parts.

    platform -> store -> parts -> logs -> handlers and listeners -> cluster and controller

Clients are served only after the controller has sent this broker its leaderships, so the first
Metadata response is already correct.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.assembly.control import make_control
from barnabas.broker.assembly.coordination import make_coordination
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import make_replication
from barnabas.broker.assembly.server import make_server
from barnabas.broker.cluster.broker_epochs import BrokerEpochs
from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.features import Features
from barnabas.broker.cluster.membership import Membership
from barnabas.broker.cluster.peers import Peers
from barnabas.broker.cluster.registration import (
    advertised_endpoints,
    announce_log_dir_failure,
    bootstrap_address,
    prepare_cluster,
    stored_cluster_id,
)
from barnabas.broker.cluster.stored_passwords import StoredPasswords
from barnabas.broker.cluster.stored_quotas import StoredQuotas
from barnabas.broker.cluster.znodes import BrokerInfo, Restart
from barnabas.broker.controller.replica_admin import LeaderBalance
from barnabas.broker.gauges import LoopLag, observe_process
from barnabas.broker.groups.configs import GroupConfigs
from barnabas.broker.loop.collector import Collector
from barnabas.broker.loop.periodic_tasks import PeriodicTasks
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.maintenance import (
    CertificateTasks,
    CleanerTask,
    ConnectionTasks,
    LogTasks,
    SaslTasks,
    SpaceTask,
)
from barnabas.broker.observability.events import BROKER_STARTED, BROKER_STOPPING, EventLog
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.platform import Platform, system_platform
from barnabas.broker.routes import import_handlers
from barnabas.broker.security.cluster_acls import OBJECTS_OF_A_RULE, ClusterAcls
from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.broker.security.scram_users import ScramUsers, stored_secret
from barnabas.broker.server.limits.quotas import ClientQuotas, Periods
from barnabas.broker.server.listener import ServedListener
from barnabas.broker.server.network import bind_addresses
from barnabas.broker.server.tls import Certificates
from barnabas.broker.store.metadata_store import MetadataStore
from barnabas.broker.store.opening import OpenedStore
from barnabas.config.broker import BrokerConfig, Exposure
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.key import ConfigError
from barnabas.config.listeners import parse_host_port
from barnabas.config.sasl_keys import SaslKeys, TokenKeys
from barnabas.metrics.catalogue import PARTITION, BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.late_import import ReleaseReplaced
from barnabas.protocol.types import uuid_text
from barnabas.security.sasl.credentials import StandIns
from barnabas.security.tls import client_tls
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.files.files import make_dirs
from barnabas.storage.opening.meta_properties import (
    MetaPropertiesError,
    read_meta,
    require_cluster,
)

if TYPE_CHECKING:
    from barnabas.client.connection import Ask, Connect, Login

DRAIN_SECONDS = 5.0
"""Seconds that a stopping broker waits for its clients to receive their responses."""
_HANDLERS_AFTER_S = 1.0
"""Seconds after the start in which only the handlers of requests are imported."""
_CLOSERS = 8
"""Threads that close logs when the broker stops, enough to keep the disk's queue full."""
_log = get_logger(__name__)


class Broker:
    """One broker on the running event loop. `start` and `stop` are each called once.

    A new cluster gets `cluster_id`, or a random one if it is empty; an existing cluster must have
    it.
    """

    def __init__(
        self, config: BrokerConfig, *, platform: Platform | None = None, cluster_id: str = ""
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._platform = platform or system_platform(config)
        self._events = self._platform.events or EventLog(config.broker_id, self._platform.clock)
        self._dynamic = DynamicConfig(config)
        self.registry = Registry()
        self._metrics = BrokerMetrics(self.registry)
        self._listeners: dict[str, ServedListener] = {}
        self._certificates: list[Certificates] = []
        self._checks: list[Callable[[BrokerConfig], object]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._exits = AsyncExitStack()
        self._ready = False
        self._hands_over = True
        self.failed = asyncio.Event()
        """Set when the broker cannot continue: its owner should stop it and exit."""

    # -- state ------------------------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        """The current configuration, dynamic values included."""
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
        """The number of connected clients."""
        return sum(listener.connections for listener in self._listeners.values())

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` value for clients of the first listener."""
        return str(bootstrap_address(self._config, self._platform.hostname, self.ports))

    def not_ready(self) -> Sequence[str]:
        """Return the reasons why clients should not connect; empty if they may."""
        if self.failed.is_set():
            return ["failed"]
        return [] if self._ready else ["starting or stopping"]

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and the logs, join the cluster, and serve clients.

        Raises OSError if an address or a directory is unavailable, and errors of the data
        directories: they belong to another broker, their metadata are damaged, or their format is
        newer.
        """
        for warning in self._config.warnings:
            _log.warning(warning)
        for exposure in self._config.exposures():
            self._warn_of(exposure)
        try:
            await self._start()
        except BaseException:
            await self._exits.aclose()
            raise
        self._ready = True
        last_run = self._how_the_last_run_ended().value
        at = self.bootstrap_servers
        self._events.add(
            _log, BROKER_STARTED, broker=self._config.broker_id, at=at, last_run=last_run
        )

    @property
    def has_certificates(self) -> bool:
        """Whether a listener or the connections to other brokers use TLS."""
        return bool(self._certificates)

    def reload_certificates(self, *, unchanged_too: bool = True) -> None:
        """Begin to read key stores and trust stores again; new connections will use them."""
        if self._certificates:
            self._spawn(self._certificate_tasks.reload(unchanged_too=unchanged_too))

    def rule_collector(self) -> None:
        """Take over the garbage collector of a process that runs nothing else."""
        collector = Collector(self._core.slicer)
        collector.start()
        acls = self._core.acls
        if acls is not None:
            acls.loaded = lambda rules: collector.note(OBJECTS_OF_A_RULE * rules)
        self._exits.callback(collector.stop)

    async def stop(self, *, hand_over: bool = True) -> None:
        """Finish requests in progress, flush everything, and write the mark of a clean shutdown.

        First move leaderships to other brokers, unless the caller knows that no controller can do
        so.
        """
        self._events.add(_log, BROKER_STOPPING, broker=self._config.broker_id)
        self._ready = False
        self._hands_over = hand_over
        await self._exits.aclose()
        _log.info("broker stopped", broker=self._config.broker_id)

    async def _start(self) -> None:
        """Start the parts in order; each registers its stop function, and they run in reverse
        order."""
        await self._make_core(await self._open_store())
        # Before the logs are opened: a directory may fail then, and the replica manager must know.
        self._make_parts()
        await self._open_logs()
        self._make_server()
        for listener in self._listeners.values():
            await listener.bind(self._platform.network)
            self._exits.callback(listener.stop_accepting)
        if self._config.in_cluster:
            self._announce()
            # The controller sends leaderships over one of these; clients may connect after that.
            for name in self._config.broker_listeners():
                await self._listeners[name].serve()
        await self._join_cluster()
        self._start_periodic_tasks()
        await self._start_endpoint()
        for listener in self._listeners.values():
            await listener.serve()
        self._exits.callback(self._coordination.producer_ids.close)
        # Last, because clients need not wait for it.
        self._coordination.producer_ids.have_spare()
        loop = asyncio.get_running_loop()
        late = loop.call_later(_HANDLERS_AFTER_S, lambda: self._spawn(self._import_handlers()))
        self._exits.callback(late.cancel)
        self._exits.push_async_callback(self._stop_serving)
        self._exits.push_async_callback(self._hand_over)

    async def _import_handlers(self) -> None:
        """Import what no request has needed yet, before an upgrade can replace it."""
        try:
            await self._core.slicer.run(import_handlers())
        except (ImportError, ReleaseReplaced) as error:
            _log.error("handlers not imported: restart this broker", reason=str(error))

    def _announce(self) -> None:
        """Listen at a Unix socket for brokers of this host, unless they must show who they are."""
        between = self._config.inter_broker_listener()
        if between.has_tls or between.has_sasl or self._core.acls is not None:
            return
        at = advertised_endpoints(self._config, self._platform.hostname, self.ports)
        for each in at:
            if each.listener == between.name:
                self._listeners[each.listener].announce(each.host, each.port)

    def _warn_of(self, exposure: Exposure) -> None:
        _log.warning(exposure.text)
        self._metrics.requests.exposures.cell(exposure.kind, exposure.listener).value = 1

    async def _open_store(self) -> OpenedStore:
        """Create the first log directory, and open the metadata store."""
        platform, config = self._platform, self._config
        self._exits.callback(platform.offload.close)
        self._paths = [
            os.path.join(platform.working_directory, path) for path in config.data_directories
        ]
        make_dirs(platform.files, self._paths[0])
        opened = await platform.open_store(config, self._paths[0], platform.files, platform.offload)
        self._exits.push_async_callback(opened.close)
        if paths := await opened.open_nodes():
            self._warn_of(Exposure.of_open_nodes(paths))
        return opened

    async def _make_core(self, opened: OpenedStore) -> None:
        """Load what the metadata store has of this cluster, and follow its changes."""
        platform, config = self._platform, self._config
        store = opened.session
        new_id = self._cluster_id or uuid_text(platform.random.getrandbits(128).to_bytes(16, "big"))
        await self._refuse_emptied(store)
        found = await prepare_cluster(store, new_id)
        self._cluster_id = require_cluster(found, self._cluster_id, self._paths[0])
        membership = Membership(
            store,
            cluster_id=self._cluster_id,
            clock=platform.clock,
            events=self._events,
            spawn=self._spawn,
            end_earlier=opened.end_earlier,
        )
        configs = self._make_configs(store)
        await configs.start(
            lambda: self._spawn(membership.retry_while_unavailable(configs.catch_up))
        )
        self._exits.callback(configs.stop)
        scram_users = ScramUsers(configs)
        await scram_users.start()
        features = Features(store)
        self._exits.callback(features.stop)
        await features.start(
            lambda: self._spawn(membership.retry_while_unavailable(features.catch_up))
        )
        cache = MetadataCache(self._cluster_id)
        slicer = Slicer(platform.clock.monotonic)
        self._core = Core(
            platform=platform,
            events=self._events,
            dynamic=self._dynamic,
            metrics=self._metrics,
            store=store,
            membership=membership,
            broker_epochs=BrokerEpochs(store, self._spawn),
            configs=configs,
            features=features,
            scram_users=scram_users,
            group_configs=await self._follow_groups(configs),
            tokens=await self._follow_tokens(store, membership),
            quotas=await self._follow_quotas(configs),
            stand_ins=await self._make_stand_ins(store),
            acls=await self._follow_acls(store, membership, slicer),
            cache=cache,
            peers=Peers(
                cache,
                self._connect_to_brokers(),
                broker_id=config.broker_id,
                listener=config.inter_broker_listener().name,
            ),
            checks=self._checks,
            slicer=slicer,
            fatal=self._fatal,
            spawn=self._spawn,
        )

    async def _refuse_emptied(self, store: MetadataStore) -> None:
        """Refuse a store without a cluster if the log directory is of one, before the store gets
        another one. Raises MetaPropertiesError."""
        if self._cluster_id:
            return
        with suppress(OSError):
            meta = read_meta(self._platform.files, self._paths[0])
            if meta is not None and await stored_cluster_id(store) is None:
                raise MetaPropertiesError(
                    f"the metadata store is empty, and {self._paths[0]} belongs to cluster "
                    f"{meta.cluster_id}: restore the data of the store, or check zookeeper.connect"
                )

    def _make_configs(self, store: MetadataStore) -> Configs:
        passwords = StoredPasswords(self._config, self._platform.offload)
        return Configs(store, self._dynamic, self._config.broker_id, passwords)

    async def _make_stand_ins(self, store: MetadataStore) -> StandIns | None:
        """Load the secret of stand-ins for unknown users; return None without SASL."""
        if not any(each.has_sasl for each in self._config.resolved_listeners()):
            return None
        new = self._platform.random.getrandbits(256).to_bytes(32, "big")
        return StandIns(await stored_secret(store, new))

    async def _follow_groups(self, configs: Configs) -> GroupConfigs:
        groups = GroupConfigs(configs)
        await groups.start()
        return groups

    async def _follow_quotas(self, configs: Configs) -> StoredQuotas:
        config = self._config
        periods = Periods(
            config.quota_window_num,
            config.quota_window_size_seconds,
            config.controller_quota_window_num,
            config.controller_quota_window_size_seconds,
        )
        limits = ClientQuotas(self._platform.clock.monotonic, periods, self._metrics.quotas)
        quotas = StoredQuotas(configs, limits)
        await quotas.start()
        return quotas

    async def _follow_acls(
        self, store: MetadataStore, membership: Membership, slicer: Slicer
    ) -> ClusterAcls | None:
        """Load the access control rules; return None without an authorizer."""
        if not self._config.authorizer_class_name:
            return None
        acls = ClusterAcls(store, slicer.turn)
        self._exits.callback(acls.stop)
        await acls.start(lambda: self._spawn(membership.retry_while_unavailable(acls.catch_up)))
        return acls

    async def _follow_tokens(
        self, store: MetadataStore, membership: Membership
    ) -> DelegationTokens | None:
        """Load the delegation tokens; return None if they are not enabled."""
        secret = self._config.delegation_token_secret_key
        if not secret:
            return None
        tokens = DelegationTokens(store, secret)
        self._exits.callback(tokens.stop)
        await tokens.start(lambda: self._spawn(membership.retry_while_unavailable(tokens.catch_up)))
        return tokens

    def _connect_to_brokers(self) -> "Connect":
        """Return the function that opens connections to other brokers."""
        listener, connect = self._config.inter_broker_listener(), self._platform.network.connect
        if not self._config.in_cluster:
            return connect
        if listener.has_tls:
            keys = self._config.tls_of(listener.name)
            own = Certificates(listener.name, keys, client_tls, self._platform.offload)
            self._certificates.append(own)
            connect = own.connect
        if listener.has_sasl:
            # Imported here: a broker without SASL starts faster without it.
            from barnabas.client.sasl import logged_in

            login = _OwnLogin(listener.name, self._dynamic.current)
            self._checks.append(login.made_of)
            self._dynamic.subscribe(login.change)
            return logged_in(connect, login)
        return connect

    def _make_parts(self) -> None:
        loop = asyncio.get_running_loop()

        def on_failure(error: LogDirFailed) -> None:
            # Called in any thread, in the middle of any operation.
            loop.call_soon_threadsafe(self._log_dir_failed, error)

        def on_shortage(error: OSError) -> None:
            loop.call_soon_threadsafe(self._replication.descriptors.run_short, error)

        core = self._core
        self._replication = make_replication(core, self._paths, on_failure, on_shortage)
        self._control = make_control(core, self._replication)
        self._coordination = make_coordination(core, self._replication, self._control)

    async def _open_logs(self) -> None:
        core, logs = self._core, self._replication.logs
        await core.configs.load_topics(await core.configs.names("topics"))
        self._exits.callback(logs.abandon)
        opening = core.platform.offload.submit("logs", lambda: logs.open(core.configs.topic))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread continues, and locks the directories.
            await asyncio.wait((opening,))
            raise
        self._exits.push_async_callback(self._close_logs)

    async def _close_logs(self) -> None:
        submit, logs = self._core.platform.offload.submit, self._replication.logs
        of = min(len(logs.logs), _CLOSERS)
        shares = (submit(f"close {n}", partial(logs.close_share, n, of)) for n in range(of))
        await asyncio.gather(*shares)
        await submit("logs", logs.close)

    def _make_server(self) -> None:
        self._server = make_server(self._core, self._replication, self._control, self._coordination)
        self._replication.descriptors.connections = lambda: self._server.limits.open
        self._listeners = self._server.listeners
        self._certificates += [
            each.tls.certificates for each in self._listeners.values() if each.tls is not None
        ]
        self._control.config_admin.certificates = self._certificates
        self._control.config_admin.checks = self._checks

    async def _join_cluster(self) -> None:
        """Register, take part in the controller election, and wait for the first full metadata."""
        core, control, known = self._core, self._control, asyncio.Event()
        core.cache.on_change(known.set)
        config = self._config
        at = advertised_endpoints(config, self._platform.hostname, self.ports)
        info = BrokerInfo(
            config.broker_id,
            at,
            config.broker_rack,
            features=core.features.supported,
            restart=self._how_the_last_run_ended(),
        )
        core.membership.on_registered(control.receiver.broker_registered)
        self._exits.callback(core.membership.leave)
        await core.membership.join(info)
        if config.in_cluster:
            core.broker_epochs.start()
            self._exits.callback(core.broker_epochs.stop)
        self._server.guard.start()
        self._exits.callback(self._server.guard.stop)
        self._exits.push_async_callback(control.controller.stop)
        await control.controller.start()
        while not core.cache.ready:
            known.clear()
            await known.wait()
        core.membership.forget_last_run()
        # Clients need not wait for it; a stop does, because both use the same queue of `Offload`.
        self._spawn(self._settle_logs())

    async def _settle_logs(self) -> None:
        await self._core.platform.offload.submit(
            "logs", self._replication.logs.acknowledge_last_run
        )

    def _how_the_last_run_ended(self) -> Restart:
        last_run = self._replication.logs.last_run
        if last_run.clean:
            return Restart.CLEAN
        if last_run.is_new:
            return Restart.EMPTY
        return Restart.KILLED if last_run.same_boot else Restart.REBOOTED

    def _start_periodic_tasks(self) -> None:
        platform, tasks = self._platform, PeriodicTasks()
        self._coordination.groups.schedule(tasks)
        if self._config.metrics_listener is not None:
            self._coordination.record_lags.schedule(tasks)
            SpaceTask(self._replication.logs, self._platform.offload, self._metrics.logs).schedule(
                tasks
            )
        self._coordination.transactions.schedule(tasks)
        LeaderBalance(self._control.controller, self._dynamic.now).schedule(tasks)
        replication = self._replication
        logs, flusher, replicas = replication.logs, replication.flusher, replication.replicas
        replication.isr_manager.schedule(tasks)
        self._exits.push_async_callback(replication.isr_manager.stop)
        offload, clock, config = platform.offload, platform.clock, self._dynamic.now
        passed = self._metrics.transactions.passed_by_retention.cell()
        self._certificate_tasks = CertificateTasks(self._certificates, clock, config)
        reload = partial(self.reload_certificates, unchanged_too=False)
        self._dynamic.subscribe(lambda _: reload())
        self._control.config_admin.reload_certificates = reload
        self._spawn(self._certificate_tasks.warn_of_expiry())
        controller, tokens_known = self._control.controller, self._core.tokens

        async def expire_tokens() -> None:
            if tokens_known is not None and controller.active:
                await tokens_known.delete_expired(clock.now_ms())

        if tokens_known is not None:
            tasks.every(
                "token expiry",
                lambda: config().delegation_token_expiry_check_interval_ms,
                expire_tokens,
            )
        sasl = SaslTasks(list(self._listeners.values()))
        self._spawn(sasl.begin())
        for task in (
            self._certificate_tasks,
            sasl,
            LogTasks(logs, replicas, flusher, offload, clock, config, passed),
            CleanerTask(replication.cleaner, logs, replicas, offload, clock, config),
            ConnectionTasks(
                list(self._listeners.values()),
                self._server.memories,
                self._server.limits,
                self._metrics.requests.connections_expired.cell(),
                clock,
                config,
                replication.descriptors.release_files,
            ),
        ):
            task.schedule(tasks)
        self._exits.push_async_callback(tasks.stop)
        self._exits.callback(platform.cleaner.stop)

    async def _start_endpoint(self) -> None:
        """Serve /metrics if it is configured; otherwise sample nothing."""
        config = self._config
        if config.metrics_listener is None:
            return
        # Imported here: a broker without the endpoint starts 40 ms sooner.
        from barnabas.broker.server.http import Access, HttpEndpoint

        at = parse_host_port("metrics.listener", config.metrics_listener)
        observe_process(self._metrics.process)
        if not config.metrics_partitions_enable:
            self.registry.leave_out(PARTITION)
        loop_lag = LoopLag(asyncio.get_running_loop(), self._metrics.loop_lag.cell())
        loop_lag.start()
        self._exits.callback(loop_lag.stop)
        access = Access(
            config.metrics_listener_certificate_file,
            config.metrics_listener_key_file,
            config.metrics_listener_token_file,
        )
        out_of_sync = partial(self._core.cache.out_of_sync, config.broker_id)
        endpoint = HttpEndpoint(
            self.registry, self.not_ready, out_of_sync, self._events.after, access
        )
        endpoint.start(await bind_addresses(at.host, at.port))
        self._exits.push_async_callback(endpoint.stop)

    async def _hand_over(self) -> None:
        """Move leaderships to other brokers while clients can still fetch metadata from this
        one."""
        if self._hands_over:
            await self._control.controlled_shutdown.run()
        await self._control.controller_client.close()

    async def _stop_serving(self) -> None:
        """Finish requests in progress and close the connections."""
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
        _log.critical("broker failed", exc_info=error)
        self.failed.set()

    def _log_dir_failed(self, error: LogDirFailed) -> None:
        self._replication.replicas.log_dir_failed(error.log_dir)
        if not self._replication.logs.online_dirs:
            self._fatal(error)
            return
        announce = partial(announce_log_dir_failure, self._core.store, self._config.broker_id)
        self._spawn(self._core.membership.retry_while_unavailable(announce))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in a new task; an error in it is fatal for the broker."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal(error)


class _OwnLogin:
    """The login of this broker to others, by the keys of its listener as they are now."""

    def __init__(self, listener: str, config: BrokerConfig) -> None:
        """Raises ConfigError."""
        self._listener = listener
        self._made_of = self._keys_of(config)
        self._login = self.made_of(config)

    async def __call__(self, ask: "Ask") -> float:
        return await self._login(ask)

    def change(self, config: BrokerConfig) -> None:
        """Use changed keys for further logins; those that give no login are refused."""
        keys = self._keys_of(config)
        if keys == self._made_of:
            return
        self._made_of = keys
        try:
            self._login = self.made_of(config)
        except ConfigError as error:
            _log.error("account of the broker refused", reason=str(error))

    def _keys_of(self, config: BrokerConfig) -> tuple[str, SaslKeys]:
        mechanism = config.sasl_mechanism_inter_broker_protocol
        return mechanism, config.sasl_of(self._listener, mechanism)

    def made_of(self, config: BrokerConfig) -> "Login":
        """Return the login by the keys of a configuration; raise ConfigError."""
        # Imported here: a broker without SASL starts faster without it.
        from barnabas.client.sasl import JAAS, MECHANISM, login_with

        mechanism, keys = self._keys_of(config)
        given = {name: getattr(keys, key.attribute) for name, key in TokenKeys.KEYS.items()}
        properties = {name: str(value) for name, value in given.items() if value is not None}
        if keys.sasl_jaas_config is not None or mechanism != "OAUTHBEARER":
            properties[JAAS] = keys.sasl_jaas_config or ""
        try:
            return login_with(properties | {MECHANISM: mechanism})
        except ConfigError as error:
            text = str(error)
            if text.startswith("sasl."):
                text = f"listener.name.{self._listener.lower()}.{mechanism.lower()}.{text}"
            raise ConfigError(f"Broker cannot authenticate to others: {text}") from None
