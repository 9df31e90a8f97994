"""The clients of the simulated cluster, the responses they got, and the records that must be
there."""

import asyncio
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from random import Random

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.groups.offsets import fetch_offsets
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer, ProducerSettings
from barnabas.client.transactional_producer import (
    AbortableError,
    FatalError,
    TransactionalProducer,
)
from barnabas.protocol.errors import KafkaError

PARTITIONS = 3
PLAIN, TRANSACTED, PROCESSED = "plain", "transacted", "processed"
GROUP = "processors"
TRANSACTION_TIMEOUT = 15.0
GIVE_UP = 20.0
"""Seconds after which a producer gives up a record, whose outcome is unknown then."""

Values = dict[int, list[bytes]]
"""The records of a topic, by partition and in their order."""


@dataclass
class Told:
    """The outcomes that the clients know, by value."""

    acknowledged: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)
    began: list[int] = field(default_factory=list)
    """The number of the first record of each idempotent producer, in order."""
    transactions: list[tuple[str, list[bytes]]] = field(default_factory=list)
    """The outcome of each (`committed`, `aborted` or `unknown`) with its values."""
    fatal: list[str] = field(default_factory=list)
    """Fatal refusals of a producer that shared its id with no other, and had not timed out."""


class Workload:
    """Producers that write until `stop`."""

    def __init__(
        self, bootstrap: str, seed: int, now: Callable[[], float], clocks_differ: float
    ) -> None:
        """`clocks_differ` is the largest difference between the clocks of brokers, in s."""
        self.told = Told()
        # A new coordinator has only wall clocks to tell how long a transaction has been open.
        self._has_time = TRANSACTION_TIMEOUT - clocks_differ
        self._bootstrap = bootstrap
        self._random = Random(seed)
        self._now = now
        self.stopping = False
        self._finished = False

    def stop(self) -> None:
        """Write no new records; those that were written are still processed."""
        self.stopping = True

    async def idempotent(self, name: str) -> None:
        """Write records in order, with a few of them in flight."""
        told = self.told
        count = 0
        while not self.stopping:
            told.began.append(count)
            settings = ProducerSettings(delivery_timeout=GIVE_UP, linger=0.01)
            async with Cluster(self._bootstrap) as cluster:
                producer = Producer(cluster, settings, now=self._now)
                try:
                    while not self.stopping:
                        values = [f"{name}-{count + each}".encode() for each in range(5)]
                        count += 5
                        partition = self._random.randrange(PARTITIONS)
                        sent = [
                            await producer.send(PLAIN, value, partition=partition)
                            for value in values
                        ]
                        results = await asyncio.gather(*sent, return_exceptions=True)
                        for value, result in zip(values, results, strict=True):
                            failed = isinstance(result, BaseException)
                            (told.unknown if failed else told.acknowledged).add(value)
                        if any(isinstance(result, BaseException) for result in results):
                            break
                        await asyncio.sleep(self._random.uniform(0.01, 0.2))
                finally:
                    await producer.abandon()

    async def transactional(self, name: str) -> None:
        """Write transactions of a few records in some partitions; abort a fifth of them."""
        count = 0
        while not self.stopping:
            settings = ProducerSettings(delivery_timeout=GIVE_UP)
            async with Cluster(self._bootstrap) as cluster:
                producer = TransactionalProducer(
                    cluster, name, settings, transaction_timeout=TRANSACTION_TIMEOUT, now=self._now
                )
                try:
                    await producer.init_transactions()
                    while not self.stopping:
                        count += 1
                        await self._transaction(producer, f"{name}-{count}")
                        await asyncio.sleep(self._random.uniform(0.01, 0.2))
                except (AbortableError, FatalError, KafkaError, TimeoutError, OSError):
                    await asyncio.sleep(0.5)
                finally:
                    await producer.abandon()

    async def pipeline(self, name: str) -> None:
        """Consume, transform, produce: commit the offsets together with the results."""
        while not self._finished:
            settings = ProducerSettings(delivery_timeout=GIVE_UP)
            async with Cluster(self._bootstrap) as cluster:
                producer = TransactionalProducer(
                    cluster, name, settings, transaction_timeout=TRANSACTION_TIMEOUT, now=self._now
                )
                try:
                    await producer.init_transactions()
                    await self._process(cluster, producer)
                except (AbortableError, FatalError, KafkaError, TimeoutError, OSError):
                    await asyncio.sleep(0.5)
                finally:
                    await producer.abandon()

    async def _process(self, cluster: Cluster, producer: TransactionalProducer) -> None:
        places = [(PLAIN, partition) for partition in range(PARTITIONS)]
        known = await fetch_offsets(cluster, GROUP, places, require_stable=True)
        consumer = Consumer(cluster, FetchSettings(max_wait=0.2, offset_reset=None))
        consumer.assign({place: known.get(place, EARLIEST) for place in places})
        while not self._finished:
            messages = await consumer.poll()
            if not messages:
                self._finished = self.stopping and all(map(consumer.at_end, places))
                continue
            await producer.begin_transaction()
            for message in messages:
                await producer.send(PROCESSED, message.value, partition=message.partition)
            offsets = {place: consumer.positions[place] for place in places}
            read = {place: offset for place, offset in offsets.items() if offset >= 0}
            await producer.send_offsets_to_transaction(read, GROUP)
            await producer.commit_transaction()

    async def _transaction(self, producer: TransactionalProducer, name: str) -> None:
        values = [f"{name}-{each}".encode() for each in range(self._random.randint(1, 4))]
        outcome, began = "aborted", self._now()
        await producer.begin_transaction()
        try:
            for value in values:
                partition = self._random.randrange(PARTITIONS)
                await producer.send(TRANSACTED, value, partition=partition)
            if self._random.random() < 0.8:
                outcome = "unknown"
                await producer.commit_transaction()
                outcome = "committed"
            else:
                await producer.abort_transaction()
        except FatalError as error:
            if self._now() - began < self._has_time:
                self.told.fatal.append(f"{name}: {error!r}")
            raise
        finally:
            self.told.transactions.append((outcome, values))


async def read_everything(bootstrap: str, topic: str, *, read_committed: bool) -> Values:
    """Return all values of a topic, as a new consumer sees them."""
    settings = FetchSettings(max_wait=0.1, offset_reset=None, read_committed=read_committed)
    found: Values = {partition: [] for partition in range(PARTITIONS)}
    async with Cluster(bootstrap) as cluster:
        consumer = Consumer(cluster, settings)
        places = [(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(dict.fromkeys(places, EARLIEST))
        quiet = 0
        while quiet < 3:
            messages = await consumer.poll()
            for message in messages:
                found[message.partition].append(message.value or b"")
            quiet = 0 if messages else quiet + all(map(consumer.at_end, places))
    return found


def judge(told: Told, plain: Values, transacted: Values, processed: Values) -> None:
    """Compare the records that are read with the answers to the writers. Raises AssertionError."""
    assert not told.fatal, f"refused without a reason: {told.fatal}"
    counts = _once(plain)
    lost = told.acknowledged - counts.keys()
    assert not lost, f"acknowledged and lost: {sorted(lost)[:5]} of {len(lost)}"
    strange = counts.keys() - told.acknowledged - told.unknown
    assert not strange, f"never written: {sorted(strange)[:5]}"
    made = Counter(chain.from_iterable(processed.values()))
    assert made == counts, f"processed twice or never: {[*(made - counts), *(counts - made)][:5]}"
    seen = _once(transacted)
    for outcome, values in told.transactions:
        there = [value for value in values if value in seen]
        assert len(there) in (0, len(values)), f"{outcome}, and torn: {there} of {values}"
        if outcome == "committed":
            assert there, f"committed and lost: {values}"
        elif outcome == "aborted":
            assert not there, f"aborted and read: {values}"
    _judge_order(told, plain, transacted)
    for partition, values in plain.items():
        assert processed[partition] == values, f"processed out of order in {partition}"


def _once(topic: Values) -> Counter[bytes]:
    counts = Counter(chain.from_iterable(topic.values()))
    twice = [value for value, count in counts.items() if count > 1]
    assert not twice, f"read twice: {twice[:5]}"
    return counts


def _judge_order(told: Told, plain: Values, transacted: Values) -> None:
    """Check that each partition holds the records of a producer in the order in which it wrote
    them.

    A record that an idempotent producer gave up may come after the records of its successor; one of
    a transactional producer may not, for the successor has fenced it.
    """
    for values in plain.values():
        writers: dict[object, list[bytes]] = defaultdict(list)
        for value in values:
            writers[bisect(told.began, _numbers(value)[0])].append(value)
            if value in told.acknowledged:
                writers["all that is acknowledged"].append(value)
        _in_order(writers)
    for values in transacted.values():
        writers = defaultdict(list)
        for value in values:
            writers[value.partition(b"-")[0]].append(value)
        _in_order(writers)


def _in_order(writers: Mapping[object, list[bytes]]) -> None:
    for values in writers.values():
        for earlier, later in pairwise(values):
            assert _numbers(earlier) < _numbers(later), f"out of order: {earlier!r}, {later!r}"


def _numbers(value: bytes) -> tuple[int, ...]:
    """Return the numbers of `a-7` or `t-7-2`."""
    return tuple(map(int, value.split(b"-")[1:]))
