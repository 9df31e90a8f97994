"""The end of hanging transactions: an abort, or the decision in the transaction log.

A partition may lose a marker in a power cut, although the coordinator's log says that the marker is
written. If that transaction committed elsewhere, an abort here would leave half of it committed.
So the transaction log is read first.
"""

from collections.abc import Iterable
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import OpenTransaction, TransactionAdmin
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.coordinator.transaction.outcome import ReasonedOutcome, TransactionOutcome, verdict
from barnabas.operations.answers.transactions import RepairedTransaction
from barnabas.operations.transactions.kept import refuse_to_abort
from barnabas.operations.transactions.log import History, histories
from barnabas.protocol.topic_partition import TopicPartition

_DECIDED: Final = (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED)
OLDER_PROTOCOL: Final = "no marker is certain where an epoch has many transactions; see `abort`"


class UndecidedTransaction(ValueError):
    """The transaction log cannot tell that the request leaves no transaction half committed."""


async def verdicts_of(
    cluster: Cluster, transactions: Iterable[OpenTransaction]
) -> list[tuple[OpenTransaction, ReasonedOutcome]]:
    """Return each transaction with the verdict of the transaction log."""
    wanted = list(transactions)
    if not wanted:
        return []
    producer_ids = {each.producer_id for each in wanted}
    known = await TransactionAdmin(cluster).transactional_ids(producer_ids)
    found = await histories(cluster, producer_ids, known)
    return [(each, verdict_of(each, found.get(each.producer_id, History([])))) for each in wanted]


def verdict_of(transaction: OpenTransaction, history: History) -> ReasonedOutcome:
    """Return the verdict on a transaction, from the log records of its transactional id."""
    if history.unreadable is not None:
        why = (
            f"the transaction log has a record of its id that cannot be read: {history.unreadable}"
        )
        return ReasonedOutcome(TransactionOutcome.UNKNOWN, why)
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    return verdict(history.records, producer, transaction.topic_partition)


async def abort_one(
    cluster: Cluster, partition: TopicPartition, start_offset: int, *, force: bool, now_ms: int
) -> OpenTransaction:
    """Write an abort marker with the epoch of the transaction, as kafka-transactions.sh does.

    Without `force`, raises UndecidedTransaction if the log says that the transaction committed or
    is still open, or if the log cannot tell; KeptTransaction if it is open for two-phase commit.
    """
    admin = TransactionAdmin(cluster)
    transaction = await transaction_at(admin, partition, start_offset)
    if not force:
        await require_abort(cluster, transaction, now_ms)
        transaction = await transaction_at(admin, partition, start_offset)
    await admin.write_marker(
        transaction,
        committed=False,
        producer_epoch=transaction.producer_epoch,
        transaction_version=TV0,
    )
    return transaction


async def require_abort(cluster: Cluster, transaction: OpenTransaction, now_ms: int) -> None:
    """Raise what `abort_one` raises without `force`, and write nothing."""
    await refuse_to_abort(cluster, transaction, now_ms)
    ((_, judgement),) = await verdicts_of(cluster, [transaction])
    if judgement.outcome is TransactionOutcome.COMMITTED:
        raise UndecidedTransaction(
            f"it committed: {judgement.why}; `repair` writes its marker again"
        )
    if judgement.outcome is not TransactionOutcome.ABORTED:
        raise UndecidedTransaction(f"not aborted: {judgement.why}; --force aborts it nevertheless")


async def transaction_at(
    admin: TransactionAdmin, partition: TopicPartition, start_offset: int
) -> OpenTransaction:
    """Return the transaction that is open from an offset on. Raises ValueError without one."""
    for each in await admin.open_in([partition]):
        if each.start_offset == start_offset:
            return each
    raise ValueError(
        f"no transaction is open in {partition[0]}:{partition[1]} from {start_offset} on"
    )


async def repair_all(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, dry_run: bool
) -> list[RepairedTransaction]:
    """Write every missing marker whose decision is certain.

    Returns a row for each hanging transaction. With `dry_run` no marker is written.
    """
    admin = TransactionAdmin(cluster)
    rows = []
    for transaction, judgement in await verdicts_of(cluster, await admin.open_in(partitions)):
        if judgement.outcome is TransactionOutcome.OPEN:
            continue
        repairable = judgement.outcome in _DECIDED and judgement.own_epoch
        written = (
            repairable and not dry_run and await _write_marker_again(admin, transaction, judgement)
        )
        decided = judgement.outcome if repairable else TransactionOutcome.UNKNOWN
        why = judgement.why
        if not repairable and judgement.outcome in _DECIDED:
            why = OLDER_PROTOCOL
        rows.append(
            RepairedTransaction(*transaction, decision=decided.value, written=written, why=why)
        )
    return rows


async def _write_marker_again(
    admin: TransactionAdmin, transaction: OpenTransaction, judgement: ReasonedOutcome
) -> bool:
    """Write the coordinator's marker again; return False if it is no longer missing.

    Its epoch is the next one (KIP-890), so the marker cannot end a later transaction.
    """
    if transaction not in await admin.open_in([transaction.topic_partition]):
        return False
    await admin.write_marker(
        transaction,
        committed=judgement.outcome is TransactionOutcome.COMMITTED,
        producer_epoch=transaction.producer_epoch + 1,
        transaction_version=TV2,
    )
    return True
