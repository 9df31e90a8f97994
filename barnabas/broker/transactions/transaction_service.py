"""The transaction coordinator of this broker, with the leadership of `__transaction_state`."""

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.topic_names import INTERNAL_TOPICS, TRANSACTION_STATE
from barnabas.broker.loop.clock import LoopTimers
from barnabas.broker.loop.offload import Offload
from barnabas.broker.loop.periodic_tasks import PeriodicTasks
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.events import (
    TRANSACTION_FENCED,
    TRANSACTION_TIMED_OUT,
    EventLog,
)
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.coordinator_log import LedPartition
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.transactions.marker_origins import MarkerOrigins
from barnabas.broker.transactions.marker_routes import MarkerRoutes
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.marker_writer import MarkerWriter
from barnabas.broker.transactions.produce_verification import ProduceVerification
from barnabas.broker.transactions.remote_coordinators import RemoteCoordinators
from barnabas.broker.transactions.request_batcher import Requester
from barnabas.broker.transactions.verifier import TransactionVerifier
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.ports import Clock
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.coordinator import (
    TransactionCoordinator,
    TransactionRuntime,
    TransactionShard,
)
from barnabas.coordinator.transaction.metadata import Producer, TransactionMetadata
from barnabas.coordinator.transaction.producer_ids import ProducerIds
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.table import TIMED_OUT, TransactionTable
from barnabas.coordinator.transaction.transactional_id import ELSEWHERE, Expectation
from barnabas.coordinator.transaction.waiters import TransactionWaiters
from barnabas.metrics.catalogue import TransactionMetrics
from barnabas.protocol.messages.expect_producers import ExpectedProducer
from barnabas.protocol.records.batch import NO_SEQUENCE
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.coordinator.group.coordinator import GroupRuntime

_WRITE_TIMEOUT_MS = 60_000
"""The longest wait of a response for its record to be committed; the decision has no limit."""
_log = get_logger(__name__)
_new = tuple.__new__


class TransactionService:
    """The transaction coordinator with its runtime, the verifier and the markers.

    It follows the leadership of `__transaction_state`.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        broker_id: int,
        cache: MetadataCache,
        connect: Callable[[int], Requester],
        replicas: ReplicaManager,
        groups: "GroupRuntime",
        in_touch: Callable[[], bool],
        producer_ids: ProducerIds,
        transaction_version: Callable[[], int],
        partition_exists: Callable[[str, int], Awaitable[bool]],
        clock: Clock,
        offload: Offload,
        slicer: Slicer,
        metrics: TransactionMetrics,
        events: EventLog,
    ) -> None:
        """`partition_exists` asks the metadata store, not this broker's cache; `connect` returns a
        new connection to another broker; `in_touch` returns whether this broker has its session and
        knows its leaderships: no other broker can lead the same partitions then."""
        self._config = config
        self._cache, self._offload = cache, offload
        self._aborted = partial(_add_abort, events)
        self._replicas = replicas
        self._settings = transaction_settings(config())
        self._fast = config().fast_paths_enable
        self._keeps = config().transaction_two_phase_commit_enable
        self._take_producer_id = producer_ids.take
        self._transaction_version = transaction_version
        timers, fast = LoopTimers(), self._fast
        self.waiters = TransactionWaiters(timers, lambda: config().transaction_blocking_max_wait_ms)
        self._runtime = self._make_runtime(clock, timers, slicer, in_touch)
        self.coordinator = TransactionCoordinator(
            self._runtime,
            self.waiters,
            settings=self._settings,
            producer_ids=producer_ids,
            clock=clock,
            timers=timers,
            partitions=self.partitions,
            metadata=cache,
        )
        self.others = RemoteCoordinators(broker_id, cache, connect, fast=fast)
        self.verifier = TransactionVerifier(self.coordinator, self.others, config, clock, metrics)
        self.produce_verification = ProduceVerification(replicas, self.verifier)
        self.writer = MarkerWriter(replicas, groups, clock)
        self.origins = MarkerOrigins(cache)
        self.routes = MarkerRoutes(broker_id, cache, self.writer, connect, fast=fast)
        self.markers = MarkerSender(
            cache,
            self.routes,
            timers,
            writer=self.writer,
            partition_exists=partition_exists,
            finished=self.coordinator.markers_written,
            noted=self.coordinator.note,
        )
        replicas.observe(TRANSACTION_STATE, self)

    def _new_shard(self, index: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            TransactionTable(
                self._settings,
                take_producer_id=self._take_producer_id,
                transaction_version=self._transaction_version,
                verification=self._verification,
                send_markers=partial(self.markers.send, index, leader_epoch),
                marked=partial(self.coordinator.markers_written, index=index),
                free=self.waiters.wake,
                expect=(
                    partial(self._expect, leader_epoch)
                    if self._config().fast_paths_enable
                    else None
                ),
                aborted=self._aborted,
            )
        )

    def _expect(
        self,
        coordinator_epoch: int,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        principal: str | None,
    ) -> dict[TopicPartition, Expectation]:
        """Tell the leaders of partitions whom to expect. Those of internal topics ask: no producer
        writes there. Other brokers ask if a transaction may be kept for another client, because
        only its marker would take back what they are told."""
        told: dict[TopicPartition, Expectation] = {}
        for each in partitions:
            topic, index = each
            if topic in INTERNAL_TOPICS:
                continue
            partition = self._replicas.find(each)
            if partition is not None and partition.is_leader:
                claim = transactional_id, *producer, NO_SEQUENCE, False, principal
                producers = partition.log.producers
                guard = producers.expect(_new(Claim, claim), coordinator_epoch)
                if guard is not None:
                    told[each] = guard
            elif not self._keeps and self.routes.expect(
                ExpectedProducer(
                    transactional_id=transactional_id,
                    principal=principal,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    coordinator_epoch=coordinator_epoch,
                    topic=topic,
                    partition_index=index,
                )
            ):
                told[each] = ELSEWHERE
        return told

    def _make_runtime(
        self, clock: Clock, timers: LoopTimers, slicer: Slicer, in_touch: Callable[[], bool]
    ) -> TransactionRuntime:
        return CoordinatorRuntime(
            self._new_shard,
            clock=clock,
            timers=timers,
            slices=slicer,
            write_timeout_ms=_WRITE_TIMEOUT_MS,
            load_buffer_bytes=self._config().transaction_state_log_load_buffer_size,
            in_touch=in_touch,
            report=_report,
        )

    def partitions(self) -> int:
        """Return how many partitions `__transaction_state` has, or will have once it is created."""
        topic = self._cache.topic(TRANSACTION_STATE)
        if topic is None:
            return self._config().transaction_state_log_num_partitions
        return len(topic.partitions)

    def _verification(self) -> object | None:
        """Return None if leaders do not ask before the first record of a transaction. Each change
        of the configuration returns another object, because a leader may have written without
        asking in between."""
        config = self._config()
        return config if config.transaction_partition_verification_enable else None

    # -- calls of the replica manager ------------------------------------------------------------

    def elected(self, partition: Partition) -> None:
        self.resigned(partition)
        self._runtime.elected(partition.index, LedPartition(partition, self._offload))

    def resigned(self, partition: Partition) -> None:
        self.markers.resigned(partition.index)
        self._runtime.resigned(partition.index)
        self.waiters.wake_all()

    # -- periodic tasks --------------------------------------------------------------------------

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register the sweeps as periodic tasks."""
        config = self._config
        tasks.every(
            "transaction-timeouts",
            lambda: config().transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.coordinator.abort_timed_out,
        )
        tasks.every(
            "transactional-id-expiration",
            lambda: config().transaction_remove_expired_transaction_cleanup_interval_ms,
            self.coordinator.expire,
        )

    async def close(self) -> None:
        """Answer every request that waits with NOT_COORDINATOR, and stop every timer."""
        await self._runtime.close()
        self.waiters.wake_all()
        await self.others.close()
        await self.routes.close()


def _add_abort(
    events: EventLog, txn: TransactionMetadata, why: str, client_host: str | None
) -> None:
    timed_out = why == TIMED_OUT
    events.add(
        _log,
        TRANSACTION_TIMED_OUT if timed_out else TRANSACTION_FENCED,
        transactional_id=txn.transactional_id,
        producer="{}:{}".format(*txn.producer),
        partitions=len(txn.partitions),
        **({} if timed_out else {"by": client_host}),
    )


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """Return the configuration of transactions."""
    return TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        fences_older_connections=config.transaction_fence_older_connections,
    )


def _report(index: int, error: BaseException) -> None:
    _log.error("transaction coordinator partition not served", partition=index, exc_info=error)
