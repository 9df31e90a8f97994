"""Every replica on this broker, and what the controller makes of them.

Opening and deleting logs waits for the disk and therefore leaves the loop; who leads, who is in
sync and what is committed changes only on it.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

from barnabas.broker.metadata.cache import FULL, MetadataCache
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.offload import Offload
from barnabas.broker.replication.append_queue import AppendQueue
from barnabas.broker.replication.fetcher_manager import FetcherManager
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.in_sync import InSyncSets
from barnabas.broker.replication.log_dir_moves import LogDirMoves
from barnabas.broker.replication.partition import NO_EPOCH, Partition
from barnabas.broker.replication.topic_cells import TopicCells, forget
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
from barnabas.protocol.types import ZERO_UUID
from barnabas.storage.log import Log
from barnabas.storage.log_dir import LogDir
from barnabas.storage.log_manager import LogManager

_LANE = "logs"
_PARTITIONS_IN_A_TURN = 50
_ANY_EPOCH = -2
"""Leader epoch of a StopReplica that deletes whatever is there."""
_log = get_logger(__name__)


class LeadershipObserver(Protocol):
    """Who acts when this broker begins or ceases to lead a partition: the coordinators."""

    def elected(self, partition: Partition, /) -> None: ...

    def resigned(self, partition: Partition, /) -> None: ...


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
        in_sync: InSyncSets,
        fetchers: FetcherManager,
        moves: LogDirMoves,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._cache = cache
        self._flusher = flusher
        self._offload = offload
        self._topic_config = topic_config
        self._metrics = metrics
        self._in_sync = in_sync
        self._fetchers = fetchers
        self.moves = moves
        self.appends = AppendQueue(offload)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: set[tuple[str, int]] = set()
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
        """Replicas whose log directory has failed."""
        return len(self._offline)

    def observe(self, topic: str, observer: LeadershipObserver) -> None:
        """Tell `observer` of every change of leadership in a topic."""
        self._observers.append((topic, observer))

    def partition(self, topic: str, index: int) -> Partition:
        """The replica of a partition on this broker.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER where only other
        brokers have one, KAFKA_STORAGE_ERROR where its directory has failed.
        """
        partition = self._partitions.get((topic, index))
        if partition is not None:
            return partition
        if (topic, index) in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if self._cache.partition(topic, index) is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- what the controller says ----------------------------------------------------------------

    async def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Create, lead or follow what the controller says, partition by partition.

        A full request names all replicas of this broker: others are strays, and set aside. Those of
        a topic that it names without partitions stay as they are.
        """
        if request.type == FULL and not self._resigned:
            await self._keep_only(request)
        topics, turns = [], count(1)
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                code = await self._apply(topic, state)
                errors.append(
                    LeaderAndIsrPartitionError(
                        partition_index=state.partition_index, error_code=code
                    )
                )
                if next(turns) % _PARTITIONS_IN_A_TURN == 0:
                    # A broker may be told of thousands at once, and others have their own haste.
                    await asyncio.sleep(0)
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
                await self._unfollow(partition)
                partition.log.log_dir.require_online()
            changed = partition.apply(state)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._offline.add(key)
            return error.code
        if changed:
            self._tell(partition)
        if not partition.is_leader:
            self._fetchers.follow(partition)
        return ErrorCode.NONE

    async def _unfollow(self, partition: Partition) -> None:
        """Return when nothing that was begun for the leader before touches the log any more."""
        work = self._fetchers.unfollow(partition)
        if work is not None:
            await work

    async def _keep_only(self, request: LeaderAndIsrRequest) -> None:
        left_alone = {each.topic_name for each in request.topic_states if not each.partition_states}
        named = {
            (topic.topic_name, state.partition_index): topic.topic_id
            for topic in request.topic_states
            for state in topic.partition_states
        }
        for key, partition in list(self._partitions.items()):
            # A topic may have been deleted, and made again, while nobody could tell this broker.
            if key[0] not in left_alone and named.get(key) != partition.topic_id:
                del self._partitions[key]
                await self._unfollow(partition)
                self._resign(partition)
                await self.moves.stop(key)
        for log in self._logs.logs:
            if log.topic in left_alone:
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
            # Of a deleted topic of the same name, or its partition.metadata is damaged.
            _set_aside(self._logs, log)
            log = None
        if log is None:
            log = await self._offload.submit(
                _LANE,
                lambda: self._logs.create(name, index, topic.topic_id, config, is_new=state.is_new),
            )
        else:
            log.configure(config)
        # Its directory may have failed while it was made, and nobody would find it offline then.
        log.log_dir.require_online()
        cells = self._cells.get(name)
        if cells is None:
            cells = self._cells[name] = TopicCells(self._metrics, name)
        partition = Partition(log, self._broker_id, cells, self._flusher.request, self._in_sync)
        self._partitions[name, index] = partition
        self._offline.discard((name, index))
        self.moves.begin(partition)
        return partition

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop serving replicas, and delete those that the controller wants gone."""
        errors = [
            StopReplicaPartitionError(
                topic_name=topic.topic_name,
                partition_index=state.partition_index,
                error_code=await self._stop(topic.topic_name, state),
            )
            for topic in request.topic_states
            for state in topic.partition_states
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
            del self._partitions[key]
            await self._unfollow(partition)
            self._resign(partition)
            await self._fetchers.close_idle()
            await self.moves.stop(key)
        if not state.delete_partition:
            return ErrorCode.NONE
        self._offline.discard(key)
        log = self._logs.get(*key)
        try:
            if log is not None:
                await self._delete_log(log)
        except KafkaError as error:
            return error.code
        if not any(name == topic for name, _ in self._partitions):
            self._cells.pop(topic, None)
            forget(self._metrics, topic)
        return ErrorCode.NONE

    async def _delete_log(self, log: Log) -> None:
        await self._offload.submit(_LANE, lambda: self._logs.delete(log.topic, log.partition))

    async def checkpoint(self, log_dir: LogDir) -> None:
        """Write down now where the logs of a directory start; raises LogDirFailed."""
        log_dir.require_online()
        job = self._logs.begin_checkpoint(log_dir)
        await self._offload.submit(_LANE, job.run)
        self._logs.finish_checkpoint(job)

    # -- what happens on this broker -------------------------------------------------------------

    def configure(self, topic: str, config: TopicConfig) -> None:
        """A topic's configuration has changed."""
        for (name, _), partition in self._partitions.items():
            if name == topic:
                partition.log.configure(config)
                partition.config_changed()

    def log_start_moved(self, log: Log) -> None:
        """Retention has taken the beginning of a log."""
        partition = self._partitions.get((log.topic, log.partition))
        if partition is not None:
            partition.tell_followers()

    def log_dir_failed(self, path: str) -> None:
        """A log directory is offline: its replicas serve nobody until the next start."""
        failed = [each for each in self if each.log.log_dir.path == path]
        _log.error("log directory offline", path=path, replicas=len(failed))
        for partition in failed:
            key = (partition.topic, partition.index)
            del self._partitions[key]
            self._offline.add(key)
            self._fetchers.unfollow(partition)
            self._resign(partition)
        self.moves.log_dir_failed(path)

    async def place(self, topic: str, index: int, path: str) -> None:
        """Have a replica lie in the log directory `path`; raises KafkaError as `LogDirMoves`."""
        await self.moves.place((topic, index), path, self.partition)

    def resign_all(self) -> None:
        """The broker stops: nobody who waits will be answered, nothing more is appended, whatever
        the controller still says."""
        self._resigned = True
        for partition in self:
            self._resign(partition)

    def _resign(self, partition: Partition) -> None:
        was_leader = partition.is_leader
        partition.resign()
        if was_leader:
            self._tell(partition)

    def _tell(self, partition: Partition) -> None:
        for topic, observer in self._observers:
            if topic == partition.topic:
                if partition.is_leader:
                    observer.elected(partition)
                else:
                    observer.resigned(partition)


def _set_aside(logs: LogManager, log: Log) -> None:
    _log.warning("stray log set aside", topic=log.topic, partition=log.partition)
    logs.set_stray(log.topic, log.partition)
