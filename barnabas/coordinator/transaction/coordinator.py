"""The transaction coordinator, and its state machine for a partition of `__transaction_state`."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TypeVar

from barnabas.coordinator.decision import Call, Decision, Instant, StartTimer
from barnabas.coordinator.hosted_shard import HostedShard, Mode
from barnabas.coordinator.ports import Clock, Timers
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.soon import Soon, ignore, spawn, wait
from barnabas.coordinator.transaction import ending, partitions, producers
from barnabas.coordinator.transaction.ending import EndTxn, resume
from barnabas.coordinator.transaction.events import TransactionEvents, events_of
from barnabas.coordinator.transaction.metadata import Producer, TransactionMetadata
from barnabas.coordinator.transaction.partitions import AddPartitions, Answers, VerifyPartitions
from barnabas.coordinator.transaction.producer_ids import ProducerIdNeeded, ProducerIds
from barnabas.coordinator.transaction.producers import Initialised, InitProducerId
from barnabas.coordinator.transaction.records import TransactionRecord, decode_record, encode_record
from barnabas.coordinator.transaction.repeated import Metadata, RepeatedStep
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.states import PREPARED
from barnabas.coordinator.transaction.table import LogOutOfOrder, TransactionTable, TxnDecision
from barnabas.coordinator.transaction.transactional_id import TransactionalId
from barnabas.coordinator.transaction.waiters import TransactionWaiters
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.topic_partition import TopicPartition

A = TypeVar("A")
Decide = Callable[[TransactionTable, Instant], TxnDecision[A]]
TransactionHosted = HostedShard[TransactionTable, TransactionRecord]
TransactionRuntime = CoordinatorRuntime[TransactionTable, TransactionRecord]
_EXPIRY_KEY = ""
"""The key of writes that expire ids: no transactional id is empty."""
_ABORTED_AT_ONCE = 8
"""The aborts of a sweep, with their markers, before the event loop runs other tasks."""


class TransactionCoordinator:
    """The interface of the coordinator for the handlers. Answers come at once or as futures.

    Errors are KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE
    (a write that was refused, or not committed in time), INVALID_REQUEST (no transactional id), and
    those of each decision.
    """

    def __init__(
        self,
        runtime: TransactionRuntime,
        waiters: TransactionWaiters,
        *,
        settings: TransactionSettings,
        producer_ids: ProducerIds,
        clock: Clock,
        timers: Timers,
        partitions: Callable[[], int],
        metadata: Metadata,
    ) -> None:
        """`partitions` returns how many partitions `__transaction_state` has, or will have."""
        self._runtime = runtime
        self._waiters = waiters
        self._settings = settings
        self._producer_ids = producer_ids
        self._clock = clock
        self._timers = timers
        self.partitions = partitions
        self.metadata = metadata

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` whose leader coordinates the id."""
        return partition_for(transactional_id, self.partitions())

    def shard_of(self, transactional_id: str) -> TransactionHosted | None:
        """Return the shard of an id, if this broker coordinates it. Raises INVALID_REQUEST."""
        return self._runtime.hosted(self._index(transactional_id))

    # -- requests --------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerId) -> Soon[Initialised]:
        """Give a client its producer id and epoch.

        Raises INVALID_TRANSACTION_TIMEOUT too.
        """
        in_range = request.two_phase or 0 < request.timeout_ms <= self._settings.max_timeout_ms
        if request.transactional_id and not in_range:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return self._write_patiently(
            request.transactional_id,
            lambda table, now: producers.init_producer_id(table, request, now),
        )

    def would_create(self, transactional_id: str) -> bool:
        """Return whether InitProducerId would create a transactional id. False if another broker
        coordinates it, or it is being loaded: the request is refused then."""
        try:
            return self._read(transactional_id, lambda table: table.find(transactional_id) is None)
        except KafkaError:
            return False

    def add_partitions(self, request: AddPartitions, *, waits: bool = True) -> Soon[None]:
        """Add partitions to a transaction.

        Without `waits`, CONCURRENT_TRANSACTIONS is raised at once: a request from another broker
        concerns many producers, and one that waits would delay the answers to the others.
        """
        write = self._write_patiently if waits else self._write
        return write(
            request.transactional_id,
            lambda table, now: partitions.add_partitions(table, request, now),
        )

    def verify(self, request: VerifyPartitions) -> Answers:
        """Answer a leader whether partitions are in the open transaction."""
        now_ms = self._clock.now_ms()
        return self._read(
            request.transactional_id, lambda table: partitions.verify(table, request, now_ms)
        )

    def verify_all(self, requests: Collection[VerifyPartitions]) -> None:
        """Answer leaders whose partitions are all in the open transactions. Raises
        TRANSACTION_ABORTABLE otherwise, and has changed nothing after an error."""
        now_ms = self._clock.now_ms()
        verified = [
            self._read(each.transactional_id, partial(partitions.verify_all, request=each))
            for each in requests
        ]
        for noted in verified:
            noted(now_ms)

    def end(self, request: EndTxn) -> Soon[Producer]:
        """Commit or abort; answered, once decided, with the producer that the client uses next."""
        return self._write_with_ids(
            request.transactional_id, lambda table, now: ending.end(table, request, now)
        )

    def repeated(self, request: AddPartitions | EndTxn) -> RepeatedStep:
        """Return what serves further requests of a client like this one."""
        return RepeatedStep(self, self._clock, request)

    # -- the runtime -----------------------------------------------------------------------------

    def _index(self, transactional_id: str) -> int:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return partition_for(transactional_id, self.partitions())

    def _read(self, transactional_id: str, look: Callable[[TransactionTable], A]) -> A:
        return self._runtime.read(self._index(transactional_id), look)

    def _write(self, transactional_id: str, decide: Decide[A], index: int | None = None) -> Soon[A]:
        """Write a step; `index` is the partition of the id, if the caller knows it."""
        # The table refuses a step while another step is being written: no step has to wait in a
        # queue.
        if index is None:
            index = self._index(transactional_id)
        return self._runtime.write(index, transactional_id, decide, Mode.IMMEDIATE)

    def _write_patiently(self, transactional_id: str, decide: Decide[A]) -> Soon[A]:
        return self._waiters.ask(
            transactional_id, lambda: self._write_with_ids(transactional_id, decide)
        )

    def _write_with_ids(
        self, transactional_id: str, decide: Decide[A], index: int | None = None
    ) -> Soon[A]:
        try:
            return self._write(transactional_id, decide, index)
        except ProducerIdNeeded:
            return spawn(self._write_refilled(transactional_id, decide))

    async def _write_refilled(self, transactional_id: str, decide: Decide[A]) -> A:
        while True:
            await self._producer_ids.refill()
            try:
                answer = self._write(transactional_id, decide)
            except ProducerIdNeeded:
                # Another request took the ids that were fetched.
                continue
            return await wait(answer)

    # -- markers and sweeps ----------------------------------------------------------------------

    def markers_written(
        self, transactional_id: str, producer: Producer, index: int | None = None
    ) -> None:
        """Complete a decided transaction: every partition has its marker."""
        try:
            ignore(
                self._write(
                    transactional_id,
                    lambda table, now: ending.complete(table, transactional_id, producer, now),
                    index,
                )
            )
        except KafkaError:
            # Another broker coordinates the transaction now, and has sent the markers again.
            return

    async def abort_timed_out(self) -> None:
        """Abort every transaction that has exceeded its timeout."""
        async for index, table in self._each_table():
            overdue = ending.overdue(table, int(self._clock.monotonic() * 1000))
            for number, transactional_id in enumerate(overdue):
                if number and not number % _ABORTED_AT_ONCE:
                    await self._timers.pause()
                try:
                    decide = _time_out(transactional_id)
                    ignore(self._write_with_ids(transactional_id, decide, index))
                except KafkaError:
                    # The abort was refused: the next sweep finds the transaction again.
                    continue

    async def expire(self) -> None:
        """Forget ids that were not used for `transactional.id.expiration.ms`."""
        async for index, _ in self._each_table():
            while await self._expire_some(index):
                await self._timers.pause()

    async def _expire_some(self, index: int) -> int:
        try:
            return await wait(self._runtime.write(index, _EXPIRY_KEY, producers.expire))
        except KafkaError:
            return 0

    async def _each_table(self) -> AsyncIterator[tuple[int, TransactionTable]]:
        for index, table in list(self._runtime.served()):
            await self._timers.pause()
            if (index, table) in self._runtime.served():
                yield index, table

    # -- for operators ---------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Return the state of a transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND too."""
        txn = self._read(transactional_id, lambda table: table.find(transactional_id))
        if txn is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return txn

    def note(
        self, index: int, transactional_id: str, event: str, *partitions: TopicPartition
    ) -> None:
        """Add an event of a transaction, unless another broker coordinates its partition `index` of
        `__transaction_state`."""
        table = self._runtime.state(index)
        entry = None if table is None else table.ids.get(transactional_id)
        if table is not None and entry is not None:
            table.history.note(entry, self._clock.now_ms(), event, partitions)

    def events(self, transactional_id: str) -> TransactionEvents:
        """Return the latest events of a transactional id."""
        return self._read(transactional_id, partial(self._events, transactional_id))

    def _events(self, transactional_id: str, table: TransactionTable) -> TransactionEvents:
        entry = table.ids.get(transactional_id)
        deadline_ms = None if entry is None else entry.deadline_ms
        now_ms = int(self._clock.monotonic() * 1000)
        left_ms = None if deadline_ms is None else max(deadline_ms - now_ms, 0)
        return events_of(entry, left_ms)

    def transactions(self) -> Iterator[TransactionMetadata]:
        """Yield every transactional id that is coordinated here."""
        for _, table in self._runtime.served():
            yield from table

    def states(self) -> Counter[str]:
        """Count the transactional ids that are coordinated here by state."""
        return Counter(txn.state.value for txn in self.transactions())

    def overdue(self) -> int:
        """Count the open transactions that have exceeded their timeout."""
        now_ms = int(self._clock.monotonic() * 1000)
        return sum(len(ending.overdue(table, now_ms)) for _, table in self._runtime.served())

    def kept(self) -> int:
        """Count the open transactions that are kept (KIP-939)."""
        return sum(1 for _ in self._kept())

    def oldest_kept_ms(self) -> int:
        """Return the time since the oldest kept transaction began; 0 without one."""
        now_ms = self._clock.now_ms()
        return max(now_ms - min((txn.start_ms for txn in self._kept()), default=now_ms), 0)

    def _kept(self) -> Iterator[TransactionMetadata]:
        for entry in self._unsettled():
            if entry.txn is not None and entry.txn.is_kept:
                yield entry.txn

    def refused_ends(self) -> int:
        """Count transactions whose every marker is written, but whose end the log refuses."""
        ends = sum(entry.refused_end for entry in self._unsettled())
        return ends + self._runtime.postponed_and_refused()

    def _unsettled(self) -> Iterator[TransactionalId]:
        for _, table in self._runtime.served():
            yield from table.unsettled.values()

    def require_loaded(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS while some partition is still being loaded."""
        if self._runtime.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _time_out(transactional_id: str) -> Decide[None]:
    return lambda table, now: ending.time_out(table, transactional_id, now)


class TransactionShard:
    """The log's side of a `TransactionTable`. The runtime replays records into it."""

    def __init__(self, table: TransactionTable) -> None:
        self.state = table
        self.replay = table.replay

    encode = staticmethod(encode_record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return decode_record(key, value)

    def replay_marker(
        self, producer_id: int, producer_epoch: int, committed: bool
    ) -> Iterable[None]:
        """Raise LogOutOfOrder: no transaction writes to this topic, so it has no markers."""
        raise LogOutOfOrder(f"a marker ({committed=}) of producer {producer_id}/{producer_epoch}")

    def loaded(self, now: Instant) -> TxnDecision[None]:
        """Carry decided transactions on, and give open ones the time that they have left."""
        effects: list[Call | StartTimer[TransactionRecord]] = []
        for entry in self.state.unsettled.values():
            txn = entry.txn
            assert txn is not None
            if txn.state in PREPARED:
                effects.append(resume(self.state, entry, txn, now))
            elif txn.times_out:
                entry.deadline_ms = now.monotonic_ms + _time_left_ms(txn, now.wall_ms)
        return Decision(None, effects=effects)


def _time_left_ms(txn: TransactionMetadata, wall_ms: int) -> int:
    """Return the time left by the wall clock, which may be wrong: 0 to the whole timeout."""
    return min(max(txn.start_ms + txn.timeout_ms - wall_ms, 0), txn.timeout_ms)
