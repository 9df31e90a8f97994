"""The follower side of a broker: logs in memory, and fetchers of a fake leader."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.loop.offload import InlineOffload, Offload
from barnabas.broker.replication.flusher import Flusher
from barnabas.broker.replication.follower.fetcher import FetcherContext
from barnabas.broker.replication.follower.fetcher_manager import FetcherManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quota import ReplicationQuotas
from barnabas.broker.replication.topic_cells import TopicCells
from barnabas.config.broker import BrokerConfig
from barnabas.config.topic import TopicConfig
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.flush import RolledLogs
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_parts import LogLocation, LogOptions
from barnabas.storage.opening.recovery import load_log
from tests.support.mem_files import MemFiles
from tests.unit.broker.replication.fake_leader import Leader, content, lead, write

ME, LEADER = 1, 0
T = TypeVar("T")
KEY = (b"t" * 16, 0)
QUICK = {"replica.fetch.wait.max.ms": "20", "replica.fetch.backoff.ms": "16"}


def make_log(
    files: MemFiles, index: int = 0, config: TopicConfig | None = None, *, path: str = "/data"
) -> Log:
    for each in (path, f"{path}/t-{index}"):
        if not files.exists(each):
            files.make_dir(each)
    location = LogLocation(files, LogDir(files, path), f"{path}/t-{index}", "t", index, b"t" * 16)
    options = LogOptions(lambda: 1000, lambda _: 0, lambda _: None, RolledLogs())
    return load_log(
        location, config or TopicConfig(), options,
        clean=False, recovery_point=0, log_start_offset=0, now_ms=0,
    )  # fmt: skip


class NoIsrChanges:
    """The ISR port of a broker that leads no partition."""

    def now(self) -> float:
        return 0.0

    def awaits(self, *_: object) -> bool:
        raise AssertionError("no partition is led here")

    def maybe_expand(self, *_: object) -> None:
        raise AssertionError("no partition is led here")


def led(leader: Leader, index: int = 0, epoch: int = 0) -> Log:
    log = make_log(MemFiles(), index)
    lead(log, epoch)
    leader.add(log, epoch)
    return log


def add(leader: Leader, log: Log, *values: bytes, epoch: int = 0) -> None:
    write(log, *values, epoch=epoch)
    leader.changed()


def equal(partition: Partition, log: Log) -> Callable[[], bool]:
    return lambda: (
        partition.log.log_end_offset == log.log_end_offset
        and not partition.log.truncating
        and content(partition.log) == content(log)
    )


class ManualOffload:
    """An offload whose work waits for `run_waiting`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []

    def submit(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:  # noqa: ARG002
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, work))
        return future

    def run_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future, work in waiting:
            future.set_result(work())

    def close(self) -> None:
        pass


class JumpingClock(SystemClock):
    """A clock whose monotonic time can be moved ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return time.monotonic() + self.ahead


class FollowerBroker:
    """Broker 1, which follows broker 0."""

    def __init__(self, leader: Leader, offload: Offload | None = None, **configs: str) -> None:
        self.leader = leader
        self.files = MemFiles()
        self.topic_config = TopicConfig()
        properties = QUICK | {key.replace("_", "."): value for key, value in configs.items()}
        self.config = BrokerConfig.from_properties(properties)
        metrics = BrokerMetrics(Registry())
        self.clock, offload = JumpingClock(), offload or InlineOffload()
        self.flusher = Flusher(offload, self.clock, metrics.logs.flush_time_ms.cell())
        self._cells = TopicCells(metrics.topics, "t")
        self.metrics = metrics.fetchers
        self.quota = ReplicationQuotas(
            ME, lambda: self.config, lambda _: self.topic_config
        ).follower
        context = FetcherContext(
            ME, lambda: self.config, self.clock, offload, self.quota, self.metrics, lambda: 77
        )
        self.fetchers = FetcherManager(leader.connect, context)

    def partition(self, index: int = 0, *, path: str = "/data") -> Partition:
        log = make_log(self.files, index, self.topic_config, path=path)
        return Partition(log, ME, self._cells, self.flusher.request, NoIsrChanges())

    def follow(self, partition: Partition, epoch: int = 0, leader: int = LEADER) -> None:
        assert self.fetchers.unfollow(partition) is None
        partition.apply(
            LeaderAndIsrPartitionState(
                partition_index=partition.index,
                controller_epoch=0,
                leader=leader,
                leader_epoch=epoch,
                isr=[LEADER],
                partition_epoch=epoch,
                replicas=[LEADER, ME],
                adding_replicas=[ME],
            )
        )
        self.fetchers.follow(partition)

    async def stop(self) -> None:
        await self.fetchers.stop()
