"""The state machine over one partition of `__transaction_state`: its transactional ids."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from barnabas.coordinator.decision import Decision, Effect, Turn
from barnabas.coordinator.transaction.ending import Ending
from barnabas.coordinator.transaction.ledger import Ledger, LogOutOfOrder, TxnDecision
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TV2,
    Producer,
    Transaction,
)
from barnabas.coordinator.transaction.producer_ids import TakeProducerId
from barnabas.coordinator.transaction.records import (
    TransactionRecord,
    decode_record,
    encode_record,
)
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.states import PREPARED, SETTLED, TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

EXPIRED_AT_ONCE: Final = 1_000
"""Transactional ids that one batch of tombstones forgets."""


class TransactionShard:
    """Pure: it is asked, decides, and changes what is logged only when that is replayed."""

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        take_producer_id: TakeProducerId,
        transaction_version: Callable[[], int],
        settled: Callable[[str], None],
    ) -> None:
        """`settled` is told of a transactional id that is free for the next step."""
        self.ledger = Ledger(transaction_version, settled)
        self._settings = settings
        self._take_producer_id = take_producer_id
        self._ending = Ending(self.ledger, take_producer_id)

    # -- what the runtime needs ------------------------------------------------------------------

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return decode_record(key, value)

    def replay(self, record: TransactionRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply what is committed, live and after a fail-over alike. Raises LogOutOfOrder."""
        if producer_id != NO_PRODUCER_ID:
            raise LogOutOfOrder(f"{record.transactional_id} was written in a transaction")
        self.ledger.replay(record)

    def replay_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """No transaction writes to this topic, so no marker belongs here. Raises LogOutOfOrder."""
        raise LogOutOfOrder(f"a marker ({committed=}) of producer {producer_id}/{producer_epoch}")

    def loaded(self, turn: Turn) -> TxnDecision:
        """Roll forward what was decided, and give what is open the time it has left."""
        effects: list[Effect] = []
        for txn in self:
            if txn.state is TransactionState.ONGOING:
                left = _time_left(txn, turn)
                self.ledger.deadlines[txn.transactional_id] = turn.monotonic_ms + left
            elif txn.state in PREPARED:
                effects.append(self._ending.resume(txn))
        return Decision(effects=effects)

    # -- InitProducerId --------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None, turn: Turn
    ) -> TxnDecision:
        """A producer begins, or goes on after a fault (KIP-360); whoever had the id is fenced.

        Answered with the `Producer`. Raises CONCURRENT_TRANSACTIONS and PRODUCER_FENCED; where a
        transaction is open it is aborted, and the answer is CONCURRENT_TRANSACTIONS as well.
        """
        self.ledger.require_free(transactional_id)
        txn = self.ledger.transactions.get(transactional_id)
        if txn is None:
            txn = Transaction(
                transactional_id, self._take_producer_id(), NO_EPOCH, timeout_ms, turn.now_ms
            )
        elif expected is not None and not _may_resume(txn, expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if txn.state is TransactionState.ONGOING:
            later = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            return self._ending.fence(txn, later, turn, "fenced by InitProducerId")
        epoch = None if expected is None else expected.epoch
        if txn.exhausted and epoch in (None, txn.epoch):
            target = txn.rotated(
                self._take_producer_id(),
                timeout_ms,
                resumes=expected is not None,
                now_ms=turn.now_ms,
            )
        else:
            target = txn.incremented(timeout_ms, epoch, turn.now_ms)
        self.ledger.connections.forget(transactional_id)
        return self.ledger.write(target, target.producer, turn, "InitProducerId")

    # -- partitions ------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        added: Collection[TopicPartition],
        client_version: int,
        connection: int | None,
        turn: Turn,
    ) -> TxnDecision:
        """Partitions join the transaction, the first ones begin it; answered with None.

        Raises CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
        """
        self.ledger.admit(transactional_id, producer, connection)
        # Before anything else: a TV2 producer may hold an id that is not current until it is free.
        self.ledger.require_free(transactional_id)
        txn = self.ledger.require(transactional_id, producer)
        ongoing = txn.state is TransactionState.ONGOING
        if ongoing and txn.partitions.issuperset(added):
            self._witness(transactional_id, added, client_version)
            return Decision()
        target = txn.with_partitions(added, client_version, turn.now_ms)
        noted = "begins" if not ongoing else "adds"
        deadline = turn.monotonic_ms + target.timeout_ms

        def began(_turn: Turn) -> TxnDecision:
            if not ongoing:
                self.ledger.deadlines[transactional_id] = deadline
                self.ledger.begin_witness(transactional_id)
            self._witness(transactional_id, added, client_version)
            return Decision()

        return self.ledger.write(target, None, turn, f"{noted} {_named(added)}", began)

    def verify(
        self, transactional_id: str, producer: Producer, asked: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions are in the open transaction, for their leaders (KIP-890 part 1).

        A step under way does not disturb: the leader checks once more when it appends. But what an
        EndTxn under way leaves without a marker nobody may write to any more.
        Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        txn = self.ledger.require(transactional_id, producer)
        if txn.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        pending = self.ledger.pending.get(transactional_id)
        inside = txn.partitions if pending is None else txn.partitions & pending.partitions
        answers = {
            each: ErrorCode.NONE if each in inside else ErrorCode.TRANSACTION_ABORTABLE
            for each in asked
        }
        known = [each for each, code in answers.items() if code is ErrorCode.NONE]
        self.ledger.witness(transactional_id, known)
        return answers

    def _witness(
        self, transactional_id: str, partitions: Iterable[TopicPartition], client_version: int
    ) -> None:
        # Only leaders speak for clients of TV2: what they add is about to be written.
        if client_version >= TV2:
            self.ledger.witness(transactional_id, partitions)

    # -- how it ends -----------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        committed: bool,
        client_version: int,
        written: frozenset[TopicPartition] | None,
        connection: int | None,
        turn: Turn,
    ) -> TxnDecision:
        """See `Ending.end`."""
        self.ledger.admit(transactional_id, producer, connection)
        return self._ending.end(
            transactional_id, producer, committed, client_version, written, turn
        )

    def complete(self, transactional_id: str, producer: Producer, turn: Turn) -> TxnDecision:
        """See `Ending.complete`."""
        return self._ending.complete(transactional_id, producer, turn)

    def overdue(self, monotonic_ms: int) -> list[str]:
        """See `Ending.overdue`."""
        return self._ending.overdue(monotonic_ms)

    def time_out(self, transactional_id: str, turn: Turn) -> TxnDecision:
        """See `Ending.time_out`."""
        return self._ending.time_out(transactional_id, turn)

    def expire(self, turn: Turn) -> TxnDecision:
        """Forget transactional ids that nobody used for long; some of them, where they are many.

        Answered with how many.
        """
        ledger = self.ledger
        horizon = turn.now_ms - self._settings.id_expiration_ms
        gone: list[str] = []
        for key, txn in ledger.transactions.items():
            if txn.updated_ms <= horizon and txn.state in SETTLED and key not in ledger.pending:
                gone.append(key)
                if len(gone) == EXPIRED_AT_ONCE:
                    break
        if not gone:
            return Decision(response=0)
        for key in gone:
            ledger.pending[key] = ledger.transactions[key]

        def landed(_error: KafkaError | None, _turn: Turn) -> TxnDecision:
            for key in gone:
                del ledger.pending[key]
                ledger.release(key)
            return Decision()

        return Decision([TransactionRecord(key, None) for key in gone], len(gone), then=landed)

    # -- for people ------------------------------------------------------------------------------

    def states(self) -> Counter[str]:
        """How many transactional ids are in each state."""
        return Counter(txn.state.value for txn in self.ledger.transactions.values())

    @property
    def refused_ends(self) -> int:
        """Transactions that would be over, if the log took their end."""
        return len(self._ending.refused)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self.ledger.transactions.values())

    def time_left_ms(self, transactional_id: str, monotonic_ms: int) -> int | None:
        """Until the open transaction is aborted; None where none is open."""
        deadline = self.ledger.deadlines.get(transactional_id)
        return None if deadline is None else max(deadline - monotonic_ms, 0)


def _time_left(txn: Transaction, turn: Turn) -> int:
    """By the wall clock, which may be wrong: never less than nothing, never more than it had."""
    return min(max(txn.start_ms + txn.timeout_ms - turn.now_ms, 0), txn.timeout_ms)


def _may_resume(txn: Transaction, expected: Producer) -> bool:
    """Whether a producer that names its id may go on (KIP-360); the epoch is checked later."""
    return expected.producer_id == txn.producer_id or (
        # The answer with the fresh id may have been lost.
        expected.producer_id == txn.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH
    )


def _named(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))
