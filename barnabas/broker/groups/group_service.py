"""The group coordinator of this broker, with the leadership of `__consumer_offsets`."""

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from barnabas.broker.cluster.cache import MetadataCache, TopicMetadata
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS
from barnabas.broker.loop.clock import LoopTimers
from barnabas.broker.loop.offload import Offload
from barnabas.broker.loop.periodic_tasks import PeriodicTasks
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.events import GROUP_REBALANCE, EventLog
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.coordinator_log import LedPartition
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.group.consumer.settings import ConsumerGroupSettings
from barnabas.coordinator.group.consumer.topics import Topic
from barnabas.coordinator.group.counts import GroupCounts
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.ports import Clock
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.late_import import import_late
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.steps import Steps

if TYPE_CHECKING:
    from barnabas.coordinator.group.coordinator import GroupCoordinator, GroupRuntime, GroupShard
    from barnabas.coordinator.group.group import MemberMemory

_log = get_logger(__name__)
_MODULES: Final = (
    "protocol.messages.join_group",
    "protocol.messages.sync_group",
    "coordinator.group.group",
    "protocol.internal.consumer_group",
    "coordinator.group.consumer.group",
    "coordinator.group.consumer.records",
    "protocol.internal.offset_commit",
    "coordinator.group.records",
    "coordinator.group.table",
    "coordinator.group.draft",
    "coordinator.group.consumer.timers",
    "coordinator.group.consumer.sessions",
    "protocol.messages.consumer_group_heartbeat",
    "coordinator.group.consumer.reconciliation",
    "coordinator.group.consumer.classic",
    "coordinator.group.admin",
    "coordinator.group.committing",
    "coordinator.group.consumer.heartbeat",
    "coordinator.group.consumer.describe",
    "coordinator.group.coordinator",
)
"""Modules of which each imports few of the others that are not before it: all together would hold
the event loop for 15 ms."""


def import_groups() -> Steps[None]:
    """Import the state of groups, which a start does without. Raises ReleaseReplaced."""
    for name in _MODULES:
        import_late(f"barnabas.{name}")
        yield None


class GroupService:
    """The group coordinator with its runtime. It follows the leadership of `__consumer_offsets`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        cache: MetadataCache,
        replicas: ReplicaManager,
        clock: Clock,
        random: Random,
        offload: Offload,
        slicer: Slicer,
        in_touch: Callable[[], bool],
        settings_of: Callable[[str], ConsumerGroupSettings],
        events: EventLog,
    ) -> None:
        """`in_touch` returns whether this broker has its session and knows its leaderships: no
        other broker can lead the same partitions then."""
        self._config = config
        self._cache = cache
        self._offload = offload
        self.counts = GroupCounts()
        settings = group_settings(config)
        new_id = _member_ids(random)
        known = KnownTopics(cache)

        def new_shard(*_: int) -> "GroupShard":
            from barnabas.coordinator.group.coordinator import GroupShard
            from barnabas.coordinator.group.table import GroupTable

            return GroupShard(
                GroupTable(
                    settings,
                    new_id,
                    self.counts,
                    self._memory,
                    known,
                    settings_of,
                    lambda work: offload.submit("assignor", work),
                    partial(_add_rebalance, events),
                )
            )

        self._timers = LoopTimers()
        self.runtime: GroupRuntime = CoordinatorRuntime(
            new_shard,
            prepare=import_groups,
            clock=clock,
            timers=self._timers,
            slices=slicer,
            write_timeout_ms=config.offsets_commit_timeout_ms,
            load_buffer_bytes=config.offsets_load_buffer_size,
            compression=Compression(config.offsets_topic_compression_codec),
            in_touch=in_touch,
            report=_report,
        )
        self._topics: dict[str, bytes] = {}
        self._deleted: dict[str, bytes] = {}
        replicas.observe(CONSUMER_OFFSETS, self)
        cache.on_change(self._metadata_changed)

    @cached_property
    def coordinator(self) -> "GroupCoordinator":
        """The coordinator for handlers. The first use imports it; raises ReleaseReplaced."""
        module = import_late("barnabas.coordinator.group.coordinator")
        made: GroupCoordinator = module.GroupCoordinator(
            self.runtime, self._timers, self.partition_of
        )
        return made

    @cached_property
    def _memory(self) -> "MemberMemory":
        """The memory of all members."""
        from barnabas.coordinator.group.group import MemberMemory

        return MemberMemory(self._config.group_members_max_bytes)

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` whose leader coordinates the group."""
        return partition_for(group_id, self.partitions())

    def partitions(self) -> int:
        """Return how many partitions `__consumer_offsets` has, or will have once it is created."""
        topic = self._cache.topic(CONSUMER_OFFSETS)
        return self._config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    # -- calls of the replica manager ------------------------------------------------------------

    def elected(self, partition: Partition) -> None:
        self.runtime.elected(partition.index, LedPartition(partition, self._offload))

    def resigned(self, partition: Partition) -> None:
        self.runtime.resigned(partition.index)

    # -- periodic tasks --------------------------------------------------------------------------

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register the sweeps as periodic tasks."""
        tasks.every(
            "offsets-retention",
            lambda: self._config.offsets_retention_check_interval_ms,
            self._expire,
        )
        tasks.every("offsets-of-deleted-topics", lambda: SWEEP_MS, self._forget_deleted)

    async def _expire(self) -> None:
        await self.coordinator.expire()

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
        """Answer every request that waits with NOT_COORDINATOR, and stop every timer."""
        await self.runtime.close()


class KnownTopics:
    """The topics that this broker knows; `version` grows when one of them changes for a group:
    its id, its partitions, or the racks of its replicas.

    They are looked at when a group asks: each change of an ISR is an update of the metadata.
    """

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._topics: dict[str, Topic] = {}
        self._version = 0
        self._updated = True
        """Whether the metadata has changed since they were looked at."""
        cache.on_change(self._changed)

    @property
    def version(self) -> int:
        self._look()
        return self._version

    def names(self) -> Iterable[str]:
        self._look()
        return self._topics

    def find(self, name: str) -> Topic | None:
        self._look()
        return self._topics.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._cache.topic_name(topic_id)

    def _changed(self) -> None:
        self._updated = True

    def _look(self) -> None:
        if not self._updated:
            return
        self._updated = False
        racks = {each.id: each.rack for each in self._cache.brokers.values() if each.rack}
        known = self._topics
        topics = {
            name: _same_or_new(known.get(name), topic, racks)
            for name, topic in self._cache.topics.items()
        }
        if topics != known:
            self._topics = topics
            self._version += 1


def _same_or_new(known: Topic | None, topic: TopicMetadata, racks: dict[int, str]) -> Topic:
    new = Topic(topic.name, topic.topic_id, len(topic.partitions), _racks(topic, racks))
    return known if known == new else new


def _racks(topic: TopicMetadata, racks: dict[int, str]) -> tuple[frozenset[str], ...]:
    if not racks:
        return ()
    partitions = topic.partitions
    return tuple(
        frozenset(racks[each] for each in partitions[index].replicas if each in racks)
        if index in partitions
        else frozenset()
        for index in range(len(partitions))
    )


SWEEP_MS = 1_000
"""The interval of the sweep for committed offsets of deleted topics."""


def group_settings(config: BrokerConfig) -> GroupSettings:
    """Return the configuration of groups."""
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
    )


def _add_rebalance(events: EventLog, group_id: str, protocol: str, reason: str) -> None:
    events.add(_log, GROUP_REBALANCE, group=group_id, protocol=protocol, reason=reason)


def _member_ids(random: Random) -> Callable[[], str]:
    return lambda: str(UUID(int=random.getrandbits(128), version=4))


def _report(index: int, error: BaseException) -> None:
    # A damaged log gets one line in the log: the stack trace would add nothing.
    damaged = isinstance(error, KafkaError | ProtocolError)
    _log.error(
        "group coordinator partition not served",
        partition=index,
        reason=str(error),
        exc_info=None if damaged else error,
    )
