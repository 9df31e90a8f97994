"""The replica manager: all replicas of this broker, driven by the controller's requests.

Opening and deleting logs waits for the disk and therefore runs off the event loop. Leadership, ISR
and high watermark change on the loop only.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from barnabas.broker.cluster.cache import FULL, MetadataCache
from barnabas.broker.loop.offload import Offload
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.follower.fetcher_manager import FetcherManager
from barnabas.broker.replication.leader.append_queue import AppendQueue
from barnabas.broker.replication.leader.record_work import RecordWork
from barnabas.broker.replication.log_dir_moves import LogDirMoves
from barnabas.broker.replication.partition import NO_EPOCH, IsrPort, Partition
from barnabas.broker.replication.topic_cells import TopicCells, forget
from barnabas.config.key import LONG_MAX
from barnabas.config.topic import TopicConfig
from barnabas.metrics.catalogue import TopicMetrics
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.types import ZERO_UUID
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.log import Log
from barnabas.storage.opening.log_manager import LogManager

_QUEUE = "logs"
_ANY_EPOCH = -2
"""The leader epoch of a StopReplica that deletes the replica in any epoch."""
_log = get_logger(__name__)


class LeadershipObserver(Protocol):
    """An observer of this broker's leaderships: the coordinators."""

    def elected(self, partition: Partition, /) -> None: ...

    def resigned(self, partition: Partition, /) -> None:
        """Resign; also called again, and while the partition is still led."""
        ...


class ReplicaManager:
    """The partitions of this broker, by topic and index."""

    def __init__(
        self,
        broker_id: int,
        *,
        logs: LogManager,
        cache: MetadataCache,
        flusher: Flusher,
        offload: Offload,
        topic_config: Callable[[str], TopicConfig],
        metrics: TopicMetrics,
        isr_manager: IsrPort,
        fetchers: FetcherManager,
        moves: LogDirMoves,
        slicer: Slicer,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._cache = cache
        self._flusher = flusher
        self._offload = offload
        self._topic_config = topic_config
        self._metrics = metrics
        self._isr_manager = isr_manager
        self._fetchers = fetchers
        self.moves = moves
        self.slicer = slicer
        self.record_work = RecordWork(slicer, offload)
        self.appends = AppendQueue(self.record_work)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self.find: Callable[[tuple[str, int]], Partition | None] = self._partitions.get
        """Returns the replica of a partition on this broker, None if there is no usable one."""
        self._of_topic: dict[str, dict[int, Partition]] = {}
        self._offline: set[tuple[str, int]] = set()
        self.flushed_by_time: dict[Partition, None] = {}
        """The partitions whose topic has a limit for the time without an fsync (`flush.ms`)."""
        self._cells: dict[str, TopicCells] = {}
        self._resigned = False
        self._observers: list[tuple[str, LeadershipObserver]] = []

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def leading(self) -> list[Partition]:
        """The partitions that this broker leads."""
        return [partition for partition in self if partition.is_leader]

    @property
    def offline_count(self) -> int:
        """The number of replicas whose log directory has failed."""
        return len(self._offline)

    def observe(self, topic: str, observer: LeadershipObserver) -> None:
        """Notify `observer` of every change of leadership in a topic."""
        self._observers.append((topic, observer))

    def partition(self, topic: str, index: int) -> Partition:
        """Return the replica of a partition on this broker.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER where only other
        brokers have a replica, KAFKA_STORAGE_ERROR where its log directory has failed.
        """
        partition = self._partitions.get((topic, index))
        if partition is not None:
            return partition
        if (topic, index) in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if self._cache.partition(topic, index) is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- requests of the controller --------------------------------------------------------------

    async def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Create, lead or follow partitions, one after the other.

        A full request names all replicas of this broker: other logs are strays and are renamed to
        `-stray`. The replicas of a topic that it names without partitions stay as they are.
        """
        if request.type == FULL and not self._resigned:
            await self._stop_strays(request)
        topics = []
        async for topic in self.slicer.each(request.topic_states):
            errors = [
                LeaderAndIsrPartitionError(
                    partition_index=state.partition_index,
                    error_code=await self._apply(topic, state),
                )
                async for state in self.slicer.each(topic.partition_states)
            ]
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        await self._fetchers.close_idle()
        return LeaderAndIsrResponse(topics=topics)

    async def _apply(
        self, topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState
    ) -> ErrorCode:
        key = (topic.topic_name, state.partition_index)
        if self._broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._resigned:
            return ErrorCode.BROKER_NOT_AVAILABLE
        try:
            partition = self._partitions.get(key)
            if partition is None:
                partition = await self._open(topic, state)
            elif topic.topic_id not in (partition.topic_id, ZERO_UUID):
                return ErrorCode.INCONSISTENT_TOPIC_ID
            if state.leader_epoch > partition.leader_epoch:
                await self._stop_fetching(partition)
                partition.log.log_dir.require_online()
                self._resign_coordinators(partition)
            changed = partition.apply(state)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._offline.add(key)
            return error.code
        if changed:
            self._notify_observers(partition)
        if not partition.is_leader:
            self._fetchers.follow(partition)
        return ErrorCode.NONE

    async def _stop_fetching(self, partition: Partition) -> None:
        """Stop the fetcher, and return when its work on the log is complete."""
        work = self._fetchers.unfollow(partition)
        if work is not None:
            await work

    async def _stop_strays(self, request: LeaderAndIsrRequest) -> None:
        unlisted: set[str] = set()
        named: dict[tuple[str, int], bytes] = {}
        async for topic in self.slicer.each(request.topic_states):
            if not topic.partition_states:
                unlisted.add(topic.topic_name)
            async for state in self.slicer.each(topic.partition_states):
                named[topic.topic_name, state.partition_index] = topic.topic_id
        async for key, partition in self.slicer.each(list(self._partitions.items())):
            # The topic may have been deleted and created again while this broker was away.
            if (
                key[0] not in unlisted
                and named.get(key) != partition.topic_id
                and self._partitions.get(key) is partition
            ):
                self._remove(key)
                await self._stop_fetching(partition)
                self._resign(partition)
                await self.moves.stop(TopicPartition(*key))
        async for log in self.slicer.each(self._logs.logs):
            if log.topic in unlisted:
                continue
            stray = named.get((log.topic, log.partition)) != log.topic_id
            if stray and log.log_dir.failure is None:
                _set_aside(self._logs, log)

    async def _open(
        self, topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState
    ) -> Partition:
        name, index = topic.topic_name, state.partition_index
        config = self._topic_config(name)
        log = self._logs.get(name, index)
        if log is not None:
            log.log_dir.require_online()
        if log is not None and log.topic_id != topic.topic_id:
            # The log of a deleted topic of this name, or a damaged partition.metadata.
            _set_aside(self._logs, log)
            log = None
        if log is None:
            log = await self._offload.submit(
                _QUEUE,
                lambda: self._logs.create(name, index, topic.topic_id, config, is_new=state.is_new),
            )
        elif log.config is not config:
            log.configure(config)
        # The directory may have failed meanwhile, too early for log_dir_failed to know this log.
        log.log_dir.require_online()
        cells = self._cells.get(name)
        if cells is None:
            cells = self._cells[name] = TopicCells(self._metrics, name)
        partition = Partition(log, self._broker_id, cells, self._flusher.request, self._isr_manager)
        self._partitions[name, index] = partition
        self._note_flush_time(partition)
        self._of_topic.setdefault(name, {})[index] = partition
        self._offline.discard((name, index))
        self.moves.begin(partition)
        return partition

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop serving replicas, and delete those that the controller has marked for deletion."""
        errors = [
            StopReplicaPartitionError(
                topic_name=topic.topic_name,
                partition_index=state.partition_index,
                error_code=await self._stop(topic.topic_name, state),
            )
            async for topic in self.slicer.each(request.topic_states)
            async for state in self.slicer.each(topic.partition_states)
        ]
        return StopReplicaResponse(partition_errors=errors)

    async def _stop(self, topic: str, state: StopReplicaPartitionState) -> ErrorCode:
        key = (topic, state.partition_index)
        partition = self._partitions.get(key)
        if (
            partition is not None
            and state.leader_epoch not in (NO_EPOCH, _ANY_EPOCH)
            and state.leader_epoch < partition.leader_epoch
        ):
            return ErrorCode.FENCED_LEADER_EPOCH
        if partition is not None:
            self._remove(key)
            await self._stop_fetching(partition)
            self._resign(partition)
            await self._fetchers.close_idle()
            await self.moves.stop(TopicPartition(*key))
        if not state.delete_partition:
            return ErrorCode.NONE
        self._offline.discard(key)
        log = self._logs.get(*key)
        try:
            if log is not None:
                await self._delete_log(log)
        except KafkaError as error:
            return error.code
        if topic not in self._of_topic:
            self._cells.pop(topic, None)
            forget(self._metrics, topic)
        return ErrorCode.NONE

    def _remove(self, key: tuple[str, int]) -> None:
        self.flushed_by_time.pop(self._partitions.pop(key), None)
        topic, index = key
        del self._of_topic[topic][index]
        if not self._of_topic[topic]:
            del self._of_topic[topic]

    async def _delete_log(self, log: Log) -> None:
        await self._offload.submit(_QUEUE, lambda: self._logs.delete(log.topic, log.partition))

    async def checkpoint(self, log_dir: LogDir) -> None:
        """Checkpoint the log start offsets of a directory now; raises LogDirFailed."""
        log_dir.require_online()
        job = self._logs.begin_checkpoint(log_dir)
        await self._offload.submit(_QUEUE, job.run)
        self._logs.finish_checkpoint(job)

    # -- events on this broker -------------------------------------------------------------------

    def configure(self, topic: str, config: TopicConfig) -> None:
        """Apply the changed configuration of a topic."""
        for partition in self._of_topic.get(topic, {}).values():
            partition.log.configure(config)
            partition.config_changed()
            self._note_flush_time(partition)

    def _note_flush_time(self, partition: Partition) -> None:
        if partition.log.config.flush_ms < LONG_MAX:
            self.flushed_by_time[partition] = None
        else:
            self.flushed_by_time.pop(partition, None)

    def log_start_moved(self, log: Log) -> None:
        """Notify the followers: retention has moved the start of a log."""
        partition = self.find((log.topic, log.partition))
        if partition is not None:
            partition.tell_followers()

    def log_dir_failed(self, path: str) -> None:
        """Take the replicas of a failed log directory offline, until the next start."""
        failed = [each for each in self if each.log.log_dir.path == path]
        _log.error("log directory offline", path=path, replicas=len(failed))
        for partition in failed:
            key = (partition.topic, partition.index)
            self._remove(key)
            self._offline.add(key)
            self._fetchers.unfollow(partition)
            self._resign(partition)
        self.moves.log_dir_failed(path)

    async def alter_log_dir(self, topic: str, index: int, path: str) -> None:
        """Move a replica to the log directory `path`; raises KafkaError as `LogDirMoves` does."""
        await self.moves.alter(TopicPartition(topic, index), path, self.partition)

    def resign_all(self) -> None:
        """Resign all leaderships for the shutdown: waiters fail, appends are refused, and later
        LeaderAndIsr requests too."""
        self._resigned = True
        for partition in self:
            self._resign(partition)

    def _resign(self, partition: Partition) -> None:
        self._resign_coordinators(partition)
        partition.resign()

    def _resign_coordinators(self, partition: Partition) -> None:
        """Let coordinators resign while the partition still takes their last records."""
        if partition.is_leader:
            for topic, observer in self._observers:
                if topic == partition.topic:
                    observer.resigned(partition)

    def _notify_observers(self, partition: Partition) -> None:
        for topic, observer in self._observers:
            if topic == partition.topic:
                if partition.is_leader:
                    observer.elected(partition)
                else:
                    observer.resigned(partition)


def _set_aside(logs: LogManager, log: Log) -> None:
    _log.warning("stray log set aside", topic=log.topic, partition=log.partition)
    logs.set_stray(log.topic, log.partition)
