"""Transactions of two-phase commit (KIP-939): who keeps them, and how an operator ends them.

Their outcome may already be decided elsewhere. So nothing here aborts one unless asked to.
"""

from collections.abc import Iterable

from barnabas.client.cluster import Cluster
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.client.transaction_admin import (
    OpenTransaction,
    TransactionAdmin,
    TransactionListing,
    client_of,
    is_two_phase,
)
from barnabas.client.two_phase import end_transaction
from barnabas.operations.answers.transactions import TwoPhaseTransaction
from barnabas.protocol.messages.describe_transactions import TransactionState


class KeptTransaction(ValueError):
    """A transaction of two-phase commit that a command would abort."""


def keeper(row: TransactionState) -> str:
    """Return the client that may end an open transaction: id, producer and, if known, address."""
    producer_id, epoch = client_of(row)
    address = f" at {row.client_host}" if row.client_host else ""
    return f"{row.transactional_id} with producer {producer_id}:{epoch}{address}"


def explanation(row: TransactionState, now_ms: int) -> str:
    """Return why a transaction of two-phase commit is open, who may end it, and its age."""
    kept = "kept" if row.is_kept else "open without a timeout"
    age = max(now_ms - row.transaction_start_time_ms, 0) / 1000
    return f"{kept} for two-phase commit by {keeper(row)}, and open for {age:.1f} s"


def advice(transactional_id: str) -> str:
    """Return the commands that end a transaction of two-phase commit as it was decided."""
    end = f"barnabas transactions end {transactional_id} --commit|--abort"
    return f"barnabas pipeline recover {_sink_of(transactional_id)}, or if no sink has it: {end}"


def refuse_two_phase(row: TransactionState, now_ms: int) -> None:
    """Raise KeptTransaction for an open transaction of two-phase commit."""
    if is_two_phase(row):
        raise KeptTransaction(
            f"not aborted: the transaction is {explanation(row, now_ms)}; its outcome may be"
            f" decided elsewhere: try {advice(row.transactional_id)};"
            " --force aborts it nevertheless"
        )


async def refuse_to_abort(cluster: Cluster, transaction: OpenTransaction, now_ms: int) -> None:
    """Raise KeptTransaction if a coordinator has `transaction` open for two-phase commit."""
    admin = TransactionAdmin(cluster)
    ids = await admin.transactional_ids([transaction.producer_id])
    for row in (await admin.describe_all(ids.values(), include_events=True)).values():
        same_epoch = row.producer_epoch == transaction.producer_epoch
        if row.producer_id == transaction.producer_id and same_epoch:
            refuse_two_phase(row, now_ms)


async def two_phase_rows(
    cluster: Cluster, listed: Iterable[TransactionListing], now_ms: int
) -> list[TwoPhaseTransaction]:
    """Return a row for each open transaction of two-phase commit among `listed`."""
    coordinators = {each.transactional_id: each.coordinator for each in listed}
    described = await TransactionAdmin(cluster).describe_all(coordinators)
    rows = []
    for id in sorted(described):
        row = described[id]
        if not is_two_phase(row):
            continue
        client = client_of(row)
        rows.append(
            TwoPhaseTransaction(
                transactional_id=id,
                coordinator=coordinators[id],
                producer_id=row.producer_id,
                epoch=row.producer_epoch,
                client_producer_id=client.producer_id,
                client_epoch=client.epoch,
                kept=row.is_kept,
                age_ms=max(now_ms - row.transaction_start_time_ms, 0),
            )
        )
    return rows


def require_two_phase(row: TransactionState) -> None:
    """Raise ValueError unless a transaction of two-phase commit is open."""
    if not is_two_phase(row):
        raise ValueError(
            f"{row.transactional_id} has no open transaction of two-phase commit: it is"
            f" {row.transaction_state}, see `barnabas transactions list --two-phase`"
        )


async def end_two_phase(
    cluster: Cluster, transactional_id: str, *, committed: bool
) -> ProducerIdAndEpoch:
    """Commit or abort the transaction of two-phase commit of an id; return its producer.

    Raises ValueError unless one is open.
    """
    row = await TransactionAdmin(cluster).describe(transactional_id)
    require_two_phase(row)
    await end_transaction(cluster, transactional_id, client_of(row), committed=committed)
    return ProducerIdAndEpoch(row.producer_id, row.producer_epoch)


def _sink_of(transactional_id: str) -> str:
    """Return the id of the sink that names its ids like this; SINK if none does."""
    prefix, dot, last = transactional_id.rpartition(".")
    if last != "driver":
        prefix, dot, _ = prefix.rpartition(".")
    return prefix if dot and prefix else "SINK"
