"""`barnabas transactions`: what is open, why readers wait, and how to end what nobody ends."""

import time
from typing import Any

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.cli.hanging import Doubtful, abort_one, repair_all
from barnabas.cli.places import Place, one_partition, partitions_of, places
from barnabas.cli.transactions_why import why
from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import OpenTransaction, TransactionAdmin

_MINUTE_MS = 60_000


@click.group()
def transactions() -> None:
    """Transactions: list, describe, find out why readers wait, abort, repair."""


transactions.add_command(why)


@transactions.command("list")
@click.option("-s", "--state", "states", multiple=True, help="Only in this state, e.g. Ongoing.")
@click.option("--producer-id", "producer_ids", type=int, multiple=True, help="Only of this one.")
@click.option("--longer-than", type=click.FloatRange(0), help="Only open for more s than this.")
@click.option("--pattern", help="Only ids that match this RE2 expression as a whole.")
@cluster_options
def list_transactions(
    target: Target,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: float | None,
    pattern: str | None,
) -> None:
    """List the transactional ids of every coordinator."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        found = await TransactionAdmin(cluster).transactions(
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=-1 if longer_than is None else int(longer_than * 1000),
            pattern=pattern,
        )
        return [each._asdict() for each in found]

    target.show(["transactional_id", "coordinator", "producer_id", "state"], target.run(work))


@transactions.command()
@click.argument("transactional_id")
@cluster_options
def describe(target: Target, transactional_id: str) -> None:
    """Show a transactional id: producer, state, times in ms, partitions."""

    async def work(cluster: Cluster) -> dict[str, Any]:
        admin = TransactionAdmin(cluster)
        row = await admin.describe(transactional_id)
        start = row.transaction_start_time_ms
        return {
            "transactional_id": transactional_id,
            "coordinator": await admin.coordinator(transactional_id),
            "producer_id": row.producer_id,
            "epoch": row.producer_epoch,
            "state": row.transaction_state,
            "timeout": row.transaction_timeout_ms,
            "start": start if start >= 0 else None,
            "age": max(_now_ms() - start, 0) if start >= 0 else None,
            "partitions": [f"{t.topic}:{each}" for t in row.topics for each in t.partitions],
        }

    row = target.run(work)
    target.show(list(row), [row])


@transactions.command("find-hanging")
@click.argument("named", metavar="[TOPIC[:PARTITION]]...", nargs=-1, callback=places)
@click.option("--broker-id", type=int, help="Only partitions that this broker leads.")
@click.option(
    "--max-transaction-timeout",
    "minutes",
    default=15.0,
    show_default=True,
    help="Minutes; the largest transaction.max.timeout.ms there is. Younger ones may go on.",
)
@cluster_options
def find_hanging(
    target: Target,
    named: list[Place],
    broker_id: int | None,
    minutes: float,
) -> None:
    """Find transactions that are open in a partition and unknown to their coordinator."""

    async def work(cluster: Cluster) -> list[OpenTransaction]:
        return await TransactionAdmin(cluster).hanging(
            await partitions_of(cluster, named, leader=broker_id),
            older_than_ms=int(minutes * _MINUTE_MS),
            now_ms=_now_ms(),
        )

    now_ms = _now_ms()
    rows = [
        {**each._asdict(), "minutes": (now_ms - each.last_timestamp) // _MINUTE_MS}
        for each in target.run(work)
    ]
    target.show([*OpenTransaction._fields, "minutes"], rows)


@transactions.command()
@click.argument("place", metavar="TOPIC:PARTITION", callback=one_partition)
@click.option("--start-offset", type=int, required=True, help="As find-hanging and why show it.")
@click.option("--force", is_flag=True, help="Even if it may have committed, or may go on.")
@cluster_options
def abort(target: Target, place: tuple[str, int], start_offset: int, force: bool) -> None:
    """Abort a hanging transaction in one partition.

    Refuses where the coordinator's log says that it committed, or cannot tell.
    """

    async def work(cluster: Cluster) -> OpenTransaction:
        return await abort_one(cluster, place, start_offset, force=force)

    ended = target.run(work)
    target.done(
        f"Aborted the transaction at offset {start_offset} of {place[0]}:{place[1]}.",
        **ended._asdict(),
        aborted=True,
    )


@transactions.command()
@click.argument("transactional_id")
@cluster_options
def fence(target: Target, transactional_id: str) -> None:
    """Fence the producer of a transactional id, and abort what it has open."""
    producer_id, epoch = target.run(
        lambda cluster: TransactionAdmin(cluster).fence(transactional_id)
    )
    target.done(
        f"Fenced {transactional_id}: producer id {producer_id} goes on with epochs above {epoch}.",
        transactional_id=transactional_id,
        producer_id=producer_id,
        epoch=epoch,
    )


@transactions.command()
@click.argument("named", metavar="[TOPIC[:PARTITION]]...", nargs=-1, callback=places)
@click.option("--dry-run", is_flag=True, help="Show what would be written, write nothing.")
@cluster_options
def repair(target: Target, named: list[Place], dry_run: bool) -> None:
    """Write markers again that a power cut took, as the coordinator's log has decided.

    Where the log cannot tell, nothing is written, and the exit code is 1.
    """

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        return await repair_all(cluster, await partitions_of(cluster, named), dry_run=dry_run)

    rows = target.run(work)
    columns = ["topic", "partition", "producer_id", "producer_epoch", "start_offset"]
    target.show([*columns, "decision", "written", "why"], rows, title="dry run" if dry_run else "")
    doubtful = sum(row["decision"] == "unknown" for row in rows)
    if doubtful:
        raise Doubtful(f"{doubtful} transaction(s) hang for which the log cannot tell; see why")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
