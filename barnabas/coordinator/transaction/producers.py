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
from barnabas.coordinator.transaction.table import TransactionTable, TxnDecision
from barnabas.protocol.errors import ErrorCode, KafkaError

EXPIRED_AT_ONCE: Final = 1_000
"""The number of transactional ids that one batch of tombstones removes."""


class InitProducerId(NamedTuple):
    """A request for the producer id of a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None
    """The producer that the client had, if it goes on after a fault (KIP-360)."""
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
    table.require_free(transactional_id)
    txn = table.transactions.get(transactional_id)
    if txn is None:
        txn = TransactionMetadata(
            transactional_id, table.take_producer_id(), NO_EPOCH, timeout_ms, now.wall_ms
        )
    elif expected is not None and not _may_resume(txn, expected, keeps=keeps):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if txn.state is TransactionState.ONGOING and not keeps:
        table.history.came_from(transactional_id, client_host)
        later = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return abort(table, txn, later, now, "fenced by InitProducerId")
    client = _next_client(table, txn, expected)
    table.history.came_from(transactional_id, client_host)
    table.connections.forget(transactional_id)
    if txn.state is TransactionState.ONGOING:
        # The client before must not write any more.
        table.void_expected(transactional_id)
        return _keep(table, txn.kept(client, now.wall_ms, principal, pins=two_phase), now)
    target = txn.initialised(client, timeout_ms, now.wall_ms, principal)
    return table.transition(target, Initialised(target.producer), now, "InitProducerId")


def _may_resume(txn: TransactionMetadata, expected: Producer, *, keeps: bool) -> bool:
    """Return whether a producer that names its id may go on (KIP-360); its epoch is checked
    later."""
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
    table: TransactionTable, target: TransactionMetadata, now: Instant
) -> TxnDecision[Initialised]:
    def written(_now: Instant) -> TxnDecision[None]:
        if not target.times_out:
            table.deadlines.pop(target.transactional_id, None)
        return NOTHING

    producer_id, epoch = target.client
    event = f"InitProducerId keeps the transaction for client {producer_id}:{epoch}"
    if not target.times_out:
        event += ", without a timeout"
    answer = Initialised(target.client, ongoing=target.producer)
    return table.transition(target, answer, now, event, written)


def expire(table: TransactionTable, now: Instant) -> TxnDecision[int]:
    """Remove transactional ids that were not used for `transactional.id.expiration.ms`.

    At most `EXPIRED_AT_ONCE` of them; answered with how many.
    """
    horizon = now.wall_ms - table.settings.id_expiration_ms
    expired: list[str] = []
    for key, txn in table.transactions.items():
        if txn.updated_ms <= horizon and txn.state in SETTLED and key not in table.pending:
            expired.append(key)
            if len(expired) == EXPIRED_AT_ONCE:
                break
    if not expired:
        return Decision(0)
    for key in expired:
        table.pending[key] = table.transactions[key]

    def landed(_error: KafkaError | None, _now: Instant) -> TxnDecision[None]:
        for key in expired:
            del table.pending[key]
            table.release(key)
        return NOTHING

    tombstones = [TransactionRecord(key, None) for key in expired]
    return Decision(len(expired), tombstones, then=landed)
