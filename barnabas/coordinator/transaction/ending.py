"""The end of a transaction by EndTxn, by its timeout or by a newer producer, and its completion.

    decided: PREPARE_x is written -> markers -> COMPLETE_x is written

Once PREPARE_x is written, the outcome is final, even if another broker becomes the coordinator.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeVar

from barnabas.coordinator.decision import NOTHING, Call, Decision, Instant, StartTimer
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    TV2,
    Markers,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.states import PREPARED, TransactionState
from barnabas.coordinator.transaction.table import TIMED_OUT, TransactionTable, TxnDecision
from barnabas.coordinator.transaction.transactional_id import TransactionalId
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

A = TypeVar("A")
COMPLETION_RETRY_MS: Final = 100
"""The wait before COMPLETE_x is written again, if the log refused it."""
COMMITS: Final = "EndTxn commits"
ABORTS: Final = "EndTxn aborts"
MARKER_IN: Final = "marker in"
"""The event of a marker."""
MARKED: Final = "every marker is written"
"""The event of COMPLETE_x."""


class EndTxn(NamedTuple):
    """A request to end the transaction of a producer."""

    transactional_id: str
    producer: Producer
    committed: bool
    client_version: int
    """The `transaction.version` of the client."""
    written: frozenset[TopicPartition] | None
    """The partitions that the client has written to (KIP-609); None if it does not tell."""
    connection: int
    principal: str | None = None
    """The principal of the client; None without an authorizer."""


class Epoch(Enum):
    """The epoch that an EndTxn names."""

    CURRENT = "current"
    PREVIOUS = "used up by the last EndTxn"
    OTHER = "any other"

    __hash__ = object.__hash__
    """Enum's own is written in Python, and each EndTxn is looked up by its epoch."""


class EndTxnReply(Enum):
    """The reply to an EndTxn."""

    DECIDE = "decide, and answer with the producer to go on with"
    REPEAT = "repeat the answer"
    BUSY = ErrorCode.CONCURRENT_TRANSACTIONS.name
    INVALID = ErrorCode.INVALID_TXN_STATE.name
    FENCED = ErrorCode.PRODUCER_FENCED.name


class Replies(NamedTuple):
    """The replies to a commit and to an abort."""

    commit: EndTxnReply
    abort: EndTxnReply


ReplyTable = Mapping[tuple[TransactionState, Epoch], Replies]
_S, _R = TransactionState, EndTxnReply
_FENCED: Final = Replies(EndTxnReply.FENCED, EndTxnReply.FENCED)
_BUSY: Final = Replies(EndTxnReply.BUSY, EndTxnReply.BUSY)

OLDER_CLIENTS: Final[ReplyTable] = {
    (_S.EMPTY, Epoch.CURRENT): Replies(_R.INVALID, _R.INVALID),
    (_S.ONGOING, Epoch.CURRENT): Replies(_R.DECIDE, _R.DECIDE),
    (_S.PREPARE_COMMIT, Epoch.CURRENT): _BUSY,
    (_S.PREPARE_ABORT, Epoch.CURRENT): _BUSY,
    (_S.COMPLETE_COMMIT, Epoch.CURRENT): Replies(_R.REPEAT, _R.INVALID),
    (_S.COMPLETE_ABORT, Epoch.CURRENT): Replies(_R.INVALID, _R.REPEAT),
}
"""Before TV2, as in Kafka 4.4: the same epoch means the same transaction. Another epoch is FENCED
in every state."""

NEWER_CLIENTS: Final[ReplyTable] = {
    (_S.EMPTY, Epoch.CURRENT): Replies(_R.INVALID, _R.DECIDE),
    (_S.EMPTY, Epoch.PREVIOUS): _FENCED,
    (_S.ONGOING, Epoch.CURRENT): Replies(_R.DECIDE, _R.DECIDE),
    (_S.ONGOING, Epoch.PREVIOUS): _FENCED,
    (_S.PREPARE_COMMIT, Epoch.CURRENT): _BUSY,
    (_S.PREPARE_COMMIT, Epoch.PREVIOUS): _BUSY,
    (_S.PREPARE_COMMIT, Epoch.OTHER): _BUSY,
    (_S.PREPARE_ABORT, Epoch.CURRENT): _BUSY,
    (_S.PREPARE_ABORT, Epoch.PREVIOUS): _BUSY,
    (_S.PREPARE_ABORT, Epoch.OTHER): _BUSY,
    (_S.COMPLETE_COMMIT, Epoch.CURRENT): Replies(_R.INVALID, _R.DECIDE),
    (_S.COMPLETE_COMMIT, Epoch.PREVIOUS): Replies(_R.REPEAT, _R.INVALID),
    (_S.COMPLETE_ABORT, Epoch.CURRENT): Replies(_R.INVALID, _R.DECIDE),
    (_S.COMPLETE_ABORT, Epoch.PREVIOUS): Replies(_R.INVALID, _R.REPEAT),
}
"""From TV2 on, as in Kafka 4.4: the current epoch means the current transaction, even if it has no
partitions; the previous epoch means the transaction before. Another epoch is FENCED in every
settled state."""


def reply_to(
    txn: TransactionMetadata, producer: Producer, committed: bool, client_version: int
) -> EndTxnReply:
    """Return the reply to an EndTxn. Raises INVALID_PRODUCER_ID_MAPPING."""
    replies = NEWER_CLIENTS if client_version >= TV2 else OLDER_CLIENTS
    epoch = epoch_of(txn, producer, client_version)
    commit, abort = replies.get((txn.state, epoch), _FENCED)
    return commit if committed else abort


def epoch_of(txn: TransactionMetadata, producer: Producer, client_version: int) -> Epoch:
    """Return which epoch of a transactional id a producer names.

    Raises INVALID_PRODUCER_ID_MAPPING.
    """
    if client_version >= TV2 and not txn.is_kept and _names_used_up_epoch(txn, producer):
        # After the last epoch was fenced, the producer has no epoch left.
        return Epoch.PREVIOUS if txn.epoch <= LAST_CLIENT_EPOCH else Epoch.OTHER
    if not txn.knows(producer.producer_id):
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    return Epoch.CURRENT if txn.is_current(producer) else Epoch.OTHER


def end(table: TransactionTable, request: EndTxn, now: Instant) -> TxnDecision[Producer]:
    """Decide to commit or to abort; answered with the producer that the client uses next.

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    transactional_id, producer, committed, client_version, written, connection, owner = request
    entry = table.require_known(transactional_id)
    entry.require_owner(owner)
    if client_version >= TV2:
        # As in Kafka 4.4: only TV2 looks at pending steps before it looks at the producer.
        entry.require_free()
    elif table.settings.fences_older_connections:
        entry.admit(producer, connection)
    txn = entry.txn
    if txn is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    reply = reply_to(txn, producer, committed, client_version)
    if reply is not EndTxnReply.FENCED:
        entry.require_free()
    if reply is EndTxnReply.REPEAT:
        return Decision(txn.producer)
    if reply is not EndTxnReply.DECIDE:
        raise _refusal(reply, txn, committed)
    to_mark = _to_mark(table, entry, txn, written)
    target = _prepared(table, txn, committed, client_version, now, to_mark)
    event = COMMITS if committed else ABORTS
    mark = partial(_mark, table, entry, target)
    return table.transition(entry, target, target.next_producer, now, event, mark)


def _names_used_up_epoch(txn: TransactionMetadata, producer: Producer) -> bool:
    """Whether a TV2 client names the epoch that its last EndTxn used up."""
    if txn.client_version < TV2:
        # The end of an older client used up no epoch: the epoch before belongs to a producer that
        # was replaced.
        return False
    if txn.producer_id == producer.producer_id:
        return txn.epoch == producer.epoch + 1
    return (
        txn.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_CLIENT_EPOCH
        and txn.epoch == 0
    )


def _refusal(reply: EndTxnReply, txn: TransactionMetadata, committed: bool) -> KafkaError:
    if reply is EndTxnReply.INVALID:
        wanted = "commit" if committed else "abort"
        message = f"cannot {wanted} a transaction in state {txn.state.value}"
        return KafkaError(ErrorCode.INVALID_TXN_STATE, message)
    return KafkaError(ErrorCode[reply.value])


def _to_mark(
    table: TransactionTable,
    entry: TransactionalId,
    txn: TransactionMetadata,
    written: frozenset[TopicPartition] | None,
) -> frozenset[TopicPartition]:
    """Return the partitions that need a marker: a client's report is not believed alone.

    The client of a kept transaction did not write it, and cannot report.
    """
    if written is None or txn.is_kept:
        return txn.partitions
    witnessed = table.witnessed(entry)
    if witnessed is None:
        return txn.partitions
    to_mark = txn.partitions & (written | witnessed)
    # A partition that gets no marker must not be written any more.
    entry.void_expected(to_mark)
    return to_mark


def _prepared(
    table: TransactionTable,
    txn: TransactionMetadata,
    committed: bool,
    client_version: int,
    now: Instant,
    partitions: frozenset[TopicPartition],
) -> TransactionMetadata:
    needs_id = client_version >= TV2 and txn.exhausted
    next_id = table.take_producer_id() if needs_id else NO_PRODUCER_ID
    return txn.prepared(
        committed, client_version, now.wall_ms, next_producer_id=next_id, partitions=partitions
    )


# -- markers, and the completion -------------------------------------------------------------------


def _mark(
    table: TransactionTable, entry: TransactionalId, txn: TransactionMetadata, now: Instant
) -> TxnDecision[None]:
    if not txn.partitions:
        return _completion(table, entry, txn, now)
    return Decision(None, effects=[_send(table, entry, txn, now)])


def _send(
    table: TransactionTable, entry: TransactionalId, txn: TransactionMetadata, now: Instant
) -> Call:
    return Call(partial(_send_now, table, entry, Markers.of(txn), now))


def _send_now(
    table: TransactionTable, entry: TransactionalId, markers: Markers, now: Instant
) -> None:
    if table.send_markers(markers, now[0]):
        table.history.note(entry, now[0], MARKER_IN, markers.partitions)
        table.marked(markers.transactional_id, markers.producer)


def resume(
    table: TransactionTable, entry: TransactionalId, txn: TransactionMetadata, now: Instant
) -> Call | StartTimer[TransactionRecord]:
    """Return the effect that carries a decided transaction on after a load."""
    return _send(table, entry, txn, now) if txn.partitions else _complete_later(table, txn, 0)


def complete(
    table: TransactionTable, transactional_id: str, producer: Producer, now: Instant
) -> TxnDecision[None]:
    """Complete a transaction whose every marker is written."""
    entry = table.ids.get(transactional_id)
    if entry is None or entry.pending is not None or (txn := entry.txn) is None:
        return NOTHING
    producer_id, epoch = producer
    if txn.producer_id != producer_id or txn.epoch != epoch or txn.state not in PREPARED:
        return NOTHING
    return _completion(table, entry, txn, now)


def _completion(
    table: TransactionTable, entry: TransactionalId, txn: TransactionMetadata, now: Instant
) -> TxnDecision[None]:
    def refused(_now: Instant) -> TxnDecision[None]:
        entry.refused_end = True
        return Decision(None, effects=[_complete_later(table, txn, COMPLETION_RETRY_MS)])

    target = txn.completed(now.wall_ms)
    # A coordinator that finds PREPARE_x sends the markers again, and completes.
    postpones = bool(txn.partitions)
    return table.transition(entry, target, None, now, MARKED, refused=refused, postpones=postpones)


def _complete_later(
    table: TransactionTable, txn: TransactionMetadata, delay_ms: int
) -> StartTimer[TransactionRecord]:
    key = txn.transactional_id
    return StartTimer(("complete", key), delay_ms, key, partial(complete, table, key, txn.producer))


# -- ends that no client asks for ------------------------------------------------------------------


def overdue(table: TransactionTable, monotonic_ms: int) -> list[str]:
    """Return the transactional ids whose open transaction has exceeded its timeout."""
    return [
        key
        for key, entry in table.unsettled.items()
        if entry.deadline_ms is not None and entry.deadline_ms <= monotonic_ms
    ]


def time_out(table: TransactionTable, transactional_id: str, now: Instant) -> TxnDecision[None]:
    """Abort a transaction that has exceeded its timeout."""
    entry = table.ids.get(transactional_id)
    if entry is None or entry.deadline_ms is None or entry.deadline_ms > now.monotonic_ms:
        return NOTHING
    if entry.txn is None or entry.pending is not None:
        return NOTHING
    return abort(table, entry, entry.txn, None, now, TIMED_OUT)


def abort(
    table: TransactionTable,
    entry: TransactionalId,
    txn: TransactionMetadata,
    answer: A | KafkaError,
    now: Instant,
    why: str,
) -> TxnDecision[A]:
    """Abort an open transaction, and fence its producer."""
    version = table.transaction_version()
    if version >= TV2:
        # As its own EndTxn would: one bump, and at the last epoch the next id with it
        # (KAFKA-19367, KAFKA-20090).
        target = _prepared(table, txn, False, version, now, txn.partitions)
    else:
        target = txn.fenced(version, now.wall_ms)
    written = partial(_aborted, table, entry, txn, target, why)
    return table.transition(entry, target, answer, now, why, written)


def _aborted(
    table: TransactionTable,
    entry: TransactionalId,
    txn: TransactionMetadata,
    target: TransactionMetadata,
    why: str,
    now: Instant,
) -> TxnDecision[None]:
    table.aborted(txn, why, None if entry.events is None else entry.events.client_host)
    return _mark(table, entry, target, now)
