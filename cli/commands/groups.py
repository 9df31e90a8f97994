"""`barnabas groups`: list, describe and delete consumer groups, reset and delete offsets."""

from typing import Any

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.groups.protocol import read_consumer_protocol
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
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
@cluster_options
def describe(target: Target, group: str) -> None:
    """Show the committed offsets, lag and members of a group."""

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
        ends = await find_offsets(cluster, dict.fromkeys(there, LATEST)) if there else {}
        rows = []
        for each in wanted:
            offset = committed.get(each)
            end = ends[each].offset if each in ends else None
            rows.append(
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "offset": offset,
                    "end": end,
                    "lag": None if offset is None or end is None else end - offset,
                    **readers.get(each, {"member": None, "host": None}),
                }
            )
        return rows

    columns = ["topic", "partition", "offset", "end", "lag", "member", "host"]
    target.show(columns, target.run(work), title=group)


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
