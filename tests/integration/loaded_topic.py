"""A topic under load while its partitions move, and the check of its records at the end."""

import asyncio
from itertools import count

from barnabas.cli import reassignments
from barnabas.client.cluster import Cluster as Client
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.producer import Delivered, Producer
from barnabas.client.reassignment_plan import Plan

PARTITIONS = 4
DEADLINE = 30.0


class Writer:
    """Writes numbered records to all partitions in turn until it is stopped."""

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
                    # About 5 MB/s: a throttle below the write rate would never let a replica join
                    # the ISR.
                    await asyncio.sleep(0.02)

    def _note(self, done: "asyncio.Future[Delivered]", partition: int, value: bytes) -> None:
        done.result()
        self.acknowledged[partition].append(value)

    async def written(self, records: int) -> None:
        """Return when each partition has that many records, of 2 KB each."""
        async with asyncio.timeout(DEADLINE):
            while min(map(len, self.acknowledged)) < records:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

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
    """Return when the assignment of every partition is the plan's."""
    async with asyncio.timeout(DEADLINE):
        while True:
            rows, _ = await reassignments.verify(client, plan, keep_throttle=False)
            if all(row.state == "done" for row in rows):
                return
            await asyncio.sleep(0.05)
