"""Partitions move while somebody writes to them: every acknowledged record is there, and once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from barnabas.cli import reassignments
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster as Client
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.client.producer import Delivered, Producer
from barnabas.client.reassignment_plan import Plan
from barnabas.testing import Cluster

PARTITIONS = 4
ROUND = (1, 2), (2, 3), (3, 1), (1, 2, 3), (2,)
"""Where all partitions go in turn, each a partition's way through two and three and one replica."""
DEADLINE = 30.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(configs={"min.insync.replicas": "1"}) as brokers:
        yield brokers


@pytest.fixture
async def client(brokers: Cluster) -> AsyncIterator[Client]:
    async with Client(brokers.bootstrap_servers, timeout=DEADLINE) as client:
        yield client


class Writer:
    """Writes numbered records to all partitions in turn until it is told to stop."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._stop = asyncio.Event()
        self.acknowledged: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        async with Producer(self._client) as producer:
            for number in count():
                if self._stop.is_set():
                    return
                value = b"%d " % number + b"x" * 2000
                partition = number % PARTITIONS
                sent = await producer.send(self._topic, value, partition=partition)
                sent.add_done_callback(lambda done, p=partition, v=value: self._note(done, p, v))
                if number % 50 == 0:
                    await producer.flush()
                    # Some 5 MB/s: a throttle below what is written would never let a replica join.
                    await asyncio.sleep(0.02)

    def _note(self, done: "asyncio.Future[Delivered]", partition: int, value: bytes) -> None:
        done.result()
        self.acknowledged[partition].append(value)

    async def stop(self) -> None:
        self._stop.set()
        await self._task


async def read_all(client: Client, topic: str) -> list[list[bytes]]:
    places = [(topic, index) for index in range(PARTITIONS)]
    ends = await find_offsets(client, dict.fromkeys(places, LATEST))
    consumer, read = Consumer(client), [[] for _ in places]
    consumer.assign(dict.fromkeys(places, EARLIEST))
    async with asyncio.timeout(DEADLINE):
        while any(len(read[index]) < ends[topic, index].offset for index in range(PARTITIONS)):
            for message in await consumer.poll():
                read[message.partition].append(message.value)
    return read


async def move(client: Client, plan: Plan, throttle: int | None = None) -> None:
    outcomes = await reassignments.execute(
        client, plan, throttle=throttle, additional=False, allow_factor_change=True
    )
    assert set(outcomes.values()) == {None}
    await arrival(client, plan)


async def arrival(client: Client, plan: Plan) -> None:
    """Returns when every partition of the plan is where it shall be."""
    async with asyncio.timeout(DEADLINE):
        while True:
            rows, _ = await reassignments.verify(client, plan, keep_throttle=False)
            if all(row["state"] == "done" for row in rows):
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("throttle", [None, 20_000_000])
async def test_a_loaded_topic_moves_and_loses_nothing(client: Client, throttle: int | None) -> None:
    topic = f"loaded-{throttle}"
    await Admin(client).create_topic(topic, partitions=PARTITIONS, replication_factor=2)
    writer = Writer(client, topic)
    for replicas in ROUND:
        turned = {
            (topic, index): (*replicas[index % len(replicas) :], *replicas[: index % len(replicas)])
            for index in range(PARTITIONS)
        }
        await move(client, turned, throttle)
    await writer.stop()
    assert await read_all(client, topic) == writer.acknowledged
    assert min(map(len, writer.acknowledged)) > 0


async def test_a_move_outlives_the_controller_and_a_broker_that_restarts(
    brokers: Cluster, client: Client
) -> None:
    await Admin(client).create_topic("tough", partitions=PARTITIONS, replication_factor=2)
    start: Plan = {("tough", index): (1, 2) for index in range(PARTITIONS)}
    await move(client, start)
    writer = Writer(client, "tough")
    there: Plan = {("tough", index): (3, 1) for index in range(PARTITIONS)}
    await PartitionAdmin(client).reassign(there)
    controller = brokers.controller
    await asyncio.to_thread(brokers.stop_broker, controller)
    await asyncio.to_thread(brokers.start_broker, controller)
    await arrival(client, there)
    await writer.stop()
    assert await read_all(client, "tough") == writer.acknowledged
