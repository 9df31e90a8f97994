"""Producers of the simulation: they retry unanswered requests on a newer connection until they know
the outcome, in both protocols, as Apache Kafka's Java client does."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.soon import map_answer
from barnabas.coordinator.transaction.ending import EndTxn
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.producers import InitProducerId
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.transactions.world import World

TIMEOUT_MS = 10_000
_ABORTABLE = (
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


class LostError(Exception):
    """No response in time."""


class GaveUpError(Exception):
    """A batch was not answered in time and is not retried; it may arrive all the same."""


class Transaction:
    """The writes of a producer in one transaction, and the response to its end."""

    def __init__(self, name: str, *, newer: bool) -> None:
        self.name = name
        self.newer = newer
        self.acknowledged: list[tuple[TopicPartition, bytes]] = []
        self.told: bool | None = None
        """Whether it was committed or aborted; None if the client does not know."""

    def judge(self, found: set[bool]) -> None:
        """Check the outcomes of its records, at the end of the history."""


class Client:
    """One instance of a producer. It ends when it is fenced, or when all its transactions are
    over."""

    def __init__(self, world: "World", name: str, transactional_id: str, todo: int) -> None:
        self.world = world
        self.name = name
        self.transactional_id = transactional_id
        self.transactions: list[Transaction] = []
        self.waits: asyncio.Future[Any] | None = None
        self.ended: str | None = None
        self._todo = todo
        self._rng = world.rng
        self._sequences: dict[TopicPartition, int] = {}
        self._connection = world.connect()
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            producer = await self._init(None)
            while self._todo:
                self._todo -= 1
                producer = await self._transaction(producer)
            self.ended = "done"
        except KafkaError as error:
            self.ended = error.code.name

    async def _init(self, expected: Producer | None) -> Producer:
        coordinator = self.world.coordinator
        return await self._ask(  # type: ignore[no-any-return]
            "init",
            lambda _: map_answer(
                coordinator().init_producer_id(
                    InitProducerId(self.transactional_id, TIMEOUT_MS, expected, self.name)
                ),
                lambda given: given.producer,
            ),
        )

    async def _transaction(self, producer: Producer) -> Producer:
        world, rng = self.world, self._rng
        newer = world.brokers.version >= TV2
        if newer and world.bumps and self.transactions and not self.transactions[-1].newer:
            # Markers of the same epoch may still be in flight (KAFKA-18227).
            producer = await self._init(producer)
            self._sequences.clear()
        txn = Transaction(f"{self.name}.{len(self.transactions)}", newer=newer)
        self.transactions.append(txn)
        places = [rng.choice(world.places) for _ in range(rng.randint(0 if newer else 1, 3))]
        commits, failed = rng.random() < 0.6, False
        try:
            await self._write(txn, producer, places)
        except GaveUpError:
            failed = True
        except KafkaError as error:
            if error.code not in _ABORTABLE:
                raise
            failed = True
        if rng.random() < world.abandons:
            raise KafkaError(ErrorCode.NONE, "the process died")
        after = await self._end(txn, producer, commits and bool(places) and not failed)
        if newer:
            self._sequences.clear()
            return after
        if failed:
            self._sequences.clear()
            return await self._init(producer)
        return producer

    async def _write(
        self, txn: Transaction, producer: Producer, places: list[TopicPartition]
    ) -> None:
        if not txn.newer:
            registered = sorted({*places, *self._rng.sample(self.world.places, 1)})
            await self._add(producer, registered if self.world.registers else places[:1])
        for number, place in enumerate(places):
            if not txn.newer and not self.world.registers:
                await self._add(producer, [place])
            await self._produce(txn, producer, place, f"{txn.name}.{number}".encode())

    async def _add(self, producer: Producer, places: list[TopicPartition]) -> None:
        coordinator = self.world.coordinator
        await self._ask(
            f"add {places}",
            lambda connection: coordinator().add_partitions(
                AddPartitions(self.transactional_id, producer, places, TV0, connection)
            ),
        )

    async def _produce(
        self, txn: Transaction, producer: Producer, place: TopicPartition, value: bytes
    ) -> None:
        world, sequence = self.world, self._sequences.get(place, 0)
        await self._ask(
            f"produce {place} {value!r}",
            lambda _: world.brokers.produce(
                self.transactional_id,
                producer,
                place,
                sequence,
                value,
                adds=txn.newer,
                pause=world.way_back,
            ),
            to_leader=True,
        )
        self._sequences[place] = sequence + 1
        txn.acknowledged.append((place, value))

    async def _end(self, txn: Transaction, producer: Producer, commits: bool) -> Producer:
        coordinator = self.world.coordinator
        written = frozenset(place for place, _ in txn.acknowledged)
        after: Producer = await self._ask(
            f"end {commits}",
            lambda connection: coordinator().end(
                EndTxn(
                    self.transactional_id,
                    producer,
                    commits,
                    TV2 if txn.newer else TV0,
                    written if self.world.registers else None,
                    connection,
                )
            ),
        )
        txn.told = commits
        return after

    async def _ask(self, what: str, ask: Callable[[int], Any], *, to_leader: bool = False) -> Any:
        """Retry a request until it has a final response, and return that."""
        while True:
            self.waits = asyncio.get_running_loop().create_future()
            self.world.post_request(self, what, ask, self._connection, to_leader=to_leader)
            try:
                return await self.waits
            except LostError:
                if to_leader and self._rng.random() < self.world.gives_up:
                    raise GaveUpError from None
                self._connection = self.world.connect()
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                await self.world.pause()
