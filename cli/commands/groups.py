"""`barnabas groups`: list, describe and delete consumer groups, reset and delete offsets."""

from typing import Any

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.cli.groups.description import COLUMNS, card, describe_all, describe_group, table
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
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
@click.argument("group", required=False)
@click.option("--all", "everything", is_flag=True, help="Every group.")
@click.option("--exact", is_flag=True, help="Count all records, however many there are.")
@cluster_options
def describe(target: Target, group: str | None, everything: bool, exact: bool) -> None:
    """Show the state, committed offsets, lag and members of a group, or of all groups.

    LAG is the difference of offsets, as Kafka's tools show it. TO_READ is the number of records
    that a read_committed consumer of the group will still be given. HELD_BACK is the number of
    records behind the last stable offset, and HELD_BACK_BY the oldest transaction there. A number
    that ends in + is a lower bound, because only so much is counted without --exact.
    """
    if (group is None) != everything:
        raise click.UsageError("give either a GROUP or --all")
    if group is not None:
        one = target.run(lambda cluster: describe_group(cluster, group, exact=exact))
        if target.as_json:
            target.show_one(one)
        else:
            _show(target, one)
        return
    found, others = target.run(lambda cluster: describe_all(cluster, exact=exact))
    if target.as_json:
        target.show([], found)
    for index, each in enumerate([] if target.as_json else found):
        if index:
            click.echo()
        _show(target, each)
    if others:
        names = ", ".join(others)
        click.echo(f"Groups of another protocol, which are not described: {names}", err=True)


def _show(target: Target, group: dict[str, Any]) -> None:
    """Print a group for people: its fields, and a table of its partitions."""
    target.show_one(card(group))
    if rows := table(group):
        click.echo()
        target.show(COLUMNS, rows)


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
