"""Random histories of partitions, and the records that a real consumer of them is given."""

import asyncio
import time
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing
from random import Random
from typing import Any
from unittest.mock import patch

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Position

from barnabas.client import group_lag
from barnabas.client.admin import SAFE_DOWNGRADE, UPGRADE, Admin, finalized_features, update_feature
from barnabas.client.cluster import Cluster
from barnabas.client.group_lag import GroupLag, find_lags
from barnabas.client.offsets import LATEST, find_offsets
from barnabas.client.producer import Producer
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition
from barnabas.protocol.topic_partition import TopicPartition as Place

DEADLINE = 60.0
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
BROKER = {
    "log.cleaner.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}
"""The properties of a broker that compacts while the histories are written."""
LEVEL = "transaction.version"


class Histories:
    """Partitions with random histories, and a random committed offset of each."""

    def __init__(self, servers: str, cluster: Cluster, random: Random, partitions: int) -> None:
        """`partitions` is that of each of two topics, one of them compacted."""
        self._servers = servers
        self.cluster = cluster
        self._random = random
        name = uuid.uuid4().hex[:8]
        self.kept, self.compacted = f"kept-{name}", f"compacted-{name}"
        self.places = [
            Place(topic, index)
            for topic in (self.kept, self.compacted)
            for index in range(partitions)
        ]
        self._name = name
        self._exits = AsyncExitStack()
        self._producers: list[TransactionalProducer] = []
        self._open: set[int] = set()
        self.committed: dict[Place, int] = {}

    async def __aenter__(self) -> "Histories":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exits.aclose()

    async def write(self, level: int, producers: int = 4) -> None:
        """Write all histories, with transactions of a `transaction.version` that is in force."""
        admin, count = Admin(self.cluster), len(self.places) // 2
        await admin.create_topic(self.kept, partitions=count, replication_factor=1)
        await admin.create_topic(
            self.compacted, partitions=count, replication_factor=1, configs=COMPACTED
        )
        plain = await self._exits.enter_async_context(Producer(self.cluster))
        for number in range(producers):
            producer = TransactionalProducer(self.cluster, f"{self._name}-{number}")
            await self._exits.enter_async_context(producer)
            await producer.init_transactions()
            self._producers.append(producer)
        for _ in range(8 * len(self.places)):
            await self._step(plain)
        for number in self._open:
            assert self._producers[number].speaks_newer_protocol == (level == 2)
        await self._commit_and_delete(admin)

    async def _step(self, plain: Producer) -> None:
        random = self._random
        number = random.randrange(len(self._producers) + 1)
        if number == len(self._producers):
            await self._send(plain)
            return
        producer = self._producers[number]
        if number in self._open and random.random() < 0.3:
            end = random.choice([producer.commit_transaction, producer.abort_transaction])
            await end()
            self._open.discard(number)
            return
        if number not in self._open:
            await producer.begin_transaction()
            self._open.add(number)
        await self._send(producer)

    async def _send(self, producer: Producer) -> None:
        topic, partition = self._random.choice(self.places)
        for _ in range(self._random.randint(1, 4)):
            key = self._random.choice("abcd").encode()
            await producer.send(topic, b"v" * 20, key=key, partition=partition)
        await producer.flush()

    async def _commit_and_delete(self, admin: Admin) -> None:
        wanted = dict.fromkeys(self.places, LATEST)
        ends = await find_offsets(self.cluster, wanted)
        stable = await find_offsets(self.cluster, wanted, read_committed=True)
        for place in self.places:
            # librdkafka reports no end to a consumer that begins behind the last stable offset.
            self.committed[place] = self._random.randint(0, stable[place].offset)
            if place.topic == self.kept and self._random.random() < 0.2:
                before = self._random.randint(0, ends[place].offset)
                await admin.delete_records({place: before})

    async def end_all(self) -> None:
        """Commit the open transactions."""
        for number in self._open:
            await self._producers[number].commit_transaction()
        self._open.clear()

    async def check(self) -> Mapping[Place, GroupLag]:
        """Compare the counts with the records of a consumer, when compaction has come to rest.

        Leaders count, and the client reads; both must find the same.
        """
        deadline = time.monotonic() + DEADLINE
        while True:
            before = await find_lags(self.cluster, self.committed)
            with patch.object(group_lag, "ListOffsetsPartition", without_count):
                read = await find_lags(self.cluster, self.committed)
            given = await asyncio.to_thread(consumed, self._servers, self.committed)
            after = await find_lags(self.cluster, self.committed)
            if before == after:
                assert all(lag.is_exact for lag in after.values())
                assert {place: lag.to_read for place, lag in after.items()} == given
                assert read == after
                return after
            assert time.monotonic() < deadline, (before, after)


def without_count(**fields: Any) -> ListOffsetsPartition:
    """Return an element of ListOffsets as for a leader that does not know our field."""
    return ListOffsetsPartition(**{**fields, "count_from": -1})


def consumed(servers: str, committed: Mapping[Place, int]) -> dict[Place, int]:
    """Return how many records a read_committed consumer of librdkafka is given until the end."""
    given: dict[Place, int] = dict.fromkeys(committed, 0)
    with closing(_consumer(servers)) as consumer:
        consumer.assign([Position(*place, offset) for place, offset in committed.items()])
        left = set(committed)
        deadline = time.monotonic() + DEADLINE
        while left:
            assert time.monotonic() < deadline, left
            message = consumer.poll(0.5)
            if message is None:
                continue
            place = Place(message.topic(), message.partition())
            if message.error() is None:
                given[place] += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(place)
            else:
                raise AssertionError(message.error())
    return given


def _consumer(servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "no group: nothing is committed",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


async def set_level(servers: str, level: int) -> None:
    """Set transaction.version; connections that are open learn of it later."""
    async with Cluster(servers) as cluster:
        before = (await finalized_features(cluster)).get(LEVEL, 0)
        if level != before:
            change = SAFE_DOWNGRADE if level < before else UPGRADE
            await update_feature(cluster, LEVEL, level, change=change)
            while (await finalized_features(cluster)).get(LEVEL, 0) != level:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def compare(servers: str, level: int, partitions: int) -> None:
    """Write histories with transactions of a `transaction.version`, and compare all counts, before
    and after the end of the last transactions."""
    await set_level(servers, level)
    async with (
        Cluster(servers) as cluster,
        Histories(servers, cluster, Random(level), partitions) as histories,
    ):
        await histories.write(level)
        counted = await histories.check()
        assert any(lag.held_back for lag in counted.values())
        await histories.end_all()
        decided = await histories.check()
        for place, lag in counted.items():
            if place.topic == histories.kept:
                assert lag.to_read is not None
                assert lag.held_back is not None
                assert decided[place].to_read == lag.to_read + lag.held_back
            assert (decided[place].held_back, decided[place].held_back_by) == (0, None)
