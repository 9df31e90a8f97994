"""The transaction coordinator: finds the partition of a transactional id and asks its shard."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, cast

from barnabas.coordinator.decision import Decide
from barnabas.coordinator.hosted import Mode
from barnabas.coordinator.ports import Clock, Timers
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.soon import Soon, promised, settled, unheeded
from barnabas.coordinator.transaction.history import Diary
from barnabas.coordinator.transaction.metadata import (
    TV0,
    TV2,
    Producer,
    Transaction,
)
from barnabas.coordinator.transaction.producer_ids import ProducerIdNeeded, ProducerIds
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.shard import TransactionShard
from barnabas.coordinator.transaction.waiting import WaitingRoom
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.topic_partition import TopicPartition

_EXPIRY_LANE = ""
"""No transactional id is empty: forgetting many of them has a lane of its own."""


class TransactionCoordinator:
    """What the handlers of transactional APIs ask. Answers come at once or as futures.

    Errors are KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE
    (a write that was refused, or not committed in time), INVALID_REQUEST (no transactional id), and
    those of each decision.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        waiting: WaitingRoom,
        *,
        settings: TransactionSettings,
        producer_ids: ProducerIds,
        clock: Clock,
        timers: Timers,
        partitions: Callable[[], int],
    ) -> None:
        """`partitions` tells how many `__transaction_state` has, or will have."""
        self._runtime = runtime
        self._waiting = waiting
        self._settings = settings
        self._producer_ids = producer_ids
        self._clock = clock
        self._timers = timers
        self._partitions = partitions

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` whose leader coordinates the id."""
        return partition_for(transactional_id, self._partitions())

    def _shard(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self._runtime.read(self.partition_of(transactional_id), lambda shard: shard)

    def _write(self, transactional_id: str, decide: Decide) -> Any:
        # What must not overlap, the shard refuses itself: nobody queues behind a write.
        index = self.partition_of(transactional_id)
        return self._runtime.write(index, transactional_id, decide, Mode.IMMEDIATE)

    # -- producers -------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None, client_host: str
    ) -> Soon[Producer]:
        """A producer begins, or goes on after a fault; see the shard.

        Raises INVALID_TRANSACTION_TIMEOUT too.
        """
        if transactional_id and not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        shard = self._shard(transactional_id)
        shard.ledger.history.came_from(transactional_id, client_host)
        return cast(
            Soon[Producer],
            self._patiently(
                transactional_id,
                lambda shard: partial(
                    shard.init_producer_id, transactional_id, timeout_ms, expected
                ),
            ),
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        added: Collection[TopicPartition],
        *,
        connection: int,
    ) -> Soon[None]:
        """A client of the older protocol adds partitions (AddPartitionsToTxn up to v3)."""
        return self._add(transactional_id, producer, added, TV0, self._guarded(connection))

    def add_for_leader(
        self, transactional_id: str, producer: Producer, added: Collection[TopicPartition]
    ) -> Soon[None]:
        """A leader on this broker adds what a TV2 client is about to write to."""
        return self._add(transactional_id, producer, added, TV2, None)

    def add_for_other_leader(
        self, transactional_id: str, producer: Producer, added: Collection[TopicPartition]
    ) -> Soon[None]:
        """As another broker asks (AddPartitionsToTxn from v4), whose other questions would wait
        too: CONCURRENT_TRANSACTIONS is raised at once."""
        return self._add(transactional_id, producer, added, TV2, None, patient=False)

    def _add(
        self,
        transactional_id: str,
        producer: Producer,
        added: Collection[TopicPartition],
        client_version: int,
        connection: int | None,
        *,
        patient: bool = True,
    ) -> Soon[None]:
        ask = self._patiently if patient else self._ask
        return cast(
            Soon[None],
            ask(
                transactional_id,
                lambda shard: partial(
                    shard.add_partitions,
                    transactional_id,
                    producer,
                    added,
                    client_version,
                    connection,
                ),
            ),
        )

    def verify(
        self, transactional_id: str, producer: Producer, asked: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions are in the open transaction; see the shard."""
        shard = self._shard(transactional_id)
        answers = self._runtime.read(
            self.partition_of(transactional_id),
            lambda shard: shard.verify(transactional_id, producer, asked),
        )
        for (topic, partition), code in answers.items():
            said = "first record for" if code is ErrorCode.NONE else f"{code.name}: record for"
            self._write_down(shard, transactional_id, f"{said} {topic}-{partition}")
        return answers

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        committed: bool,
        *,
        client_version: int,
        written: frozenset[TopicPartition] | None,
        connection: int,
    ) -> Soon[Producer]:
        """Commit or abort; answered, when that is decided, with the producer to go on with."""
        guarded = self._guarded(connection) if client_version < TV2 else None
        return cast(
            Soon[Producer],
            self._with_ids(
                transactional_id,
                lambda shard: partial(
                    shard.end,
                    transactional_id,
                    producer,
                    committed,
                    client_version,
                    written,
                    guarded,
                ),
            ),
        )

    def _guarded(self, connection: int) -> int | None:
        return connection if self._settings.fences_older_connections else None

    # -- asking ----------------------------------------------------------------------------------

    def _patiently(
        self, transactional_id: str, question: Callable[[TransactionShard], Decide]
    ) -> Any:
        return self._waiting.ask(
            transactional_id, lambda: self._with_ids(transactional_id, question)
        )

    def _with_ids(
        self, transactional_id: str, question: Callable[[TransactionShard], Decide]
    ) -> Any:
        try:
            return self._ask(transactional_id, question)
        except ProducerIdNeeded:
            return promised(self._refilled(transactional_id, question))

    async def _refilled(
        self, transactional_id: str, question: Callable[[TransactionShard], Decide]
    ) -> Any:
        while True:
            await self._producer_ids.refill()
            try:
                answer = self._ask(transactional_id, question)
            except ProducerIdNeeded:
                # Somebody else took what was fetched.
                continue
            return await settled(answer)

    def _ask(self, transactional_id: str, question: Callable[[TransactionShard], Decide]) -> Any:
        return self._write(transactional_id, question(self._shard(transactional_id)))

    # -- markers and sweeps ----------------------------------------------------------------------

    def markers_written(self, transactional_id: str, producer: Producer) -> None:
        """Every partition of a decided transaction has its marker."""
        try:
            shard = self._shard(transactional_id)
            done = partial(shard.complete, transactional_id, producer)
            unheeded(self._write(transactional_id, done))
        except KafkaError:
            # Coordinated elsewhere by now: whoever does so has sent the markers again.
            return

    async def abort_timed_out(self) -> None:
        """Abort every transaction whose time is over."""
        async for _, shard in self._each_shard():
            for transactional_id in shard.overdue(int(self._clock.monotonic() * 1000)):
                try:
                    unheeded(self._with_ids(transactional_id, _time_out(transactional_id)))
                except KafkaError:
                    # Refused: the next sweep finds it again.
                    continue

    async def expire(self) -> None:
        """Forget transactional ids that nobody used for `transactional.id.expiration.ms`."""
        async for index, shard in self._each_shard():
            while await self._expire_some(index, shard):
                await self._timers.pause()

    async def _expire_some(self, index: int, shard: TransactionShard) -> int:
        try:
            answer = self._runtime.write(index, _EXPIRY_LANE, shard.expire, Mode.EXCLUSIVE)
            return cast(int, await settled(answer))
        except KafkaError:
            return 0

    async def _each_shard(self) -> AsyncIterator[tuple[int, TransactionShard]]:
        for index, shard in list(self._runtime.shards()):
            await self._timers.pause()
            if (index, shard) in self._runtime.shards():
                yield index, shard

    # -- for people ------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Transaction:
        """Raises TRANSACTIONAL_ID_NOT_FOUND too."""
        txn = self._shard(transactional_id).ledger.transactions.get(transactional_id)
        if txn is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return txn

    def note(self, transactional_id: str, text: str) -> None:
        """Write down what happened to a transaction; nothing where it is coordinated elsewhere."""
        try:
            shard = self._shard(transactional_id)
        except KafkaError:
            return
        self._write_down(shard, transactional_id, text)

    def _write_down(self, shard: TransactionShard, transactional_id: str, text: str) -> None:
        shard.ledger.history.note(transactional_id, self._clock.now_ms(), text)

    def diary(self, transactional_id: str) -> Diary:
        """What happened of late."""
        shard = self._shard(transactional_id)
        left = shard.time_left_ms(transactional_id, int(self._clock.monotonic() * 1000))
        return shard.ledger.history.of(transactional_id, left)

    def transactions(self) -> Iterator[Transaction]:
        """Every transactional id that is coordinated here."""
        for _, shard in self._runtime.shards():
            yield from shard

    def states(self) -> Counter[str]:
        """How many transactional ids that are coordinated here are in each state."""
        return sum((shard.states() for _, shard in self._runtime.shards()), Counter())

    def refused_ends(self) -> int:
        """Transactions whose every marker is written, while the log refuses to say so."""
        return sum(shard.refused_ends for _, shard in self._runtime.shards())

    def require_loaded(self) -> None:
        """Raises COORDINATOR_LOAD_IN_PROGRESS while some partition is still being loaded."""
        if self._runtime.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _time_out(transactional_id: str) -> Callable[[TransactionShard], Decide]:
    return lambda shard: partial(shard.time_out, transactional_id)
