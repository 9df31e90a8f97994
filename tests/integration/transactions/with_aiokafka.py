"""aiokafka copies records from input to output, and reads the output."""

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
from aiokafka import TopicPartition

from tests.integration.transactions.transformer import (
    Route,
    Taken,
    insist,
    silently,
)


class Worker:
    """See `transformer.Worker`. The library's tasks only run during calls, while its loop runs."""

    def __init__(self, servers: str, route: Route) -> None:
        self._route = route
        self._servers = servers
        self._runner = asyncio.Runner()
        self._producer: Any = None
        self._sent: list[Any] = []
        self._consumer = self._runner.run(self._consuming())
        self.renew()

    async def _consuming(self) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            self._route.input,
            bootstrap_servers=self._servers,
            retry_backoff_ms=20,
            group_id=self._route.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        return consumer

    def poll(self, limit: int) -> list[Taken]:
        polled = self._runner.run(self._consumer.getmany(timeout_ms=100, max_records=limit))
        return [
            Taken(each.partition, each.offset, each.value)
            for records in polled.values()
            for each in records
        ]

    def rewind(self) -> dict[int, int]:
        return self._runner.run(self._rewind())

    async def _rewind(self) -> dict[int, int]:
        while not self._consumer.assignment():
            await self._consumer.getmany(timeout_ms=100)
        at = {}
        for place in self._consumer.assignment():
            at[place.partition] = await self._consumer.committed(place) or 0
            self._consumer.seek(place, at[place.partition])
        return at

    def begin(self) -> None:
        self._sent = []
        self._runner.run(self._producer.begin_transaction())

    def send(self, partition: int, value: bytes) -> None:
        self._sent.append(
            self._runner.run(self._producer.send(self._route.output, value, partition=partition))
        )

    def send_offsets(self, offsets: dict[int, int]) -> None:
        places = {
            TopicPartition(self._route.input, partition): at for partition, at in offsets.items()
        }
        self._runner.run(self._producer.send_offsets_to_transaction(places, self._route.group))

    def commit(self) -> None:
        self._runner.run(self._commit())

    async def _commit(self) -> None:
        # The library commits the records it could send, and leaves their errors to the caller.
        await asyncio.gather(*self._sent)
        await self._producer.commit_transaction()

    def abort(self) -> None:
        self._runner.run(self._producer.abort_transaction())

    def renew(self) -> None:
        self._runner.run(self._renew())

    async def _renew(self) -> None:
        if self._producer is not None:
            await self._producer.stop()
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._servers,
            retry_backoff_ms=20,
            transactional_id=self._route.transactional_id,
            linger_ms=2,
        )
        await self._producer.start()

    def close(self) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        await self._producer.stop()
        await self._consumer.stop()


def read(servers: str, topic: str, partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield committed records of the output, with their partitions, without end."""
    with asyncio.Runner() as runner:
        consumer = insist(lambda: runner.run(_reading(servers, topic, partitions)), silently)
        while True:
            polled = runner.run(consumer.getmany(timeout_ms=100))
            for records in polled.values():
                for each in records:
                    yield each.partition, each.value


async def _reading(servers: str, topic: str, partitions: int) -> Any:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers, retry_backoff_ms=20, isolation_level="read_committed"
    )
    await consumer.start()
    places = [TopicPartition(topic, index) for index in range(partitions)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
    return consumer
