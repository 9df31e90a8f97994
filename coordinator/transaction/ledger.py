"""What a shard knows of its transactional ids, and how a step is written.

While a step is being written its target stands in `pending`, and whoever wants another step is told
CONCURRENT_TRANSACTIONS; so is everybody while markers are on their way (`states.PREPARED`).
"""

from collections.abc import Callable, Iterable

from barnabas.coordinator.decision import Decision, Turn
from barnabas.coordinator.transaction.connections import NewestConnections
from barnabas.coordinator.transaction.history import History
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    Transaction,
)
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.states import PREPARED, TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

TxnDecision = Decision[TransactionRecord]


class LogOutOfOrder(Exception):
    """The log holds an older epoch after a newer one: what it says cannot be trusted."""


class Ledger:
    """Transactional ids by name. What is logged changes in `replay` only."""

    def __init__(
        self, transaction_version: Callable[[], int], settled: Callable[[str], None]
    ) -> None:
        """`settled` is told of a transactional id that is free for the next step."""
        self.transactions: dict[str, Transaction] = {}
        self.pending: dict[str, Transaction] = {}
        self.connections = NewestConnections()
        self.history = History()
        self.transaction_version = transaction_version
        """The finalized feature: what steps that no client asked for follow."""
        self.deadlines: dict[str, int] = {}
        """When open transactions are aborted, in ms of monotonic time."""
        self._settled = settled
        # Of transactions that began here: the partitions whose leaders have asked for them.
        self._witnessed: dict[str, set[TopicPartition]] = {}

    def replay(self, record: TransactionRecord) -> None:
        """Apply what is committed, live and after a fail-over alike. Raises LogOutOfOrder."""
        transactional_id, value, _ = record
        if value is None:
            self.transactions.pop(transactional_id, None)
            self.history.forget(transactional_id)
            self.connections.forget(transactional_id)
            return
        known = self.transactions.get(transactional_id)
        if known is not None and (
            known.producer_id == value.producer_id and value.epoch < known.epoch
        ):
            raise LogOutOfOrder(
                f"epoch {value.epoch} of {transactional_id} stands after {known.epoch}"
            )
        self.transactions[transactional_id] = value
        if value.state is not TransactionState.ONGOING:
            self.deadlines.pop(transactional_id, None)
            self._witnessed.pop(transactional_id, None)

    # -- what leaders have asked for -------------------------------------------------------------

    def begin_witness(self, transactional_id: str) -> None:
        """A transaction begins here: from now on it is known who has written to it."""
        self._witnessed[transactional_id] = set()

    def witness(self, transactional_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Leaders of these partitions are about to write to the transaction."""
        witnessed = self._witnessed.get(transactional_id)
        if witnessed is not None:
            witnessed.update(partitions)

    def witnessed(self, transactional_id: str) -> set[TopicPartition] | None:
        """Partitions that may have been written to; None where others may have been as well."""
        return self._witnessed.get(transactional_id)

    # -- steps -----------------------------------------------------------------------------------

    def is_busy(self, transactional_id: str) -> bool:
        """Whether a step is under way: being written, or waiting for markers."""
        if transactional_id in self.pending:
            return True
        txn = self.transactions.get(transactional_id)
        return txn is not None and txn.state in PREPARED

    def require_free(self, transactional_id: str) -> None:
        if self.is_busy(transactional_id):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def require(self, transactional_id: str, producer: Producer) -> Transaction:
        txn = self.transactions.get(transactional_id)
        if txn is None or txn.producer_id != producer.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        # The epoch above the last one was given to nobody, and cannot be bumped.
        if txn.epoch != producer.epoch or producer.epoch > LAST_CLIENT_EPOCH:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return txn

    def admit(self, transactional_id: str, producer: Producer, connection: int | None) -> None:
        """Take note of the connection on which a producer asks, None where none is guarded.

        Only of the current one: what others ask is refused anyhow. Raises PRODUCER_FENCED.
        """
        txn = self.transactions.get(transactional_id)
        if connection is not None and txn is not None and txn.producer == producer:
            self.connections.admit(transactional_id, producer, connection)

    def release(self, transactional_id: str) -> None:
        """A step is written, or was refused; whoever waits may try."""
        if not self.is_busy(transactional_id):
            self._settled(transactional_id)

    def write(
        self,
        target: Transaction,
        response: object,
        turn: Turn,
        noted: str,
        then: Callable[[Turn], TxnDecision] | None = None,
        refused: Callable[[Turn], TxnDecision] | None = None,
    ) -> TxnDecision:
        key = target.transactional_id
        self.pending[key] = target
        self.history.note(key, turn.now_ms, noted)

        def landed(error: KafkaError | None, turn: Turn) -> TxnDecision:
            del self.pending[key]
            follows = then if error is None else refused
            decision: TxnDecision = Decision() if follows is None else follows(turn)
            self.release(key)
            return decision

        # The older format has no room for the id that the producer was told to go on with.
        flexible = self.transaction_version() > 0 or target.next_producer_id != NO_PRODUCER_ID
        return Decision([TransactionRecord(key, target, flexible)], response, then=landed)
