"""Brokers with several log directories: replicas move between them, and one fails, under load."""

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.app import Broker
from barnabas.broker.store.embedded import EmbeddedStore
from barnabas.client.cluster import Cluster
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.files.files import Files, OsFile, OsFiles
from tests.support.in_cluster import member, shared_metadata
from tests.support.waiting import eventually

PARTITIONS = 6
DEADLINE_S = 60.0
BROKER_IDS = (0, 1, 2)


class FailingFiles(OsFiles):
    """A file system on which one directory can start to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = "nothing"

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        return FailingFile(self, path, os.dup(file._fd))


class FailingFile(OsFile):
    __slots__ = ("_disk",)

    def __init__(self, disk: FailingFiles, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def append(self, data: Buffer) -> None:
        if self.path.startswith(self._disk.failing):
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        super().append(data)


class Load:
    """Writes numbers to every partition of t, acks=all, from a thread."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.acknowledged: dict[int, list[bytes]] = {each: [] for each in range(PARTITIONS)}
        self.refused: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        writing = asyncio.create_task(asyncio.to_thread(self._write))
        try:
            yield
        finally:
            self._stop.set()
            await writing

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.01):
            for partition in range(PARTITIONS):
                value = b"%d " % number * 200
                number += 1
                self._producer.produce("t", value, partition=partition, callback=self._told)
            self._producer.poll(0)
        assert self._producer.flush(DEADLINE_S) == 0

    def _told(self, error: object, message: object) -> None:
        if error is not None:
            self.refused.append(str(error))
        else:
            self.acknowledged[message.partition()].append(message.value())  # type: ignore[attr-defined]

    def read(self) -> dict[int, list[bytes]]:
        """Return all records of t."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "g", "log_level": 0})
        found: dict[int, list[bytes]] = {each: [] for each in range(PARTITIONS)}
        consumer.assign([TopicPartition("t", each, 0) for each in range(PARTITIONS)])
        left = self.count
        while left > 0:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            assert message.error() is None
            found[message.partition()].append(message.value())
            left -= 1
        consumer.close()
        return found


def directories(root: Path, broker_id: int) -> list[Path]:
    return [root / f"{broker_id}{letter}" for letter in "ab"]


@asynccontextmanager
async def of_two_directories(
    store: EmbeddedStore, root: Path, broker_id: int, files: Files | None = None
) -> AsyncIterator[Broker]:
    async with member(
        store,
        root,
        broker_id,
        files=files,
        log_dirs=",".join(map(str, directories(root, broker_id))),
        min_insync_replicas=2,
        default_replication_factor=3,
        offsets_topic_num_partitions=1,
        auto_leader_rebalance_enable="false",
    ) as broker:
        yield broker


def create(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    assignment = [[i % 3, (i + 1) % 3, (i + 2) % 3] for i in range(PARTITIONS)]
    admin.create_topics([NewTopic("t", PARTITIONS, replica_assignment=assignment)])["t"].result(30)


def in_sync(broker: Broker) -> list[int]:
    """Return how many replicas of each partition are in sync, from this broker's metadata cache."""
    cache = broker._core.cache
    states = [cache.partition("t", index) for index in range(PARTITIONS)]
    return [0 if state is None else len(state.isr) for state in states]


def lies_in(broker: Broker) -> dict[int, str]:
    return {
        each.index: each.log.log_dir.path
        for each in broker._replication.replicas
        if each.topic == "t"
    }


def segments(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.glob("*.log")}


async def test_replicas_move_between_directories_while_clients_write(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        brokers = [
            await stack.enter_async_context(of_two_directories(store, tmp_path, each))
            for each in BROKER_IDS
        ]
        servers = brokers[0].bootstrap_servers
        await asyncio.to_thread(create, servers)
        load = Load(servers)
        async with load.flowing():
            await eventually(lambda: load.count > 200)
            for _ in range(2):
                wanted = {each: elsewhere(brokers[each], tmp_path, each) for each in BROKER_IDS}
                async with Cluster(servers) as cluster:
                    for each, places in wanted.items():
                        asked = {("t", index): path for index, path in places.items()}
                        outcomes = await PartitionAdmin(cluster).move_within(each, asked)
                        assert set(outcomes.values()) == {None}
                await until_there(brokers, wanted)
            so_far = load.count
            await eventually(lambda: load.count > so_far + 100)
        await eventually(lambda: in_sync(brokers[0]) == [3] * PARTITIONS)
        assert load.refused == []
        assert await asyncio.to_thread(load.read) == load.acknowledged
        where = [lies_in(broker) for broker in brokers]
    for index in range(PARTITIONS):
        copies = [segments(Path(each[index]) / f"t-{index}") for each in where]
        assert copies[0] == copies[1] == copies[2]
        assert copies[0]


async def until_there(brokers: list[Broker], wanted: dict[int, dict[int, str]]) -> None:
    await eventually(lambda: all(lies_in(brokers[each]) == wanted[each] for each in wanted))


def elsewhere(broker: Broker, root: Path, broker_id: int) -> dict[int, str]:
    one, other = map(str, directories(root, broker_id))
    return {index: other if path == one else one for index, path in lies_in(broker).items()}


async def test_a_directory_fails_and_clients_go_on_with_the_others(tmp_path: Path) -> None:
    disk = FailingFiles()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        others = [
            await stack.enter_async_context(of_two_directories(store, tmp_path, each))
            for each in BROKER_IDS[1:]
        ]
        servers = others[0].bootstrap_servers
        load = Load(servers)
        async with of_two_directories(store, tmp_path, 0, disk) as victim:
            await asyncio.to_thread(create, servers)
            async with load.flowing():
                await eventually(lambda: load.count > 200)
                broken = directories(tmp_path, 0)[1]
                lost = [index for index, path in lies_in(victim).items() if path == str(broken)]
                kept = set(range(PARTITIONS)) - set(lost)
                assert lost
                assert kept
                disk.failing = str(broken)
                cache = others[0]._core.cache
                await eventually(lambda: all(len(cache.partition("t", i).isr) == 2 for i in lost))
                assert all(cache.partition("t", i).leader != 0 for i in lost)
                assert {cache.partition("t", i).leader for i in kept} >= {0}
                so_far = load.count
                await eventually(lambda: load.count > so_far + 100)
            assert load.refused == []
            assert set(lies_in(victim)) == kept
        shutil.rmtree(broken)
        disk.failing = "nothing"
        async with of_two_directories(store, tmp_path, 0, disk) as back:
            await eventually(lambda: in_sync(others[0]) == [3] * PARTITIONS)
            assert set(lies_in(back)) == set(range(PARTITIONS))
            assert await asyncio.to_thread(load.read) == load.acknowledged
