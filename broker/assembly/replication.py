"""Logs, and the replicas that they are of."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.core import Core
from barnabas.broker.replication.fetcher_manager import FetcherManager
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.in_sync_keeper import InSyncKeeper
from barnabas.broker.replication.log_dir_moves import LogDirMoves
from barnabas.broker.replication.means import Means
from barnabas.broker.replication.quota import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.dir_marks import BrokerIdentity
from barnabas.storage.errors import LogDirFailed
from barnabas.storage.log_manager import LogManager


class Replication(NamedTuple):
    """What holds the records of this broker."""

    logs: LogManager
    cleaner: LogCleaner
    flusher: Flusher
    replicas: ReplicaManager
    fetchers: FetcherManager
    quotas: ReplicationQuotas
    in_sync: InSyncKeeper


def make_replication(
    core: Core, directories: Sequence[str], log_dir_failed: Callable[[LogDirFailed], None]
) -> Replication:
    """`log_dir_failed` is called from whichever call failed, in whichever thread."""
    doors, metrics = core.doors, core.metrics
    logs = LogManager(
        doors.files,
        directories,
        BrokerIdentity(core.broker_id, core.cache.cluster_id, doors.boot_id),
        now_ms=doors.clock.now_ms,
        rng=doors.random,
        producer_expiration_ms=lambda: core.config.producer_id_expiration_ms,
        on_failure=log_dir_failed,
    )
    flusher = Flusher(doors.offload, doors.clock, metrics.logs.flush_time_ms.cell())
    quotas = ReplicationQuotas(core.broker_id, core.dynamic.now, core.configs.topic)
    means = Means(
        core.broker_id,
        config=core.dynamic.now,
        clock=doors.clock,
        offload=doors.offload,
        quota=quotas.follower,
        metrics=metrics.fetchers,
        broker_epoch=lambda: core.membership.broker_epoch,
    )
    fetchers = FetcherManager(core.peers.to, means)
    core.dynamic.follow(lambda _: core.soon(fetchers.resize()))
    in_sync = InSyncKeeper(
        core.broker_id,
        cache=core.cache,
        clock=doors.clock,
        max_lag_ms=lambda: core.config.replica_lag_time_max_ms,
        metrics=metrics.replicas,
    )
    cleaner = LogCleaner(doors.files, doors.cleaner.clean)
    replicas = ReplicaManager(
        core.broker_id,
        logs=logs,
        cache=core.cache,
        flusher=flusher,
        offload=doors.offload,
        topic_config=core.configs.topic,
        metrics=metrics.topics,
        in_sync=in_sync,
        fetchers=fetchers,
        moves=LogDirMoves(
            logs,
            offload=doors.offload,
            clock=doors.clock,
            config=core.dynamic.now,
            moved=cleaner.moved,
        ),
    )
    core.configs.follow_topics(replicas.configure)
    gauges.read_replicas(metrics, replicas, logs)
    gauges.read_partitions(metrics.partitions, replicas)
    gauges.read_fetchers(metrics.fetchers, fetchers)
    gauges.read_quotas(metrics.replication, quotas, doors.clock)
    return Replication(logs, cleaner, flusher, replicas, fetchers, quotas, in_sync)
