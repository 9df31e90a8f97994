"""How transactions end that no coordinator ends any more: aborted, or as their log had decided.

After a power cut a partition may have lost a marker that its coordinator's log has written down as
done. To abort such a transaction tears what committed elsewhere; so the log is asked first.
"""

from collections.abc import Iterable
from typing import Any, Final

from barnabas.cli.transaction_log import histories
from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import OpenTransaction, TransactionAdmin
from barnabas.coordinator.transaction.decided import Outcome, Verdict, verdict
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer, Transaction
from barnabas.protocol.topic_partition import TopicPartition

_DECIDED: Final = (Outcome.COMMITTED, Outcome.ABORTED)
OLDER_PROTOCOL: Final = "no marker may follow where an epoch has many transactions; see `abort`"


class Doubtful(ValueError):
    """What was asked for may tear a transaction."""


async def judge(
    cluster: Cluster, open_ones: Iterable[OpenTransaction]
) -> list[tuple[OpenTransaction, Verdict]]:
    """What the transaction log says of each."""
    wanted = list(open_ones)
    if not wanted:
        return []
    producer_ids = {each.producer_id for each in wanted}
    known = await TransactionAdmin(cluster).transactional_ids(producer_ids)
    found = await histories(cluster, producer_ids, known)
    return [(each, judged(each, found.get(each.producer_id, []))) for each in wanted]


def judged(open_one: OpenTransaction, history: list[Transaction]) -> Verdict:
    """What the records of its transactional id say of an open transaction."""
    producer = Producer(open_one.producer_id, open_one.producer_epoch)
    return verdict(history, producer, open_one.place)


async def abort_one(
    cluster: Cluster, place: TopicPartition, start_offset: int, *, force: bool
) -> OpenTransaction:
    """Writes an abort marker with the transaction's own epoch, as Kafka's tool does.

    Raises Doubtful, unless forced, where the log says that it committed, that it may still go on,
    or cannot tell.
    """
    admin = TransactionAdmin(cluster)
    open_one = await _open_at(admin, place, start_offset)
    if not force:
        ((_, said),) = await judge(cluster, [open_one])
        if said.outcome is Outcome.COMMITTED:
            raise Doubtful(f"it committed: {said.why}; `repair` writes its marker again")
        if said.outcome is not Outcome.ABORTED:
            raise Doubtful(f"not aborted: {said.why}; --force aborts it nevertheless")
        open_one = await _open_at(admin, place, start_offset)
    await admin.write_marker(
        open_one,
        committed=False,
        producer_epoch=open_one.producer_epoch,
        transaction_version=TV0,
    )
    return open_one


async def _open_at(
    admin: TransactionAdmin, place: TopicPartition, start_offset: int
) -> OpenTransaction:
    for each in await admin.open_in([place]):
        if each.start_offset == start_offset:
            return each
    raise ValueError(f"no transaction is open in {place[0]}:{place[1]} from {start_offset} on")


async def repair_all(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, dry_run: bool
) -> list[dict[str, Any]]:
    """Writes every marker that is decided and missing; a row for each transaction that hangs."""
    admin = TransactionAdmin(cluster)
    rows = []
    for open_one, said in await judge(cluster, await admin.open_in(partitions)):
        if said.outcome is Outcome.OPEN:
            continue
        repairable = said.outcome in _DECIDED and said.own_epoch
        written = repairable and not dry_run and await _write_again(admin, open_one, said)
        rows.append(
            {
                **open_one._asdict(),
                "decision": said.outcome.value if repairable else Outcome.UNKNOWN.value,
                "written": written,
                "why": said.why if repairable or said.outcome not in _DECIDED else OLDER_PROTOCOL,
            }
        )
    return rows


async def _write_again(admin: TransactionAdmin, open_one: OpenTransaction, said: Verdict) -> bool:
    """Whether it was still missing. The marker is the one that its coordinator wrote: with the
    epoch above, so it cannot end a later transaction."""
    if open_one not in await admin.open_in([open_one.place]):
        return False
    await admin.write_marker(
        open_one,
        committed=said.outcome is Outcome.COMMITTED,
        producer_epoch=open_one.producer_epoch + 1,
        transaction_version=TV2,
    )
    return True
