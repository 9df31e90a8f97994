"""The transactional ids of one partition of `__transaction_state`, and how a step is written.

A step is one logged change of a transactional id. While it is being written, its target is the
`pending` of the id, and every other step of the id is refused with CONCURRENT_TRANSACTIONS; so it
is while markers are being written (`states.PREPARED`).
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar

from barnabas.coordinator.decision import NOTHING, Decision, Instant
from barnabas.coordinator.transaction.events import EventHistory
from barnabas.coordinator.transaction.metadata import (
    NO_PRODUCER_ID,
    Markers,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.producer_ids import TakeProducerId
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.states import SETTLED, TransactionState
from barnabas.coordinator.transaction.transactional_id import (
    Expectation,
    TransactionalId,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

A = TypeVar("A")
_ONGOING = TransactionState.ONGOING
TxnDecision = Decision[TransactionRecord, A]
Next = Callable[[Instant], TxnDecision[None]]
_new = tuple.__new__
"""Makes a named tuple from all its fields in a quarter of the time of its class."""


Expect = Callable[
    [str, Producer, Collection[TopicPartition], str | None],
    Mapping[TopicPartition, Expectation],
]
"""Tells partitions whom to expect: transactional id, producer, partitions, and principal."""
Aborted = Callable[[TransactionMetadata, str, str | None], None]
"""Called with a transaction that was aborted, the reason, TIMED_OUT or FENCED, and the host that
last asked for its producer id."""
TIMED_OUT: Final = "the timeout is over"
FENCED: Final = "fenced by InitProducerId"


def _not_told(txn: TransactionMetadata, why: str, client_host: str | None) -> None:
    """Do nothing."""


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
        send_markers: Callable[[Markers, int], bool],
        marked: Callable[[str, Producer], None],
        free: Callable[[str], None],
        expect: Expect | None = None,
        aborted: Aborted = _not_told,
    ) -> None:
        """`verification` returns None while leaders do not ask before the first record of a
        transaction, and otherwise the same object for as long as they do. `send_markers` takes the
        markers of a decided transaction and the time in ms, and returns whether all of them are
        written; otherwise `ending.complete` is called for later. `marked` has it called at once.
        `free` is called with a transactional id when its next step may begin. `expect` tells the
        partitions that this broker leads whom to expect; None if they always ask. `aborted` is told
        of transactions that the coordinator aborts."""
        self.settings = settings
        self.take_producer_id = take_producer_id
        self.transaction_version = transaction_version
        """The finalized feature, for steps that no client asked for."""
        self.send_markers = send_markers
        self.marked = marked
        self.ids: dict[str, TransactionalId] = {}
        self.unsettled: dict[str, TransactionalId] = {}
        """The ids whose latest transaction is not complete. Sweeps and gauges look at these."""
        self.history = EventHistory()
        self.verification = verification
        self.free = free
        self.expect = expect
        self.aborted = aborted

    def __iter__(self) -> Iterator[TransactionMetadata]:
        return (each.txn for each in self.ids.values() if each.txn is not None)

    def replay(self, record: TransactionRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a committed record, live and after a fail-over alike. Raises LogOutOfOrder."""
        transactional_id, value, _ = record
        if producer_id != NO_PRODUCER_ID:
            raise LogOutOfOrder(f"{transactional_id} was written in a transaction")
        entry = self.ids.get(transactional_id)
        if value is None:
            if entry is not None:
                self._drop(entry)
            return
        if entry is None:
            entry = self.ids[transactional_id] = TransactionalId(transactional_id)
        known, state, epoch = entry.txn, value[5], value[2]
        if known is not None and known[1] == value[1] and epoch < known[2]:
            raise LogOutOfOrder(f"epoch {epoch} of {transactional_id} stands after {known.epoch}")
        entry.txn = value
        if state is not _ONGOING:
            entry.deadline_ms = entry.witness = None
        if state in SETTLED:
            entry.refused_end = False
            self.unsettled.pop(transactional_id, None)
        else:
            self.unsettled[transactional_id] = entry

    def _drop(self, entry: TransactionalId) -> None:
        entry.txn = None
        del self.ids[entry.key]
        self.unsettled.pop(entry.key, None)
        self.history.forget(entry)

    # -- transactional ids -----------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the logged state of an id, if there is one."""
        entry = self.ids.get(transactional_id)
        return None if entry is None else entry.txn

    def require_known(self, transactional_id: str) -> TransactionalId:
        """Return a transactional id. Raises INVALID_PRODUCER_ID_MAPPING if it is not known."""
        entry = self.ids.get(transactional_id)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return entry

    def witnessed(self, entry: TransactionalId) -> set[TopicPartition] | None:
        """See `TransactionalId.witnessed`."""
        return entry.witnessed(self.verification())

    # -- steps -----------------------------------------------------------------------------------

    def is_flexible(self, txn: TransactionMetadata) -> bool:
        """Return whether the record of a state has the newer format. The older one has no fields
        for the owner, and for the producer id with which the client was told to continue."""
        return (
            self.transaction_version() > 0
            or txn.next_producer_id != NO_PRODUCER_ID
            or txn.owner is not None
        )

    def release(self, entry: TransactionalId) -> None:
        """Let requests that wait try again, unless markers are being written."""
        if not entry.is_busy:
            self.free(entry.key)

    def transition(
        self,
        entry: TransactionalId,
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
        key = entry.key
        if entry.txn is None:
            self.ids[key] = entry
        entry.pending = target
        self.history.note(entry, now[0], event, named)

        def landed(error: KafkaError | None, now: Instant) -> TxnDecision[None]:
            entry.pending = None
            follows = then if error is None else refused
            decision: TxnDecision[None] = NOTHING if follows is None else follows(now)
            self.release(entry)
            if entry.txn is None:
                # The log refused its first record.
                self._drop(entry)
            return decision

        record = _new(TransactionRecord, (key, target, self.is_flexible(target)))
        return _new(Decision, (answer, (record,), (), landed, None, None, postpones, False))
