"""Partitions of a transaction: AddPartitionsToTxn from clients, and verification by leaders."""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple

from barnabas.coordinator.decision import NOTHING, Instant
from barnabas.coordinator.transaction.events import EVENTS_PER_ID
from barnabas.coordinator.transaction.metadata import (
    NO_TIMEOUT_MS,
    TV2,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.states import PREPARED, TransactionState
from barnabas.coordinator.transaction.table import TransactionTable, TxnDecision
from barnabas.coordinator.transaction.transactional_id import TransactionalId, Witness
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

Answers = dict[TopicPartition, ErrorCode]
EXPECTED: Final = 64
"""The largest number of partitions in a request that are told whom to expect."""


class AddPartitions(NamedTuple):
    """A request to add partitions to a transaction."""

    transactional_id: str
    producer: Producer
    partitions: Collection[TopicPartition]
    client_version: int
    """The `transaction.version` of the client. With TV2 the request comes from the leader of the
    partitions, to which the client is about to write."""
    connection: int | None = None
    """The client's connection; None if a leader asks."""
    principal: str | None = None
    """The principal of the client; None without an authorizer."""


def add_partitions(
    table: TransactionTable, request: AddPartitions, now: Instant
) -> TxnDecision[None]:
    """Add partitions to the transaction; the first ones begin it.

    Raises CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE
    (the transaction is kept).
    """
    transactional_id, producer, partitions, client_version, connection, principal = request
    entry = table.require_known(transactional_id)
    entry.require_owner(principal)
    if connection is not None and table.settings.fences_older_connections:
        entry.admit(producer, connection)
    # Before the check of the producer: a TV2 producer may hold an id and epoch that become current
    # only once the transactional id is free.
    entry.require_free()
    txn = entry.require(producer)
    ongoing = txn.state is TransactionState.ONGOING
    if ongoing and txn.partitions.issuperset(partitions):
        if client_version >= TV2:
            entry.asked_about(partitions)
        return NOTHING
    target = txn.with_partitions(partitions, client_version, now.wall_ms)

    def added(_now: Instant) -> TxnDecision[None]:
        joined(table, entry, request, producer, txn, now)
        return NOTHING

    event = "adds" if ongoing else "begins"
    return table.transition(entry, target, None, now, event, added, named=partitions)


def joined(
    table: TransactionTable,
    entry: TransactionalId,
    request: AddPartitions,
    producer: Producer,
    before: TransactionMetadata,
    now: Instant,
) -> None:
    """Note that partitions are in the transaction, which was in the state `before` and may have
    begun now."""
    partitions = request.partitions
    if before[5] is TransactionState.ONGOING:
        partitions = [each for each in partitions if each not in before.partitions]
    else:
        entry.deadline_ms = now[1] + before[3] if before[3] != NO_TIMEOUT_MS else None
        verification = table.verification()
        entry.witness = None if verification is None else Witness(verification)
    witness = entry.witness
    if witness is None:
        return
    if request.client_version >= TV2:
        witness.asked.update(request.partitions)
    elif table.expect is not None and len(partitions) <= EXPECTED:
        witness.told.update(table.expect(entry.key, producer, partitions, request.principal))


class VerifyPartitions(NamedTuple):
    """A leader's question whether partitions are in a transaction."""

    transactional_id: str
    producer: Producer
    partitions: Collection[TopicPartition]
    principal: str | None


def verify(table: TransactionTable, request: VerifyPartitions, wall_ms: int) -> Answers:
    """Answer a leader whether partitions are in the open transaction (KIP-890 part 1).

    A step that is being written does not count, because the leader checks once more when it
    appends. But a partition that an EndTxn under way leaves without a marker must not be written.
    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE
    (the transaction is kept).
    """
    entry, answers = _answers(table, request)
    _note(table, entry, answers, wall_ms)
    return answers


def verify_all(table: TransactionTable, request: VerifyPartitions) -> Callable[[int], None]:
    """Answer as `verify` does that each partition is in the open transaction. Returns what notes
    it at a wall time in ms; raises TRANSACTION_ABORTABLE too. Changes nothing itself."""
    entry, answers = _answers(table, request)
    if any(answers.values()):
        raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE)
    return partial(_note, table, entry, answers)


def _answers(table: TransactionTable, request: VerifyPartitions) -> tuple[TransactionalId, Answers]:
    transactional_id, producer, partitions, principal = request
    entry = table.require_known(transactional_id)
    entry.require_owner(principal)
    txn = entry.require(producer)
    if txn.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    pending = entry.pending
    inside = txn.partitions if pending is None else txn.partitions & pending.partitions
    return entry, {
        each: ErrorCode.NONE if each in inside else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def _note(table: TransactionTable, entry: TransactionalId, answers: Answers, wall_ms: int) -> None:
    entry.asked_about([each for each, code in answers.items() if code is ErrorCode.NONE])
    # The history keeps no more events than these of one id.
    for each, code in list(answers.items())[-EVENTS_PER_ID:]:
        event = "first record for" if code is ErrorCode.NONE else f"{code.name}: record for"
        table.history.note(entry, wall_ms, event, (each,))
