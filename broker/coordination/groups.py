"""Group coordination on this broker: lends `coordinator/` its ports, and tells it what is led."""

from collections.abc import Callable
from random import Random
from uuid import UUID

from barnabas.broker.clock import Clock
from barnabas.broker.coordination.loop import LoopTimers
from barnabas.broker.coordination.partition_log import LedPartition
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.offload import Offload
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.rounds import Rounds
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.group.counts import OffsetCounts
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.records.compression import Compression

_log = get_logger(__name__)


class GroupCoordination:
    """Owns the group coordinator, and follows the leadership of `__consumer_offsets`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        cache: MetadataCache,
        replicas: ReplicaManager,
        clock: Clock,
        random: Random,
        offload: Offload,
        in_touch: Callable[[], bool],
    ) -> None:
        """`in_touch` says whether this broker still has its session and was told what it leads:
        nobody leads that instead, then."""
        self._config = config
        self._cache = cache
        self._offload = offload
        self.counts = OffsetCounts()
        settings = group_settings(config)
        timers = LoopTimers()
        new_id = _member_ids(random)
        self.runtime = CoordinatorRuntime(
            lambda: GroupShard(settings, new_id, self.counts),
            clock=clock,
            timers=timers,
            write_timeout_ms=config.offsets_commit_timeout_ms,
            load_buffer_bytes=config.offsets_load_buffer_size,
            compression=Compression(config.offsets_topic_compression_codec),
            in_touch=in_touch,
            report=_report,
        )
        self.coordinator = GroupCoordinator(self.runtime, timers, self.partitions)
        self._topics: dict[str, bytes] = {}
        self._deleted: dict[str, bytes] = {}
        replicas.observe(CONSUMER_OFFSETS, self)
        cache.on_change(self._metadata_changed)

    def partitions(self) -> int:
        """How many partitions `__consumer_offsets` has, or will have when it is created."""
        topic = self._cache.topic(CONSUMER_OFFSETS)
        return self._config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    # -- what the replica manager says -----------------------------------------------------------

    def elected(self, partition: Partition) -> None:
        self.runtime.elected(partition.index, LedPartition(partition, self._offload))

    def resigned(self, partition: Partition) -> None:
        self.runtime.resigned(partition.index)

    # -- chores ----------------------------------------------------------------------------------

    def schedule(self, rounds: Rounds) -> None:
        """Put the sweeps on their rounds."""
        rounds.every(
            "offsets-retention",
            lambda: self._config.offsets_retention_check_interval_ms,
            self.coordinator.expire,
        )
        rounds.every("offsets-of-deleted-topics", lambda: SWEEP_MS, self._forget_deleted)

    def _metadata_changed(self) -> None:
        topics = {name: topic.topic_id for name, topic in self._cache.topics.items()}
        for name, topic_id in self._topics.items():
            if topics.get(name) != topic_id:
                self._deleted[name] = topic_id
        self._topics = topics

    async def _forget_deleted(self) -> None:
        if self._deleted:
            deleted, self._deleted = self._deleted, {}
            await self.coordinator.topics_deleted(deleted)

    async def close(self) -> None:
        """Send away whoever waits, and stop every timer."""
        await self.runtime.close()


SWEEP_MS = 1_000
"""How soon after a topic was deleted its committed offsets are gone too."""


def group_settings(config: BrokerConfig) -> GroupSettings:
    """What the configuration says about groups."""
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
    )


def _member_ids(random: Random) -> Callable[[], str]:
    return lambda: str(UUID(int=random.getrandbits(128), version=4))


def _report(index: int, error: BaseException) -> None:
    # Damage is told in a line; where it lies, nobody's stack knows better.
    damaged = isinstance(error, KafkaError | ProtocolError)
    _log.error(
        "group coordinator partition not served",
        partition=index,
        reason=str(error),
        exc_info=None if damaged else error,
    )
