"""Gauges whose values are computed at each scrape, at no cost in between."""

import asyncio
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from barnabas.broker.cluster.cache import NO_LEADER, MetadataCache
from barnabas.broker.controller.controller import Controller
from barnabas.broker.groups.group_service import GroupService
from barnabas.broker.groups.record_lags import RecordLags
from barnabas.broker.replication.follower.fetcher_manager import FetcherManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quota import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server.limits.budget import RequestMemory
from barnabas.broker.server.listener import ServedListener
from barnabas.broker.transactions.transaction_service import TransactionService
from barnabas.coordinator.group.consumer.states import ConsumerGroupState
from barnabas.coordinator.group.states import CLASSIC, CONSUMER, GroupState
from barnabas.coordinator.ports import Clock
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.metrics.catalogue import (
    BrokerMetrics,
    FetcherMetrics,
    GroupMetrics,
    PartitionMetrics,
    ProcessMetrics,
    ReplicationMetrics,
    TransactionMetrics,
)
from barnabas.metrics.registry import Cell, Family, HistogramCell, Labels
from barnabas.protocol.records.group_lag import offset_lag
from barnabas.storage.log.log import Log
from barnabas.storage.opening.log_manager import LogManager


def read_server(
    metrics: BrokerMetrics, listeners: Sequence[ServedListener], memory: RequestMemory
) -> None:
    """Register the gauges of connections and of request memory."""
    metrics.requests.connections.read_each_with(
        lambda: [((listener.name,), listener.connections) for listener in listeners]
    )
    metrics.requests.certificate_expiry.read_each_with(
        lambda: [
            ((each.name,), own.not_after.timestamp())
            for each in listeners
            if each.tls is not None and (own := each.tls.certificates.certificate) is not None
        ]
    )
    metrics.requests.queued_bytes.read_with(lambda: memory.used)


def read_replicas(metrics: BrokerMetrics, replicas: ReplicaManager, logs: LogManager) -> None:
    """Register the gauges of this broker's partitions and logs."""
    gauges = metrics.replicas
    gauges.partitions.read_with(lambda: len(replicas))
    gauges.leaders.read_with(lambda: len(replicas.leading))
    gauges.under_replicated.read_with(
        lambda: sum(each.is_under_replicated for each in replicas.leading)
    )
    gauges.under_min_isr.read_with(lambda: sum(each.is_under_min_isr for each in replicas.leading))
    gauges.at_min_isr.read_with(lambda: sum(each.is_at_min_isr for each in replicas.leading))
    gauges.reassigning.read_with(lambda: sum(each.reassigning for each in replicas.leading))
    gauges.offline.read_with(lambda: replicas.offline_count)
    gauges.producer_ids.read_with(lambda: sum(len(each.log.producers) for each in replicas))
    metrics.logs.size.read_each_with(
        lambda: ((_name(each.log), each.log.size) for each in replicas)
    )
    metrics.logs.segments.read_each_with(
        lambda: ((_name(each.log), len(each.log.segments)) for each in replicas)
    )
    metrics.logs.start_offset.read_each_with(
        lambda: ((_name(each.log), each.log.log_start_offset) for each in replicas)
    )
    metrics.logs.end_offset.read_each_with(
        lambda: ((_name(each.log), each.log.log_end_offset) for each in replicas)
    )
    metrics.logs.offline_directories.read_with(
        lambda: sum(each.failure is not None for each in logs.dirs)
    )


def read_partitions(gauges: PartitionMetrics, replicas: ReplicaManager) -> None:
    """Register the gauges of each partition that this broker leads."""

    def register(gauge: Family[Cell], value: Callable[[Partition], float]) -> None:
        gauge.read_each_with(lambda: ((_name(each.log), value(each)) for each in replicas.leading))

    register(gauges.replicas, lambda each: len(each.replicas))
    register(gauges.in_sync, lambda each: len(each.isr))
    register(gauges.under_replicated, lambda each: each.is_under_replicated)
    register(gauges.under_min_isr, lambda each: each.is_under_min_isr)
    register(gauges.at_min_isr, lambda each: each.is_at_min_isr)
    register(gauges.last_stable_offset, lambda each: each.log.last_stable_offset)
    register(
        gauges.last_stable_offset_lag,
        lambda each: each.high_watermark - each.log.last_stable_offset,
    )


def read_fetchers(gauges: FetcherMetrics, fetchers: FetcherManager) -> None:
    """Register the gauges of followed partitions and their lag."""
    gauges.max_lag.read_with(lambda: fetchers.max_lag)
    gauges.min_fetch_rate.read_with(lambda: fetchers.min_fetch_rate)
    gauges.lag.read_each_with(
        lambda: ((_name(each.partition.log), each.lag or 0) for each in fetchers)
    )


def read_quotas(gauges: ReplicationMetrics, quotas: ReplicationQuotas, clock: Clock) -> None:
    """Register the byte rates of throttled replication."""
    gauges.leader_byte_rate.read_with(lambda: quotas.leader.rate(clock.monotonic()))
    gauges.follower_byte_rate.read_with(lambda: quotas.follower.rate(clock.monotonic()))


def read_cluster(metrics: BrokerMetrics, controller: Controller, cache: MetadataCache) -> None:
    """Register the controller's gauges; they are 0 on the other brokers."""

    def leaderless() -> Iterable[bool]:
        return (
            partition.leader == NO_LEADER
            for topic in cache.topics.values()
            for partition in topic.partitions.values()
        )

    def misled() -> Iterable[bool]:
        return (
            partition.leader != partition.replicas[0]
            for topic in cache.topics.values()
            for partition in topic.partitions.values()
        )

    gauges = metrics.controller
    gauges.active.read_with(lambda: int(controller.active))
    gauges.brokers.read_with(lambda: len(cache.brokers) if controller.active else 0)
    gauges.topics.read_with(lambda: len(cache.topics) if controller.active else 0)
    gauges.partitions.read_with(lambda: sum(1 for _ in leaderless()) if controller.active else 0)
    gauges.offline_partitions.read_with(lambda: sum(leaderless()) if controller.active else 0)
    gauges.preferred_imbalance.read_with(lambda: sum(misled()) if controller.active else 0)
    gauges.queued.read_with(lambda: controller.queued)
    gauges.elections.read_with(lambda: controller.elections.elections)
    gauges.unclean_elections.read_with(lambda: controller.elections.unclean)


def read_groups(
    gauges: GroupMetrics,
    groups: GroupService,
    replicas: ReplicaManager,
    in_sync: Callable[[Partition], bool],
    records: RecordLags,
) -> None:
    """Register the gauges of the group coordinator. Lag is reported for partitions with a replica
    here that is `in_sync`, leader or not."""
    counts = groups.counts

    def lags() -> Iterator[tuple[Labels, float]]:
        # An in-sync follower learns the high watermark with every fetch. Another replica may know
        # an old one, which would hide a group's lag.
        ends = {(each.topic, each.index): each.high_watermark for each in replicas if in_sync(each)}
        for group_id, topic, partition, committed in groups.coordinator.offsets():
            end = ends.get((topic, partition))
            if end is not None:
                yield (group_id, topic, str(partition)), offset_lag(committed.offset, end)

    def by_state(
        of_type: type[GroupState] | type[ConsumerGroupState],
    ) -> Iterator[tuple[Labels, float]]:
        counted = groups.coordinator.states()
        return (((each.value,), counted[each]) for each in of_type)

    def by_type() -> Iterator[tuple[Labels, float]]:
        counted = groups.coordinator.states()
        for name, of_type in ((CLASSIC, GroupState), (CONSUMER, ConsumerGroupState)):
            yield (name,), sum(counted[each] for each in of_type)

    gauges.groups.read_each_with(lambda: by_state(GroupState))
    gauges.consumer_groups.read_each_with(lambda: by_state(ConsumerGroupState))
    gauges.by_type.read_each_with(by_type)
    gauges.classic_rebalances.read_with(lambda: counts.classic_rebalances)
    gauges.consumer_rebalances.read_with(lambda: counts.consumer_rebalances)
    gauges.offsets.read_with(lambda: groups.coordinator.count_offsets())
    gauges.offset_commits.read_with(lambda: counts.committed)
    gauges.offset_expirations.read_with(lambda: counts.expired)
    gauges.offset_deletions.read_with(lambda: counts.deleted)
    gauges.lag.read_each_with(lags)
    gauges.to_read.read_each_with(records.to_read)
    gauges.held_back.read_each_with(records.held_back)


def read_transactions(
    gauges: TransactionMetrics, transactions: TransactionService, replicas: ReplicaManager
) -> None:
    """Register the gauges of the transaction coordinator, and of open transactions in led
    partitions."""

    def states() -> Iterator[tuple[Labels, float]]:
        counted = transactions.coordinator.states()
        return (((state.value,), counted[state.value]) for state in TransactionState)

    gauges.ids.read_each_with(states)
    gauges.markers_queued.read_with(lambda: transactions.markers.queued)
    gauges.markers_leaderless.read_with(lambda: transactions.routes.leaderless)
    gauges.completions_refused.read_with(transactions.coordinator.refused_ends)
    gauges.waiters.read_with(lambda: transactions.waiters.count)
    gauges.overdue.read_with(transactions.coordinator.overdue)
    gauges.kept.read_with(transactions.coordinator.kept)
    gauges.oldest_kept.read_with(lambda: transactions.coordinator.oldest_kept_ms() / 1000)
    gauges.open.read_each_with(
        lambda: ((_name(each.log), each.log.producers.open_count) for each in replicas.leading)
    )


def _name(log: Log) -> Labels:
    return (log.topic, str(log.partition))


_INTERVAL_SECONDS: Final = 0.25


class LoopLag:
    """A repeated timer that observes its delay in seconds, which is the lag of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cell: HistogramCell) -> None:
        self._loop = loop
        self._cell = cell
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start sampling."""
        due = self._loop.time() + _INTERVAL_SECONDS
        self._timer = self._loop.call_at(due, self._sample, due)

    def stop(self) -> None:
        """Stop sampling; the timer would otherwise keep the loop busy."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sample(self, due: float) -> None:
        self._cell.observe(max(0.0, self._loop.time() - due))
        self.start()


_STATM: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = Path("/proc/self/fd")


def observe_process(metrics: ProcessMetrics) -> None:
    """Register the process metrics. Without /proc, memory and open files are not reported."""
    metrics.cpu.read_with(time.process_time)
    metrics.start_time.cell().value = time.time()
    metrics.max_files.read_with(lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if _STATM.exists():
        metrics.memory.read_with(_resident_bytes)
        metrics.open_files.read_with(lambda: len(os.listdir(_DESCRIPTORS)))


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
