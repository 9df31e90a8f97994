"""`barnabas groups`: list, describe and delete consumer groups, reset and delete offsets."""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_lag import UNBOUNDED, GroupLag, find_lags
from barnabas.client.groups.protocol import read_consumer_protocol
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.internal.consumer_protocol import ConsumerProtocolAssignment
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.topic_partition import TopicPartition


@click.group()
def groups() -> None:
    """List, describe and delete consumer groups; reset and delete offsets."""


@groups.command("list")
@cluster_options
def list_groups(target: Target) -> None:
    """List the groups of every broker."""
    rows = target.run(lambda cluster: GroupAdmin(cluster).groups())
    target.show(
        ["group", "state", "type", "protocol"],
        [
            {
                "group": row.group_id,
                "state": row.group_state,
                "type": row.group_type,
                "protocol": row.protocol_type,
            }
            for row in rows
        ],
    )


@groups.command()
@click.argument("group")
@click.option("--exact", is_flag=True, help="Count all records, however many there are.")
@cluster_options
def describe(target: Target, group: str, exact: bool) -> None:
    """Show the committed offsets, lag and members of a group.

    LAG is the difference of offsets, as Kafka's tools show it. TO_READ is the number of records
    that a read_committed consumer of the group will still be given. HELD_BACK is the number of
    records behind the last stable offset, and HELD_BACK_BY the oldest transaction there. A number
    that ends in + is a lower bound, because only so much is counted without --exact.
    """

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        admin = GroupAdmin(cluster)
        readers = _readers(await admin.describe(group))
        committed = await admin.offsets(group)
        wanted = sorted({*readers, *committed})
        # The offset of a deleted topic may still exist: it has no end and no lag.
        await cluster.refresh({topic for topic, _ in wanted})
        there = [
            each
            for each in wanted
            if each.topic in cluster.topics and each.partition in cluster.topics[each.topic].leaders
        ]
        begun = {each: committed[each] for each in there if each in committed}
        lags = await find_lags(cluster, begun, UNBOUNDED if exact else None) if begun else {}
        others = dict.fromkeys((each for each in there if each not in begun), LATEST)
        ends = await find_offsets(cluster, others) if others else {}
        ids = await _transactional_ids(cluster, lags.values())
        return [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": committed.get(each),
                "end": ends[each].offset if each in ends else None,
                **_lag_columns(lags.get(each), ids),
                **readers.get(each, {"member": None, "host": None}),
            }
            for each in wanted
        ]

    rows = target.run(work)
    columns = ["topic", "partition", "offset", "end", "lag"]
    columns += ["to_read", "held_back", "held_back_by", "member", "host"]
    target.show(columns, rows if target.as_json else map(_as_text, rows), title=group)


def _lag_columns(lag: GroupLag | None, ids: Mapping[int, str]) -> dict[str, Any]:
    """Return the columns of a partition's lag; without the end if the group has no offset."""
    if lag is None:
        columns = ["lag", "to_read", "held_back", "exact", "held_back_by", "producer_id"]
        return dict.fromkeys(columns)
    by = lag.held_back_by
    return {
        "end": lag.end,
        "lag": lag.lag,
        "to_read": lag.to_read,
        "held_back": lag.held_back,
        "exact": lag.is_exact,
        "held_back_by": None if by is None else ids.get(by),
        "producer_id": by,
    }


async def _transactional_ids(cluster: Cluster, lags: Iterable[GroupLag]) -> dict[int, str]:
    """Return the ids of the transactions that hold records back, as far as the client may know
    them."""
    producers = {each.held_back_by for each in lags if each.held_back_by is not None}
    try:
        return await TransactionAdmin(cluster).transactional_ids(producers)
    except KafkaError as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return {}
        raise


def _as_text(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for people: lower bounds are marked, and a producer id stands for an unknown
    transactional id."""
    shown = dict(row)
    for column in ("to_read", "held_back"):
        if row[column] is not None and not row["exact"]:
            shown[column] = f"{row[column]}+"
    if row["held_back_by"] is None and row["producer_id"] is not None:
        shown["held_back_by"] = f"producer {row['producer_id']}"
    return shown


def _readers(described: DescribedGroup) -> dict[TopicPartition, dict[str, str]]:
    readers = {}
    for member in described.members:
        if described.protocol_type != "consumer" or not member.member_assignment:
            continue
        assignment = read_consumer_protocol(ConsumerProtocolAssignment, member.member_assignment)
        assert isinstance(assignment, ConsumerProtocolAssignment)
        for row in assignment.assigned_partitions:
            for partition in row.partitions:
                readers[TopicPartition(row.topic, partition)] = {
                    "member": member.group_instance_id or member.member_id,
                    "host": member.client_host,
                }
    return readers


@groups.command("reset-offsets")
@click.argument("group")
@click.option(
    "-t", "--topic", "names", multiple=True, help="Only this topic; default: all committed."
)
@click.option("--to-earliest", "to", flag_value="earliest", help="To the start of the log.")
@click.option("--to-latest", "to", flag_value="latest", help="To the end of the log.")
@click.option("--to-offset", type=int, help="To this offset.")
@click.option("--to-timestamp", type=int, help="To the first record at or after a time in ms.")
@click.option("--shift-by", type=int, help="By this many records; negative: back.")
@click.option("--dry-run", is_flag=True, help="Show what would be committed, commit nothing.")
@cluster_options
def reset_offsets(
    target: Target,
    group: str,
    names: tuple[str, ...],
    to: str | None,
    to_offset: int | None,
    to_timestamp: int | None,
    shift_by: int | None,
    dry_run: bool,
) -> None:
    """Reset the committed offsets of a group without members."""
    given = [to, to_offset, to_timestamp, shift_by]
    if sum(choice is not None for choice in given) != 1:
        raise click.UsageError("give exactly one of --to-... and --shift-by")

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        admin = GroupAdmin(cluster)
        committed = await admin.offsets(group)
        wanted = await _wanted(cluster, committed, names)
        first = await find_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
        last = await find_offsets(cluster, dict.fromkeys(wanted, LATEST))
        found = {}
        if to_timestamp is not None:
            found = await find_offsets(cluster, dict.fromkeys(wanted, to_timestamp))
        plan = {}
        for tp in wanted:
            low, high = first[tp].offset, last[tp].offset
            if to_offset is not None:
                goal = to_offset
            elif shift_by is not None:
                goal = max(committed.get(tp, low), low) + shift_by
            elif to_timestamp is not None:
                goal = found[tp].offset if found[tp].offset >= 0 else high
            else:
                goal = low if to == "earliest" else high
            plan[tp] = min(max(goal, low), high)
        if not dry_run and plan:
            await admin.set_offsets(group, plan)
        return [
            {"topic": tp[0], "partition": tp[1], "was": committed.get(tp), "offset": offset}
            for tp, offset in sorted(plan.items())
        ]

    title = f"{group} (dry run)" if dry_run else group
    target.show(["topic", "partition", "was", "offset"], target.run(work), title=title)


async def _wanted(
    cluster: Cluster, committed: dict[TopicPartition, int], names: tuple[str, ...]
) -> list[TopicPartition]:
    if not names:
        return sorted(committed)
    return [
        TopicPartition(name, p)
        for name in names
        for p in sorted((await cluster.topic(name)).leaders)
    ]


@groups.command()
@click.argument("group")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def delete(target: Target, group: str, yes: bool) -> None:
    """Delete an empty group with its offsets."""
    if not yes:
        click.confirm(f"Delete group {group} and its offsets?", abort=True, err=True)
    target.run(lambda cluster: GroupAdmin(cluster).delete(group))
    target.done(f"Deleted group {group}.", group=group, deleted=True)


@groups.command("delete-offsets")
@click.argument("group")
@click.option("-t", "--topic", required=True)
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Default: all.")
@cluster_options
def delete_offsets(target: Target, group: str, topic: str, partitions: tuple[int, ...]) -> None:
    """Delete the committed offsets of a group for a topic that no member reads."""

    async def work(cluster: Cluster) -> int:
        admin = GroupAdmin(cluster)
        committed = await admin.offsets(group)
        wanted = [tp for tp in committed if tp[0] == topic]
        if partitions:
            wanted = [TopicPartition(topic, partition) for partition in partitions]
        if wanted:
            await admin.delete_offsets(group, wanted)
        return len(wanted)

    count = target.run(work)
    target.done(f"Deleted {count} offset(s) of {group}.", group=group, deleted=count)
