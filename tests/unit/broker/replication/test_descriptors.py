"""The descriptors of a broker: which topics are refused, and which files are closed."""

import asyncio

import pytest

from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.replication.coordinator_log import LedPartition
from barnabas.broker.replication.descriptors import LOG_S, RELEASE_S, Descriptors
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.files.errors import OutOfDescriptors
from tests.support.data_path import NOW_MS, batch
from tests.support.waiting import eventually
from tests.unit.broker.replication.replicas import Replicas

SHORT = OSError(24, "Too many open files")


class Broker:
    """Partitions that this broker leads, and its descriptors."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.replicas = Replicas()
        self.descriptors = Descriptors(lambda: self.limit, self.replicas.clock.monotonic)
        self.descriptors.begin(self.replicas.manager)

    async def lead(self, count: int) -> list[Partition]:
        for number in range(count):
            await self.replicas.lead(topic=f"t{number}", topic_id=bytes([number]) * 16)
        return [self.replicas.manager.partition(f"t{number}", 0) for number in range(count)]

    def later(self) -> None:
        self.replicas.clock.seconds += RELEASE_S


def put(partition: Partition) -> None:
    partition.append(bytearray(batch(b"v")), now_ms=NOW_MS)


def opened(partitions: list[Partition]) -> list[bool]:
    return [each.log.holds_file for each in partitions]


async def test_partitions_are_refused_that_would_have_no_descriptor() -> None:
    broker = Broker(limit=80)
    await broker.lead(10)
    broker.descriptors.connections = lambda: 20
    broker.descriptors.require(18)  # 32 of 80 are reserved
    with pytest.raises(KafkaError, match="10 partitions and 20 connections") as refused:
        broker.descriptors.require(19)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    broker.limit = None
    broker.descriptors.require(41)


async def test_refused_topics_and_shortages_are_logged_once_in_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker(limit=80)
    for _ in range(3):
        broker.descriptors.run_short(SHORT)
        with pytest.raises(KafkaError):
            broker.descriptors.require(1000)
    assert len(caplog.messages) == 2
    assert all("ulimit -n" in message for message in caplog.messages)
    broker.replicas.clock.seconds += LOG_S
    broker.descriptors.run_short(SHORT)
    assert len(caplog.messages) == 3


async def test_shortage_closes_the_files_of_flushed_idle_partitions() -> None:
    broker = Broker()
    partitions = busy, idle, flushed = await broker.lead(3)
    for partition in partitions:
        put(partition)
    flushed.log.flush()
    broker.descriptors.run_short(SHORT)
    assert opened(partitions) == [True, True, True], "it is not known yet which one is idle"
    put(busy)
    broker.descriptors.run_short(SHORT)
    assert opened(partitions) == [True, True, True], "the last search was a moment ago"
    broker.later()
    broker.descriptors.run_short(SHORT)
    assert opened(partitions) == [True, True, False], "an idle partition is flushed first"
    await eventually(lambda: idle.log.flushed_offset == 1)
    broker.later()
    put(busy)
    broker.descriptors.run_short(SHORT)
    assert opened(partitions) == [True, False, False]
    put(idle)
    assert idle.log.log_end_offset == 2


async def test_released_file_is_opened_by_the_next_append_and_by_readers() -> None:
    broker = Broker()
    (partition,) = await broker.lead(1)
    put(partition)
    log = partition.log
    assert not log.release_file()
    log.flush()
    assert log.release_file()
    assert log.read(0, 1 << 20, limit=1).read_bytes()
    assert not log.holds_file
    put(partition)
    assert log.holds_file
    assert log.flush() == 2


async def test_coordinator_that_loads_waits_for_a_descriptor() -> None:
    broker = Broker()
    (partition,) = await broker.lead(1)
    put(partition)
    partition.log.flush()
    assert partition.log.release_file()
    broker.replicas.files.most_kept = 0
    with pytest.raises(OutOfDescriptors):
        partition.log.read(0, 1 << 20, limit=1)
    reading = asyncio.ensure_future(LedPartition(partition, InlineOffload()).read(0, 1 << 20))
    await asyncio.sleep(0)
    assert not reading.done()
    broker.replicas.files.most_kept = None
    assert await reading
    assert not broker.replicas.failures
