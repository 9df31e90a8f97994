"""`barnabas transactions`: list and explain open transactions; end, abort and repair them."""

import time
from collections.abc import Sequence
from typing import Any

import click

from barnabas.cli import names
from barnabas.cli.common import Target, cluster_options
from barnabas.cli.help import Group
from barnabas.cli.partition_arguments import (
    any_partitions,
    one_partition,
    topic_or_partition,
)
from barnabas.cli.tables import for_people, tell
from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import (
    ONGOING,
    OpenTransaction,
    TransactionAdmin,
    client_of,
)
from barnabas.operations.answers.model import fields_of, names_of
from barnabas.operations.answers.transactions import (
    AbortedTransaction,
    DescribedTransaction,
    EndedTransaction,
    Event,
    FencedProducer,
    HangingTransaction,
    RepairedTransaction,
    StuckPartition,
    Transaction,
    TwoPhaseTransaction,
)
from barnabas.operations.partitions import PartitionArgument, partitions_of
from barnabas.protocol.topic_partition import TopicPartition

_MINUTE_MS = 60_000


@click.group(cls=Group)
def transactions() -> None:
    """List and explain open transactions; end, abort, fence and repair them."""


@transactions.command("list")
@click.option("-s", "--state", "states", multiple=True, help="Only in this state, e.g. Ongoing.")
@click.option(
    "--producer-id", "producer_ids", type=int, multiple=True, help="Only of this producer id."
)
@click.option(
    "--longer-than",
    type=click.FloatRange(0),
    help="Only those whose last transaction began longer ago, in s.",
)
@click.option("--pattern", help="Only ids that match this RE2 expression as a whole.")
@click.option(
    "--two-phase",
    is_flag=True,
    help="Only open ones of two-phase commit, with the client that may end each.",
)
@cluster_options
def list_transactions(
    target: Target,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: float | None,
    pattern: str | None,
    two_phase: bool,
) -> None:
    """List the transactional ids of every coordinator."""

    async def work(cluster: Cluster) -> Sequence[Transaction | TwoPhaseTransaction]:
        found = await TransactionAdmin(cluster).transactions(
            states=states or ([ONGOING] if two_phase else []),
            producer_ids=producer_ids,
            longer_than_ms=-1 if longer_than is None else int(longer_than * 1000),
            pattern=pattern,
        )
        if two_phase:
            # Imported here: the list of all needs no code of coordinators.
            from barnabas.operations.transactions.kept import two_phase_rows

            return await two_phase_rows(cluster, found, _now_ms())
        return [Transaction(*each) for each in found]

    target.show(TwoPhaseTransaction if two_phase else Transaction, target.run(work))


@transactions.command()
@click.argument("transactional_id", shell_complete=names.transactional_ids)
@cluster_options
def describe(target: Target, transactional_id: str) -> None:
    """Show a transactional id."""

    async def work(cluster: Cluster) -> DescribedTransaction:
        admin = TransactionAdmin(cluster)
        row = await admin.describe(transactional_id)
        start = row.transaction_start_time_ms
        return DescribedTransaction(
            transactional_id=transactional_id,
            coordinator=await admin.coordinator(transactional_id),
            producer_id=row.producer_id,
            epoch=row.producer_epoch,
            state=row.transaction_state,
            timeout_ms=row.transaction_timeout_ms,
            started_at_ms=start if start >= 0 else None,
            age_ms=max(_now_ms() - start, 0) if start >= 0 else None,
            partitions=[f"{t.topic}:{each}" for t in row.topics for each in t.partitions],
            kept_by="{}:{}".format(*client_of(row)) if row.is_kept else None,
        )

    target.show_one(target.run(work))


@transactions.command()
@click.argument(
    "named", metavar="TOPIC[:PARTITION]", callback=topic_or_partition, shell_complete=names.topics
)
@cluster_options
def why(target: Target, named: PartitionArgument) -> None:
    """Explain why a read_committed consumer is stuck."""
    from barnabas.operations.transactions.stuck import stuck_partitions

    async def work(cluster: Cluster) -> list[StuckPartition]:
        partitions = await partitions_of(cluster, [named])
        return await stuck_partitions(cluster, partitions, now_ms=_now_ms())

    found = target.run(work)
    if target.as_json:
        target.answer(found)
        return
    if not found:
        topic, partition = named
        name = topic if partition is None else f"{topic}:{partition}"
        tell(f"No open transaction holds back read_committed consumers of {name}.")
    for each in found:
        target.show_one(_facts(each), title=f"{each.topic}:{each.partition}")
        if each.timeline:
            target.show(Event, each.timeline)
        tell(f"{each.topic}:{each.partition}: {each.because}")
        if each.advice:
            tell(f"try: {each.advice}")


def _facts(found: StuckPartition) -> dict[str, Any]:
    """Return what is in the card of a partition, with names as people read them."""
    elsewhere = {"topic", "partition", "timeline", "because", "advice"}
    shown = [name for name in names_of(StuckPartition) if name not in elsewhere]
    _, (facts,) = for_people(shown, [fields_of(found)])
    return {name.replace("_", " "): value for name, value in facts.items()}


@transactions.command("find-hanging")
@any_partitions
@click.option(
    "--broker-id",
    type=int,
    shell_complete=names.brokers,
    help="Only partitions that this broker leads.",
)
@click.option(
    "--max-transaction-timeout",
    "minutes",
    default=15.0,
    show_default=True,
    help="The largest transaction.max.timeout.ms of the brokers, in minutes.",
)
@cluster_options
def find_hanging(
    target: Target,
    named: list[PartitionArgument],
    broker_id: int | None,
    minutes: float,
) -> None:
    """Find hanging transactions.

    A hanging transaction is open in a partition, but unknown to its coordinator.
    """

    async def work(cluster: Cluster) -> list[OpenTransaction]:
        return await TransactionAdmin(cluster).hanging(
            await partitions_of(cluster, named, leader=broker_id),
            older_than_ms=int(minutes * _MINUTE_MS),
            now_ms=_now_ms(),
        )

    now_ms = _now_ms()
    rows = [
        HangingTransaction(*each, idle_ms=now_ms - each.last_timestamp_ms)
        for each in target.run(work)
    ]
    target.show(HangingTransaction, rows)


@transactions.command()
@click.argument("partition", metavar="TOPIC:PARTITION", callback=one_partition)
@click.option("--start-offset", type=int, required=True, help="As shown by find-hanging and why.")
@click.option("--force", is_flag=True, help="Even if it may have committed or may still be open.")
@cluster_options
def abort(target: Target, partition: tuple[str, int], start_offset: int, force: bool) -> None:
    """Abort a hanging transaction in one partition.

    Refuses if the transaction log says that the transaction committed, or cannot tell, and if the
    transaction is kept for two-phase commit.
    """
    from barnabas.operations.transactions.hanging import abort_one

    async def work(cluster: Cluster) -> OpenTransaction:
        place = TopicPartition(*partition)
        return await abort_one(cluster, place, start_offset, force=force, now_ms=_now_ms())

    ended = target.run(work)
    target.done(
        f"Aborted the transaction at offset {start_offset} of {partition[0]}:{partition[1]}.",
        AbortedTransaction(*ended, aborted=True),
    )


@transactions.command()
@click.argument("transactional_id", shell_complete=names.transactional_ids)
@click.option("--commit", "committed", is_flag=True, help="Commit it.")
@click.option("--abort", "aborted", is_flag=True, help="Abort it.")
@cluster_options
def end(target: Target, transactional_id: str, committed: bool, aborted: bool) -> None:
    """End a transaction of two-phase commit.

    Give the outcome that was decided where the transaction was prepared. A Spark sink's
    transactions are ended by `barnabas pipeline recover`.
    """
    if committed == aborted:
        raise click.UsageError("Give either --commit or --abort.")
    from barnabas.operations.transactions.kept import end_two_phase

    producer_id, epoch = target.run(
        lambda cluster: end_two_phase(cluster, transactional_id, committed=committed)
    )
    target.done(
        f"{'Committed' if committed else 'Aborted'} the transaction of {transactional_id}.",
        EndedTransaction(transactional_id, producer_id, epoch, committed),
    )


@transactions.command()
@click.argument("transactional_id", shell_complete=names.transactional_ids)
@click.option("--force", is_flag=True, help="Even if its transaction is kept for a decision.")
@cluster_options
def fence(target: Target, transactional_id: str, force: bool) -> None:
    """Fence a producer, abort its open transaction.

    Refuses if the transaction is one of two-phase commit, whose outcome may be decided elsewhere.
    """

    async def work(cluster: Cluster) -> tuple[int, int]:
        admin = TransactionAdmin(cluster)
        if not force:
            from barnabas.operations.transactions.kept import refuse_two_phase

            row = await admin.describe(transactional_id, include_events=True)
            refuse_two_phase(row, _now_ms())
        return await admin.fence(transactional_id)

    producer_id, epoch = target.run(work)
    target.done(
        f"Fenced {transactional_id}: producer id {producer_id} goes on with epochs above {epoch}.",
        FencedProducer(transactional_id, producer_id, epoch),
    )


@transactions.command()
@any_partitions
@click.option("--dry-run", is_flag=True, help="Show what would be written, write nothing.")
@cluster_options
def repair(target: Target, named: list[PartitionArgument], dry_run: bool) -> None:
    """Write lost markers of hanging transactions.

    A marker can be lost in a power cut. The transaction log has the decision; if the log cannot
    tell, no marker is written, and the exit code is 1.
    """
    from barnabas.operations.transactions.hanging import UndecidedTransaction, repair_all

    async def work(cluster: Cluster) -> list[RepairedTransaction]:
        return await repair_all(cluster, await partitions_of(cluster, named), dry_run=dry_run)

    rows = target.run(work)
    columns = ["topic", "partition", "producer_id", "producer_epoch", "start_offset"]
    target.show([*columns, "decision", "written", "why"], rows, title="dry run" if dry_run else "")
    undecided = sum(row.decision == "unknown" for row in rows)
    if undecided:
        raise UndecidedTransaction(
            f"{undecided} hanging transaction(s) without a certain decision in the log; see `why`"
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
