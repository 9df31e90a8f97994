"""The assembly of the logs and the replication parts of a broker."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.core import Core
from barnabas.broker.replication.descriptors import Descriptors
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.follower.fetcher import FetcherContext
from barnabas.broker.replication.follower.fetcher_manager import FetcherManager
from barnabas.broker.replication.leader.isr_manager import IsrManager
from barnabas.broker.replication.log_dir_moves import LogDirMoves
from barnabas.broker.replication.quota import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.storage.cleaning.cleaner import LogCleaner
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.opening.dir_marks import BrokerIdentity
from barnabas.storage.opening.log_manager import LogManager


class Replication(NamedTuple):
    """The parts of a broker that store and replicate records."""

    logs: LogManager
    cleaner: LogCleaner
    flusher: Flusher
    replicas: ReplicaManager
    fetchers: FetcherManager
    quotas: ReplicationQuotas
    isr_manager: IsrManager
    descriptors: Descriptors


def make_replication(
    core: Core,
    directories: Sequence[str],
    log_dir_failed: Callable[[LogDirFailed], None],
    ran_short: Callable[[OSError], None],
) -> Replication:
    """Build the parts. `log_dir_failed`, and `ran_short` of file descriptors, are called in the
    thread of the call that failed."""
    platform, metrics = core.platform, core.metrics
    logs = LogManager(
        platform.files,
        directories,
        BrokerIdentity(core.broker_id, core.cache.cluster_id, platform.boot_id),
        now_ms=platform.clock.now_ms,
        rng=platform.random,
        producer_expiration_ms=lambda: core.config.producer_id_expiration_ms,
        on_failure=log_dir_failed,
        on_shortage=ran_short,
        explain=not core.config.fast_paths_enable,
    )
    flusher = Flusher(platform.offload, platform.clock, metrics.logs.flush_time_ms.cell())
    quotas = ReplicationQuotas(core.broker_id, core.dynamic.now, core.configs.topic)
    fetchers = _make_fetchers(core, quotas)
    isr_manager = IsrManager(
        core.broker_id,
        cache=core.cache,
        clock=platform.clock,
        max_lag_ms=lambda: core.config.replica_lag_time_max_ms,
        metrics=metrics.replicas,
    )
    cleaner = LogCleaner(platform.files, platform.cleaner.clean)
    replicas = ReplicaManager(
        core.broker_id,
        logs=logs,
        cache=core.cache,
        flusher=flusher,
        offload=platform.offload,
        topic_config=core.configs.topic,
        metrics=metrics.topics,
        isr_manager=isr_manager,
        fetchers=fetchers,
        moves=LogDirMoves(
            logs,
            offload=platform.offload,
            clock=platform.clock,
            config=core.dynamic.now,
            moved=cleaner.moved,
        ),
        slicer=core.slicer,
    )
    descriptors = Descriptors(platform.files.most_open, platform.clock.monotonic)
    descriptors.begin(replicas)
    core.configs.follow_topics(replicas.configure)
    made = Replication(logs, cleaner, flusher, replicas, fetchers, quotas, isr_manager, descriptors)
    _read_gauges(core, made)
    return made


def _make_fetchers(core: Core, quotas: ReplicationQuotas) -> FetcherManager:
    context = FetcherContext(
        core.broker_id,
        config=core.dynamic.now,
        clock=core.platform.clock,
        offload=core.platform.offload,
        quota=quotas.follower,
        metrics=core.metrics.fetchers,
        broker_epoch=lambda: core.membership.broker_epoch,
    )
    fetchers = FetcherManager(core.peers.to, context)
    core.dynamic.subscribe(lambda _: core.spawn(fetchers.resize()))
    return fetchers


def _read_gauges(core: Core, made: Replication) -> None:
    metrics = core.metrics
    gauges.read_replicas(metrics, made.replicas, made.logs)
    gauges.read_partitions(metrics.partitions, made.replicas)
    gauges.read_fetchers(metrics.fetchers, made.fetchers)
    gauges.read_quotas(metrics.replication, made.quotas, core.platform.clock)
