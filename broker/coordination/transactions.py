"""Transaction coordination on this broker: lends the machine its ports, tells it what is led."""

from collections.abc import Awaitable, Callable

from barnabas.broker.clock import Clock
from barnabas.broker.coordination.admission import ProduceAdmission
from barnabas.broker.coordination.gate import TransactionGate
from barnabas.broker.coordination.line import Asked
from barnabas.broker.coordination.loop import LoopTimers
from barnabas.broker.coordination.marker_routes import MarkerRoutes
from barnabas.broker.coordination.marker_sender import MarkerSender
from barnabas.broker.coordination.marker_writer import MarkerWriter
from barnabas.broker.coordination.partition_log import LedPartition
from barnabas.broker.coordination.remote_coordinators import RemoteCoordinators
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.topic_names import TRANSACTION_STATE
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.offload import Offload
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.rounds import Rounds
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.producer_ids import ProducerIds
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.shard import TransactionShard
from barnabas.coordinator.transaction.waiting import WaitingRoom
from barnabas.metrics.catalogue import TransactionMetrics

_WRITE_TIMEOUT_MS = 60_000
"""How long an answer waits for its record to be committed; the decision waits for ever."""
_log = get_logger(__name__)


class TransactionCoordination:
    """Owns the transaction coordinator, and follows the leadership of `__transaction_state`."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        broker_id: int,
        cache: MetadataCache,
        connect: Callable[[int], Asked],
        replicas: ReplicaManager,
        groups: CoordinatorRuntime[GroupShard],
        in_touch: Callable[[], bool],
        producer_ids: ProducerIds,
        transaction_version: Callable[[], int],
        partition_exists: Callable[[str, int], Awaitable[bool]],
        clock: Clock,
        offload: Offload,
        metrics: TransactionMetrics,
    ) -> None:
        """`partition_exists` asks the metadata store itself, not what this broker knows of it;
        `connect` gives a line of its own to another broker; `in_touch` says whether this broker
        still has its session and was told what it leads: nobody leads that instead, then."""
        self._config = config
        self._cache = cache
        self._offload = offload
        settings = transaction_settings(config())
        timers = LoopTimers()
        self.waiting = WaitingRoom(timers, lambda: config().transaction_blocking_max_wait_ms)

        def new_shard() -> TransactionShard:
            return TransactionShard(
                settings,
                take_producer_id=producer_ids.take,
                transaction_version=transaction_version,
                settled=self.waiting.wake,
            )

        self._runtime = self._make_runtime(new_shard, clock, timers, in_touch)
        self.coordinator = TransactionCoordinator(
            self._runtime,
            self.waiting,
            settings=settings,
            producer_ids=producer_ids,
            clock=clock,
            timers=timers,
            partitions=self.partitions,
        )
        self.others = RemoteCoordinators(broker_id, cache, connect)
        self.gate = TransactionGate(self.coordinator, self.others, config, clock, metrics)
        self.admission = ProduceAdmission(replicas, self.gate)
        self.writer = MarkerWriter(replicas, groups, clock)
        self.routes = MarkerRoutes(broker_id, cache, self.writer, connect)
        self.markers = MarkerSender(
            cache,
            self.routes,
            timers,
            partition_exists=partition_exists,
            finished=self.coordinator.markers_written,
            noted=self.coordinator.note,
        )
        replicas.observe(TRANSACTION_STATE, self)

    def _make_runtime(
        self,
        new_shard: Callable[[], TransactionShard],
        clock: Clock,
        timers: LoopTimers,
        in_touch: Callable[[], bool],
    ) -> CoordinatorRuntime[TransactionShard]:
        return CoordinatorRuntime(
            new_shard,
            clock=clock,
            timers=timers,
            write_timeout_ms=_WRITE_TIMEOUT_MS,
            load_buffer_bytes=self._config().transaction_state_log_load_buffer_size,
            send=lambda index, epoch, markers: self.markers.send(index, epoch, markers),
            in_touch=in_touch,
            report=_report,
        )

    def partitions(self) -> int:
        """How many `__transaction_state` has, or will have when it is created."""
        topic = self._cache.topic(TRANSACTION_STATE)
        if topic is None:
            return self._config().transaction_state_log_num_partitions
        return len(topic.partitions)

    # -- what the replica manager says -----------------------------------------------------------

    def elected(self, partition: Partition) -> None:
        self.resigned(partition)
        self._runtime.elected(partition.index, LedPartition(partition, self._offload))

    def resigned(self, partition: Partition) -> None:
        self.markers.resigned(partition.index)
        self._runtime.resigned(partition.index)
        self.waiting.wake_all()

    # -- chores ----------------------------------------------------------------------------------

    def schedule(self, rounds: Rounds) -> None:
        """Put the sweeps on their rounds."""
        config = self._config
        rounds.every(
            "transaction-timeouts",
            lambda: config().transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.coordinator.abort_timed_out,
        )
        rounds.every(
            "transactional-id-expiration",
            lambda: config().transaction_remove_expired_transaction_cleanup_interval_ms,
            self.coordinator.expire,
        )

    async def close(self) -> None:
        """Send away whoever waits, and stop every timer."""
        await self._runtime.close()
        self.waiting.wake_all()
        await self.others.close()
        await self.routes.close()


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """What the configuration says about transactions."""
    return TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        fences_older_connections=config.transaction_fence_older_connections,
    )


def _report(index: int, error: BaseException) -> None:
    _log.error("transaction coordinator partition not served", partition=index, exc_info=error)
