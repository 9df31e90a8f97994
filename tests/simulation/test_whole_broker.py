"""A complete broker on virtual time, with disk and network in memory: one seed, one history."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer, ProducerSettings
from barnabas.protocol.messages import produce as produce_messages
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.record import Record, build_batch
from tests.simulation.one_broker import broker_on
from tests.support.mem_files import MemFiles
from tests.support.virtual_loop import BIRTHDAY_MS, VirtualClock, VirtualLoop


async def work(loop: VirtualLoop, seed: int, **keys: str) -> None:
    """Run two producers, a group of two members, one of which leaves, and a restart in the
    middle."""
    files = MemFiles()
    clock = VirtualClock(loop)
    for round_ in range(2):
        broker = broker_on(loop, seed, files, **keys)
        await broker.start()
        async with Cluster("sim:9092") as cluster:
            if not round_:
                await Admin(cluster).create_topic("orders", partitions=4)
            await produce(cluster, clock, round_)
        seen = await consume_as_group(loop, expected=200)
        loop.note(f"round {round_}: {sorted(seen)}")
        assert len(seen) == len(set(seen)) == 200
        await broker.stop()


async def produce(cluster: Cluster, clock: VirtualClock, round_: int) -> None:
    async def one(name: str) -> None:
        settings = ProducerSettings(batch_size=500, linger=0.01)
        producer = Producer(cluster, settings, now=lambda: clock.now_ms() / 1000)
        async with producer:
            for number in range(100):
                key = f"{name}-{number % 7}".encode()
                await producer.send("orders", f"{round_}/{name}/{number}".encode(), key=key)

    await asyncio.gather(one("a"), one("b"))


async def consume_as_group(loop: VirtualLoop, *, expected: int) -> list[bytes]:
    seen: list[bytes] = []

    async def member(stay_for: float) -> None:
        leave_at = loop.time() + stay_for
        async with Cluster("sim:9092") as cluster:
            consumer = Consumer(cluster, FetchSettings(max_wait=0.1, offset_reset=EARLIEST))
            async with GroupMember(cluster, consumer, "readers", ["orders"]) as member:
                while len(seen) < expected and loop.time() < leave_at:
                    await member.ensure_joined()
                    values = [message.value or b"" for message in await consumer.poll()]
                    loop.note(f"read {values}")
                    seen.extend(values)
                    await member.commit()

    async with asyncio.timeout(600):
        await asyncio.gather(member(5), member(1000))
    return seen


async def large_batches(loop: VirtualLoop, seed: int) -> None:
    """Let three connections write to a compacted topic, whose large batches are validated in steps:
    the order of the log is the order in which the seed let the requests arrive."""
    broker = broker_on(loop, seed, MemFiles())
    await broker.start()

    async def write(name: str, counts: list[int]) -> None:
        connection = await Connection.open("sim", 9092)
        for count in counts:
            records = [Record(number, BIRTHDAY_MS, b"k", b"", ()) for number in range(count)]
            data = PartitionProduceData(index=0, records=build_batch(records))
            topic = TopicProduceData(name="compacted", partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
            answer = await connection.request(produce_messages.API, request, version=9)
            offset = answer.responses[0].partition_responses[0].base_offset
            loop.note(f"{name}: {count} records at {offset}")
        await connection.close()

    async with Cluster("sim:9092") as cluster:
        configs = {"cleanup.policy": "compact"}
        await Admin(cluster).create_topic("compacted", partitions=1, configs=configs)
    await asyncio.gather(
        write("a", [3000, 1, 2000]), write("b", [1, 3000, 1]), write("c", [1] * 20)
    )
    await broker.stop()


def history(
    seed: int, what: Callable[[VirtualLoop, int], Coroutine[Any, Any, None]] = work
) -> list[str]:
    loop = VirtualLoop(seed)
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(what(loop, seed))
        return loop.trace
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_seed_replays_the_same_history_of_a_broker(seed: int) -> None:
    assert history(seed) == history(seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_history_of_a_broker_without_fast_paths_is_the_same(seed: int) -> None:
    """Not a byte is sent at another time."""
    assert history(seed) == history(seed, partial(work, fast_paths_enable="false"))


def test_history_with_batches_validated_in_steps_is_replayed() -> None:
    trace = history(1, large_batches)
    assert sum("records at" in line for line in trace) == 26
    assert trace == history(1, large_batches)


def test_other_seed_is_another_history_of_a_broker() -> None:
    assert history(1) != history(2)
