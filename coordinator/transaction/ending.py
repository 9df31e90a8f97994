"""How a transaction ends: EndTxn, its timeout, a newer producer; and when every marker is written.

    decided: PREPARE_x is written -> markers -> COMPLETE_x is written

From the first of these on the outcome is certain, whoever coordinates.
"""

from functools import partial
from typing import Final, NamedTuple

from barnabas.coordinator.decision import Decision, Effect, Send, StartTimer, Turn
from barnabas.coordinator.transaction.ledger import Ledger, TxnDecision
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    TV2,
    Producer,
    Transaction,
)
from barnabas.coordinator.transaction.producer_ids import TakeProducerId
from barnabas.coordinator.transaction.states import COMPLETED, PREPARED, TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

COMPLETION_RETRY_MS: Final = 100
"""Until the end of a transaction is written again, where the log refused it."""


class Markers(NamedTuple):
    """What the marker sender is asked for: a marker in every partition.

    It must come back with `TransactionShard.complete` when all are written.
    """

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class Ending:
    """Decides what ends a transaction, and carries it on until nothing of it is open."""

    def __init__(self, ledger: Ledger, take_producer_id: TakeProducerId) -> None:
        self._ledger = ledger
        self._take_producer_id = take_producer_id
        self.refused: set[str] = set()
        """Transactional ids whose end the log refused, until it takes it."""

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        committed: bool,
        client_version: int,
        written: frozenset[TopicPartition] | None,
        turn: Turn,
    ) -> TxnDecision:
        """Commit or abort; answered with the `Producer` to go on with when that is decided.

        `written` is what the client says it wrote to (KIP-609), None where it does not say. Raises
        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        txn = self._to_end(transactional_id, producer, client_version)
        if self._ended_already(txn, producer, committed, client_version):
            return Decision(response=txn.producer)
        if txn.state is not TransactionState.ONGOING and (committed or client_version < TV2):
            raise _invalid_state(txn, committed)
        marked = self._to_mark(txn, written)
        target = self._decided(txn, committed, client_version, turn, marked)
        goes_on = target.completed(turn.now_ms).producer
        word = "EndTxn commits" if committed else "EndTxn aborts"
        return self._ledger.write(target, goes_on, turn, word, partial(self._prepared, target))

    def _decided(
        self,
        txn: Transaction,
        committed: bool,
        client_version: int,
        turn: Turn,
        partitions: frozenset[TopicPartition],
    ) -> Transaction:
        needs_id = client_version >= TV2 and txn.exhausted
        next_id = self._take_producer_id() if needs_id else NO_PRODUCER_ID
        return txn.prepared(
            committed, client_version, turn.now_ms, next_producer_id=next_id, partitions=partitions
        )

    def _to_end(
        self, transactional_id: str, producer: Producer, client_version: int
    ) -> Transaction:
        """The transaction that an EndTxn means, with the checks in Kafka's order for its client."""
        txn = self._ledger.transactions.get(transactional_id)
        if client_version < TV2:
            txn = self._ledger.require(transactional_id, producer)
            self._ledger.require_free(transactional_id)
            return txn
        self._ledger.require_free(transactional_id)
        if txn is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not _retries_end(txn, producer):
            return self._ledger.require(transactional_id, producer)
        if txn.state not in COMPLETED or txn.epoch > LAST_CLIENT_EPOCH:
            # The last epoch of all was fenced: nothing is left to go on with.
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return txn

    @staticmethod
    def _ended_already(
        txn: Transaction, producer: Producer, committed: bool, client_version: int
    ) -> bool:
        """Whether this EndTxn only asks again; raises where it asks for the opposite."""
        if client_version >= TV2 and not _retries_end(txn, producer):
            return False
        if txn.state is TransactionState.COMPLETE_COMMIT:
            same = committed
        elif txn.state is TransactionState.COMPLETE_ABORT:
            same = not committed
        else:
            return False
        if not same:
            raise _invalid_state(txn, committed)
        return True

    def _to_mark(
        self, txn: Transaction, written: frozenset[TopicPartition] | None
    ) -> frozenset[TopicPartition]:
        witnessed = self._ledger.witnessed(txn.transactional_id)
        if written is None or witnessed is None:
            return txn.partitions
        return txn.partitions & (written | witnessed)

    def _prepared(self, txn: Transaction, turn: Turn) -> TxnDecision:
        if not txn.partitions:
            return self._completion(txn, turn)
        return Decision(effects=[_markers(txn)])

    # -- the end of it ---------------------------------------------------------------------------

    def resume(self, txn: Transaction) -> Effect:
        """What goes on with a decided transaction after a load."""
        return _markers(txn) if txn.partitions else self._completing(txn, 0)

    def complete(self, transactional_id: str, producer: Producer, turn: Turn) -> TxnDecision:
        """Every marker is written: the transaction is over."""
        txn = self._ledger.transactions.get(transactional_id)
        if txn is None or txn.producer != producer or txn.state not in PREPARED:
            return Decision()
        if transactional_id in self._ledger.pending:
            return Decision()
        return self._completion(txn, turn)

    def _completion(self, txn: Transaction, turn: Turn) -> TxnDecision:
        def refused(_: Turn) -> TxnDecision:
            self.refused.add(txn.transactional_id)
            return Decision(effects=[self._completing(txn, COMPLETION_RETRY_MS)])

        def written(_: Turn) -> TxnDecision:
            self.refused.discard(txn.transactional_id)
            return Decision()

        return self._ledger.write(
            txn.completed(turn.now_ms), None, turn, "every marker is written", written, refused
        )

    def _completing(self, txn: Transaction, delay_ms: int) -> StartTimer:
        key, again = (
            txn.transactional_id,
            partial(self.complete, txn.transactional_id, txn.producer),
        )
        return StartTimer(("complete", key), delay_ms, key, again)

    # -- what no client asks for -----------------------------------------------------------------

    def overdue(self, monotonic_ms: int) -> list[str]:
        """Transactional ids whose open transaction has used up its time."""
        return [key for key, deadline in self._ledger.deadlines.items() if deadline <= monotonic_ms]

    def time_out(self, transactional_id: str, turn: Turn) -> TxnDecision:
        """Abort a transaction whose time is over."""
        txn = self._ledger.transactions.get(transactional_id)
        deadline = self._ledger.deadlines.get(transactional_id)
        if txn is None or deadline is None or deadline > turn.monotonic_ms:
            return Decision()
        if transactional_id in self._ledger.pending:
            return Decision()
        return self.fence(txn, None, turn, "the timeout is over")

    def fence(
        self, txn: Transaction, response: KafkaError | None, turn: Turn, why: str
    ) -> TxnDecision:
        version = self._ledger.transaction_version()
        if version >= TV2:
            # As its own EndTxn would: one bump, and at the last epoch the next id with it
            # (KAFKA-19367, KAFKA-20090).
            target = self._decided(txn, False, version, turn, txn.partitions)
        else:
            target = txn.fenced(version, turn.now_ms)
        return self._ledger.write(target, response, turn, why, partial(self._prepared, target))


def _retries_end(txn: Transaction, producer: Producer) -> bool:
    """Whether a TV2 client names the epoch that its last EndTxn used up."""
    if txn.client_version < TV2:
        # An older client's end used up none: who names the epoch before was replaced.
        return False
    if txn.producer_id == producer.producer_id:
        return txn.epoch == producer.epoch + 1
    return (
        txn.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_CLIENT_EPOCH
        and txn.epoch == 0
    )


def _markers(txn: Transaction) -> Send:
    committed = txn.state is TransactionState.PREPARE_COMMIT
    return Send(
        Markers(txn.transactional_id, txn.producer, committed, txn.partitions, txn.client_version)
    )


def _invalid_state(txn: Transaction, committed: bool) -> KafkaError:
    wanted = "commit" if committed else "abort"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"cannot {wanted} a transaction in state {txn.state.value}"
    )
