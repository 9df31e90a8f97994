"""Producers of transactional ids: InitProducerId, and ids that expire."""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.coordinator.decision import NOTHING, Decision, Instant
from barnabas.coordinator.transaction.ending import abort
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_TIMEOUT_MS,
    TV2,
    NextClient,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.states import SETTLED, TransactionState
from barnabas.coordinator.transaction.table import FENCED, TransactionTable, TxnDecision
from barnabas.coordinator.transaction.transactional_id import TransactionalId
from barnabas.protocol.errors import ErrorCode, KafkaError

EXPIRED_AT_ONCE: Final = 1_000
"""The number of transactional ids that one batch of tombstones removes."""


class InitProducerId(NamedTuple):
    """A request for the producer id of a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None
    """The producer that the client had, if it continues after a fault (KIP-360)."""
    client_host: str
    two_phase: bool = False
    """Whether the transactions of the client have no timeout (KIP-939)."""
    keeps: bool = False
    """Whether an open transaction is kept for the client instead of aborted (KIP-939)."""
    principal: str | None = None
    """The principal of the client; None without an authorizer."""


class Initialised(NamedTuple):
    """The answer to InitProducerId."""

    producer: Producer
    ongoing: Producer | None = None
    """The producer of the transaction that was kept; None without one."""


def init_producer_id(
    table: TransactionTable, request: InitProducerId, now: Instant
) -> TxnDecision[Initialised]:
    """Give a client its producer id and epoch; the producer that had the id before is fenced.

    Raises CONCURRENT_TRANSACTIONS and PRODUCER_FENCED, and UNSUPPORTED_VERSION for two-phase commit
    below `transaction.version` 2. An open transaction is kept if the client wants that; otherwise
    it is aborted, and the answer is CONCURRENT_TRANSACTIONS as well.
    """
    transactional_id, timeout_ms, expected, client_host, two_phase, keeps, principal = request
    if (two_phase or keeps) and table.transaction_version() < TV2:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "Two-phase commit needs transaction.version 2."
        )
    timeout_ms = NO_TIMEOUT_MS if two_phase else timeout_ms
    entry = table.ids.get(transactional_id) or TransactionalId(transactional_id)
    entry.require_free()
    txn = entry.txn
    if txn is None:
        txn = TransactionMetadata(
            transactional_id, table.take_producer_id(), NO_EPOCH, timeout_ms, now.wall_ms
        )
    elif expected is not None and not _may_resume(txn, expected, keeps=keeps):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if txn.state is TransactionState.ONGOING and not keeps:
        table.history.came_from(entry, client_host)
        later = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return abort(table, entry, txn, later, now, FENCED)
    client = _next_client(table, txn, expected)
    table.history.came_from(entry, client_host)
    # A producer that starts again may use any connection.
    entry.latest_use = None
    if txn.state is TransactionState.ONGOING:
        # The client before must not write any more.
        entry.void_expected()
        return _keep(table, entry, txn.kept(client, now.wall_ms, principal, pins=two_phase), now)
    target = txn.initialised(client, timeout_ms, now.wall_ms, principal)
    return table.transition(entry, target, Initialised(target.producer), now, "InitProducerId")


def _may_resume(txn: TransactionMetadata, expected: Producer, *, keeps: bool) -> bool:
    """Return whether a producer that names its id may continue (KIP-360).

    Its epoch is checked later.
    """
    if txn.is_kept and not keeps:
        # The producer that wrote the transaction may have the same id, and must not abort it.
        return expected == txn.client
    return expected.producer_id == txn.client.producer_id or (
        # The answer with the fresh id may have been lost.
        expected.producer_id == txn.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH
    )


def _next_client(
    table: TransactionTable, txn: TransactionMetadata, expected: Producer | None
) -> NextClient:
    epoch = None if expected is None else expected.epoch
    if txn.exhausted and epoch in (None, txn.client.epoch):
        return txn.rotated_client(table.take_producer_id(), resumes=expected is not None)
    return txn.next_client(epoch)


def _keep(
    table: TransactionTable, entry: TransactionalId, target: TransactionMetadata, now: Instant
) -> TxnDecision[Initialised]:
    def written(_now: Instant) -> TxnDecision[None]:
        if not target.times_out:
            entry.deadline_ms = None
        return NOTHING

    producer_id, epoch = target.client
    event = f"InitProducerId keeps the transaction for client {producer_id}:{epoch}"
    if not target.times_out:
        event += ", without a timeout"
    answer = Initialised(target.client, ongoing=target.producer)
    return table.transition(entry, target, answer, now, event, written)


def expire(table: TransactionTable, now: Instant) -> TxnDecision[int]:
    """Remove transactional ids that were not used for `transactional.id.expiration.ms`.

    At most `EXPIRED_AT_ONCE` of them; answered with how many.
    """
    horizon = now.wall_ms - table.settings.id_expiration_ms
    expired: list[TransactionalId] = []
    for entry in table.ids.values():
        txn = entry.txn
        if txn is None or entry.pending is not None:
            continue
        if txn.updated_ms <= horizon and txn.state in SETTLED:
            expired.append(entry)
            if len(expired) == EXPIRED_AT_ONCE:
                break
    if not expired:
        return Decision(0)
    for entry in expired:
        entry.pending = entry.txn

    def landed(_error: KafkaError | None, _now: Instant) -> TxnDecision[None]:
        for entry in expired:
            entry.pending = None
            table.release(entry)
        return NOTHING

    tombstones = [TransactionRecord(entry.key, None) for entry in expired]
    return Decision(len(expired), tombstones, then=landed)
