"""The transactional ids of one partition of `__transaction_state`, and how a step is written.

A step is one logged change of a transactional id. While it is being written, its target stands in
`pending`, and every other step of the id is refused with CONCURRENT_TRANSACTIONS; so it is while
markers are being written (`states.PREPARED`).
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

from barnabas.coordinator.decision import NOTHING, Decision, Instant
from barnabas.coordinator.transaction.events import EventHistory
from barnabas.coordinator.transaction.metadata import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Markers,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.producer_ids import TakeProducerId
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.states import PREPARED, TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

A = TypeVar("A")
TxnDecision = Decision[TransactionRecord, A]
Next = Callable[[Instant], TxnDecision[None]]
_new = tuple.__new__
"""Makes a named tuple from all its fields in a quarter of the time of its class."""


EXPECTED: Final = 64
"""The partitions of a request up to which they are told whom to expect."""


class Expectation(Protocol):
    """A partition of this broker that expects a producer."""

    @property
    def written(self) -> bool:
        """Whether the producer has written, without a question to the coordinator."""
        ...

    def void(self) -> None:
        """Let the partition ask again before the producer may write."""
        ...


Expect = Callable[
    [str, Producer, Collection[TopicPartition], str | None],
    Mapping[TopicPartition, Expectation],
]
"""Tells partitions whom to expect: transactional id, producer, partitions, and principal."""


class _Witness:
    """The partitions of a transaction that its records may be in."""

    __slots__ = ("asked", "told", "verification")

    def __init__(self, verification: object) -> None:
        self.verification = verification
        """The verification when the transaction began."""
        self.asked: set[TopicPartition] = set()
        """The partitions whose leaders have asked."""
        self.told: dict[TopicPartition, Expectation] = {}
        """The partitions of this broker that need not ask."""


class LogOutOfOrder(Exception):
    """The log holds an older epoch after a newer one: it cannot be trusted."""


class TransactionTable:
    """The state on which decisions are made. Logged state changes in `replay` only."""

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        take_producer_id: TakeProducerId,
        transaction_version: Callable[[], int],
        verification: Callable[[], object | None],
        send_markers: Callable[[Markers], None],
        free: Callable[[str], None],
        expect: Expect | None = None,
    ) -> None:
        """`verification` returns None while leaders do not ask before the first record of a
        transaction, and otherwise the same object for as long as they do. `send_markers` takes the
        markers of a decided transaction, and answers with `ending.complete` when all are written.
        `free` is called with a transactional id when its next step may begin. `expect` tells the
        partitions that this broker leads whom to expect; None if they always ask."""
        self.settings = settings
        self.take_producer_id = take_producer_id
        self.transaction_version = transaction_version
        """The finalized feature, for steps that no client asked for."""
        self.send_markers = send_markers
        self.transactions: dict[str, TransactionMetadata] = {}
        self.pending: dict[str, TransactionMetadata] = {}
        self.connections = NewestConnections()
        self.history = EventHistory()
        self.deadlines: dict[str, int] = {}
        """The times at which open transactions are aborted, in ms of monotonic time."""
        self.kept: set[str] = set()
        """Transactional ids whose open transaction is kept (KIP-939)."""
        self.refused_ends: set[str] = set()
        """Transactional ids whose COMPLETE record the log refused, until it accepts the record."""
        self._verification = verification
        self._free = free
        self._expect = expect
        self._witnessed: dict[str, _Witness] = {}
        """By transactional id, if the transaction began here while leaders ask."""

    def __iter__(self) -> Iterator[TransactionMetadata]:
        return iter(self.transactions.values())

    def replay(self, record: TransactionRecord) -> None:
        """Apply a committed record, live and after a fail-over alike. Raises LogOutOfOrder."""
        transactional_id, value, _ = record
        if value is None:
            self.transactions.pop(transactional_id, None)
            self.kept.discard(transactional_id)
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
        if value.is_kept:
            self.kept.add(transactional_id)
        else:
            self.kept.discard(transactional_id)
        if value.state is not TransactionState.ONGOING:
            self.deadlines.pop(transactional_id, None)
            self._witnessed.pop(transactional_id, None)

    # -- partitions whose leaders have asked -----------------------------------------------------

    def begin_witness(self, transactional_id: str) -> None:
        """Begin to collect the partitions whose leaders ask about a new transaction."""
        verification = self._verification()
        if verification is not None:
            self._witnessed[transactional_id] = _Witness(verification)

    def expect(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        principal: str | None,
    ) -> None:
        """Tell partitions that this broker leads whom to expect, while leaders ask.

        `partitions` have joined the transaction just now, through its client.
        """
        witnessed = self._witnessed.get(transactional_id)
        if witnessed is not None and self._expect is not None and len(partitions) <= EXPECTED:
            told = self._expect(transactional_id, producer, partitions, principal)
            witnessed.told.update(told)

    def void_expected(
        self, transactional_id: str, kept: Collection[TopicPartition] = frozenset()
    ) -> None:
        """Let partitions ask again, except those that will be marked: a marker voids what they
        were told."""
        witnessed = self._witnessed.get(transactional_id)
        if witnessed is not None:
            for partition, expectation in witnessed.told.items():
                if partition not in kept:
                    expectation.void()

    def witness(self, transactional_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Remember partitions whose leaders are about to write to the transaction."""
        witnessed = self._witnessed.get(transactional_id)
        if witnessed is not None:
            witnessed.asked.update(partitions)

    def witnessed(self, transactional_id: str) -> set[TopicPartition] | None:
        """Return the partitions whose leaders have asked, or have written to as they were told;
        None if others may have been written.

        A leader may have asked the coordinator before this one, or have written without asking
        because transaction.partition.verification.enable is or was false.
        """
        witnessed = self._witnessed.get(transactional_id)
        if witnessed is None or witnessed.verification is not self._verification():
            return None
        return witnessed.asked.union(
            partition for partition, each in witnessed.told.items() if each.written
        )

    # -- steps -----------------------------------------------------------------------------------

    def is_busy(self, transactional_id: str) -> bool:
        """Whether a step is being written, or markers are."""
        if transactional_id in self.pending:
            return True
        txn = self.transactions.get(transactional_id)
        return txn is not None and txn.state in PREPARED

    def require_free(self, transactional_id: str) -> None:
        """Raise CONCURRENT_TRANSACTIONS while a step is being written, or markers are."""
        if self.is_busy(transactional_id):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def require(self, transactional_id: str, producer: Producer) -> TransactionMetadata:
        """Return the transaction of the current producer, to which it may write.

        Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE.
        """
        txn = self.transactions.get(transactional_id)
        if txn is None or not txn.knows(producer.producer_id):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not txn.is_current(producer):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if txn.is_kept:
            message = "The transaction is kept for two-phase commit: it can only be ended."
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, message)
        return txn

    def require_owner(self, transactional_id: str, principal: str | None) -> None:
        """Raise INVALID_PRODUCER_ID_MAPPING if the producer id was given to another principal."""
        txn = self.transactions.get(transactional_id)
        owner = None if txn is None else txn.owner
        if owner is not None and principal is not None and owner != principal:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "The producer id of the transactional id was given to another principal.",
            )

    def admit(self, transactional_id: str, producer: Producer, connection: int | None) -> None:
        """Note the connection of a request, None for one that is not guarded by its connection.

        A request of another than the current producer is refused anyhow, and not noted. Neither is
        one of the client of a kept transaction, which another process may end (KIP-939). Raises
        PRODUCER_FENCED.
        """
        if connection is None or not self.settings.fences_older_connections:
            return
        txn = self.transactions.get(transactional_id)
        if (
            txn is not None
            and txn.producer_id == producer.producer_id
            and txn.epoch == producer.epoch
            and (txn.next_epoch == NO_EPOCH or txn.client == producer)
        ):
            self.connections.admit(transactional_id, producer, connection)

    def release(self, transactional_id: str) -> None:
        """Let requests that wait try again, unless markers are being written."""
        if not self.is_busy(transactional_id):
            self._free(transactional_id)

    def transition(
        self,
        target: TransactionMetadata,
        answer: A | KafkaError,
        now: Instant,
        event: str,
        then: Next | None = None,
        refused: Next | None = None,
        named: Collection[TopicPartition] = (),
        *,
        postpones: bool = False,
    ) -> TxnDecision[A]:
        """Return the decision that writes a step; `then` follows its commit, `refused` a refusal
        by the log. The event of the step names the partitions `named`."""
        key = target.transactional_id
        self.pending[key] = target
        self.history.note(key, now[0], event, named)

        def landed(error: KafkaError | None, now: Instant) -> TxnDecision[None]:
            del self.pending[key]
            follows = then if error is None else refused
            decision: TxnDecision[None] = NOTHING if follows is None else follows(now)
            self.release(key)
            return decision

        # The older format has no fields for the owner, and for the producer id with which the
        # client was told to continue.
        flexible = (
            self.transaction_version() > 0
            or target.next_producer_id != NO_PRODUCER_ID
            or target.owner is not None
        )
        record = _new(TransactionRecord, (key, target, flexible))
        return _new(Decision, (answer, (record,), (), landed, None, None, postpones))


class NewestConnections:
    """The newest connection of each producer: a guard for clients of the older protocol.

    There one epoch has many transactions. An EndTxn that is held up on its way can arrive when its
    transaction has long been ended by a retry on a newer connection, and would then end the
    producer's *next* one (KAFKA-17754): nothing in the request tells the two apart. But it arrives
    on an older connection than one that this producer has used since, and is refused for that.

    Only requests of the current producer to the coordinator count: a zombie on a newer connection
    is refused for its epoch and changes nothing here. The limits of the guard:

    - It is in memory only: after a fail-over every connection is new, and requests to the
      coordinator before this one have no order.
    - A producer that starts anew with InitProducerId may use any connection. It mostly has another
      epoch then, but not if it asks for the same answer once more (KIP-360).
    - Produce is not guarded: a partition's leader tells late batches from new ones by sequence.
    - Between a request and its retry on the same connection, TCP keeps the order.
    """

    def __init__(self) -> None:
        self._newest: dict[str, tuple[Producer, int]] = {}

    def admit(self, transactional_id: str, producer: Producer, connection: int) -> None:
        """Note the connection of a request; connections are numbered as they were accepted.

        Raises PRODUCER_FENCED if the producer has used a newer connection already.
        """
        seen = self._newest.get(transactional_id)
        if seen is not None and seen[0] == producer:
            if connection < seen[1]:
                raise KafkaError(
                    ErrorCode.PRODUCER_FENCED,
                    "The producer has used a newer connection since this request was sent.",
                )
            if connection == seen[1]:
                return
        self._newest[transactional_id] = (producer, connection)

    def forget(self, transactional_id: str) -> None:
        """Forget the connection of a producer that starts again; it may use any connection."""
        self._newest.pop(transactional_id, None)
