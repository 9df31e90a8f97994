"""A replica manager with a disk in memory, and the controller's requests to it."""

import asyncio
import time
from random import Random
from typing import Any

from barnabas.broker.cluster.cache import FULL, MetadataCache
from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.loop.offload import InlineOffload, Offload
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.follower.fetcher import FetcherContext
from barnabas.broker.replication.follower.fetcher_manager import FetcherManager
from barnabas.broker.replication.isr_state import LastFetch
from barnabas.broker.replication.leader.isr_manager import IsrManager
from barnabas.broker.replication.log_dir_moves import LogDirMoves
from barnabas.broker.replication.quota import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.config.broker import BrokerConfig
from barnabas.config.topic import TopicConfig
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.opening.dir_marks import BrokerIdentity
from barnabas.storage.opening.log_manager import LogManager
from tests.support.mem_files import MemFiles

ME = 0
TOPIC_ID = bytes(range(16))
MAX_LAG_MS = 30_000


class SteppedClock(SystemClock):
    """A clock whose monotonic time stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:  # type: ignore[override]
        return self.seconds


class SilentConnection:
    """A connection to a leader that never answers."""

    async def request(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


class Replicas:
    """The replica manager under test and its collaborators."""

    offload: Offload = InlineOffload()

    def __init__(
        self,
        files: MemFiles | None = None,
        directories: tuple[str, ...] = ("/data",),
        **configs: str,
    ) -> None:
        self.files = files or MemFiles()
        self.failures: list[LogDirFailed] = []
        self.configs = configs
        self.broker = self.broker_config(directories)
        self.logs = LogManager(
            self.files,
            directories,
            BrokerIdentity(ME, "cluster", "boot"),
            now_ms=lambda: 0,
            rng=Random(0),
            producer_expiration_ms=lambda: 1000,
            on_failure=self.failures.append,
        )
        self.cache = MetadataCache("cluster")
        metrics = BrokerMetrics(Registry())
        self.topics = metrics.topics
        self.flusher = Flusher(self.offload, SystemClock(), metrics.logs.flush_time_ms.cell())
        self.logs.open(self.config)
        self.logs.acknowledge_last_run()
        self.clock = SteppedClock()
        self.isr_manager = IsrManager(
            ME,
            cache=self.cache,
            clock=self.clock,
            max_lag_ms=lambda: MAX_LAG_MS,
            metrics=metrics.replicas,
        )
        self.metrics = metrics
        self.quotas = ReplicationQuotas(ME, lambda: self.broker, self.config)
        self.fetchers = self._make_fetchers()
        self.manager = self._make_manager()
        self._partition_epoch = 0

    def broker_config(self, directories: tuple[str, ...]) -> BrokerConfig:
        return BrokerConfig.from_properties({"log.dirs": ",".join(directories)})

    def config(self, _topic: str) -> TopicConfig:
        texts = {key.replace("_", "."): value for key, value in self.configs.items()}
        return TopicConfig.resolve(texts, self.broker)

    def _make_fetchers(self) -> FetcherManager:
        context = FetcherContext(
            ME,
            config=lambda: self.broker,
            clock=self.clock,
            offload=self.offload,
            quota=self.quotas.follower,
            metrics=self.metrics.fetchers,
            broker_epoch=lambda: 1,
        )
        return FetcherManager(lambda _leader: SilentConnection(), context)

    def _make_manager(self) -> ReplicaManager:
        moves = LogDirMoves(
            self.logs,
            offload=self.offload,
            clock=self.clock,
            config=lambda: self.broker,
            moved=lambda _old, _new: None,
        )
        return ReplicaManager(
            ME,
            logs=self.logs,
            cache=self.cache,
            flusher=self.flusher,
            offload=self.offload,
            topic_config=self.config,
            metrics=self.topics,
            isr_manager=self.isr_manager,
            fetchers=self.fetchers,
            moves=moves,
            slicer=Slicer(time.monotonic),
        )

    async def lead(
        self,
        *,
        leader: int = ME,
        epoch: int = 0,
        isr: tuple[int, ...] = (ME,),
        replicas: tuple[int, ...] = (ME,),
        adding: tuple[int, ...] = (),
        topic_id: bytes = TOPIC_ID,
        topic: str = "t",
        index: int = 0,
        full: bool = False,
    ) -> int:
        """Send a LeaderAndIsr for one partition; return the error code of its answer."""
        self._partition_epoch += 1
        state = LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=epoch,
            isr=list(isr),
            partition_epoch=self._partition_epoch,
            replicas=list(replicas),
            adding_replicas=list(adding),
            is_new=epoch == 0,
        )
        states = LeaderAndIsrTopicState(
            topic_name=topic, topic_id=topic_id, partition_states=[state]
        )
        answer = await self.manager.apply_leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=0,
                controller_epoch=1,
                type=FULL if full else 1,
                topic_states=[states],
                live_leaders=[],
            )
        )
        code: int = answer.topics[0].partition_errors[0].error_code
        return code

    def fetched(
        self,
        replica: int,
        log_end: int,
        *,
        topic: str = "t",
        broker_epoch: int = 1,
        connection_id: int = 1,
    ) -> None:
        """Record a fetch of a follower of partition 0, outside of any session."""
        self.manager.partition(topic, 0).follower_fetched(
            replica,
            log_end,
            at=LastFetch(self.clock.monotonic(), connection_id),
            log_start=0,
            broker_epoch=broker_epoch,
        )

    async def stop(self, *, delete: bool, epoch: int = -1) -> int:
        state = StopReplicaPartitionState(
            partition_index=0, leader_epoch=epoch, delete_partition=delete
        )
        topic = StopReplicaTopicState(topic_name="t", partition_states=[state])
        answer = await self.manager.stop_replica(
            StopReplicaRequest(controller_id=0, controller_epoch=1, topic_states=[topic])
        )
        code: int = answer.partition_errors[0].error_code
        return code
