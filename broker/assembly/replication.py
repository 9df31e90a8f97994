"""Logs, and the replicas that they are of."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.core import Core
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.errors import LogDirFailed
from barnabas.storage.log_manager import BrokerIdentity, LogManager


class Replication(NamedTuple):
    """What holds the records of this broker."""

    logs: LogManager
    cleaner: LogCleaner
    flusher: Flusher
    replicas: ReplicaManager


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
        producer_expiration_ms=core.config.producer_id_expiration_ms,
        on_failure=log_dir_failed,
    )
    flusher = Flusher(doors.offload, doors.clock, metrics.logs.flush_time_ms.cell())
    replicas = ReplicaManager(
        core.broker_id,
        logs=logs,
        cache=core.cache,
        flusher=flusher,
        offload=doors.offload,
        topic_config=core.configs.topic,
        metrics=metrics.topics,
    )
    core.configs.follow_topics(replicas.configure)
    gauges.read_replicas(metrics, replicas, logs)
    return Replication(logs, LogCleaner(doors.files, doors.cleaner.clean), flusher, replicas)
