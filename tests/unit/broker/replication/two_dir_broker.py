"""A broker with two log directories and one replica, and a disk that can crash at any call."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.replication.partition import Partition
from barnabas.config.broker import BrokerConfig
from barnabas.config.topic import TopicConfig
from barnabas.protocol.records.batch import iter_headers
from barnabas.storage.log.log import Log
from tests.support.mem_files import Fault, MemFiles
from tests.unit.broker.replication.replicas import Replicas
from tests.unit.storage.log_bench import NOW, batch

DIRECTORIES = ("/a", "/b")
PRODUCER = 7
T = TypeVar("T")


class PowerCut(BaseException):
    """The end of the process."""


class CrashingFiles(MemFiles):
    """Files that end the process at the call number `cut_at`; reads do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.cut_at = 0

    def strike(self, call: str, path: str) -> Fault | None:
        if call != "read":
            self.calls += 1
        if self.cut_at and self.calls >= self.cut_at:
            raise PowerCut
        return super().strike(call, path)


class DeferredOffload(InlineOffload):
    """An offload that runs its work one iteration of the event loop later."""

    def submit(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:  # noqa: ARG002
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        loop.call_soon(run)
        return future


class TwoDirBroker(Replicas):
    """A broker that leads partition 0 of topic t, with an idempotent producer."""

    offload = DeferredOffload()

    def __init__(
        self, files: MemFiles | None = None, threads: int | None = None, **configs: str
    ) -> None:
        self._threads = threads
        super().__init__(files, DIRECTORIES, **({"flush_messages": "1"} | configs))

    def config(self, topic: str) -> TopicConfig:
        """Return the configuration with segments smaller than a client may configure."""
        return super().config(topic).replace(segment_bytes=1000, segment_index_bytes=240)

    def broker_config(self, directories: tuple[str, ...]) -> BrokerConfig:
        config = super().broker_config(directories)
        return config.replace(num_replica_alter_log_dirs_threads=self._threads)

    @property
    def partition(self) -> Partition:
        return self.manager.partition("t", 0)

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def other_dir(self) -> str:
        """The directory that does not hold the replica."""
        return next(path for path in DIRECTORIES if path != self.log.log_dir.path)

    def put(self, count: int = 1) -> None:
        """Append batches of one record each; the sequence is the offset."""
        for _ in range(count):
            data = written(self.log.log_end_offset)
            self.partition.append(data, now_ms=NOW)

    async def move(self, path: str | None = None) -> None:
        await self.manager.alter_log_dir("t", 0, path or self.other_dir)

    async def moved(self) -> None:
        await until(lambda: not len(self.manager.moves))


def written(offset: int) -> bytearray:
    """Return the producer's batch for an offset; every fifth one is ten times larger."""
    value = b"%d " % offset * (40 if offset % 5 == 0 else 4)
    return batch(value, producer_id=PRODUCER, producer_epoch=0, base_sequence=offset)


def values(log: Log) -> list[tuple[int, int, int]]:
    """Return the offset, sequence and size of every batch in a log."""
    found = log.read(log.log_start_offset, 1 << 30, limit=log.log_end_offset).read_bytes()
    return [(h.base_offset, h.base_sequence, h.size) for _, h in iter_headers(found)]


def expected(start: int, end: int) -> list[tuple[int, int, int]]:
    return [(offset, offset, len(written(offset))) for offset in range(start, end)]


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0)
