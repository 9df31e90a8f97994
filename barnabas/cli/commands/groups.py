"""`barnabas groups`: list, describe and delete consumer groups, reset and delete offsets."""

from typing import TYPE_CHECKING, Any, TextIO

import click

from barnabas.cli import arguments, names
from barnabas.cli.common import Target, cluster_options
from barnabas.cli.help import Group
from barnabas.cli.partition_arguments import topics_or_partitions
from barnabas.cli.tables import tell
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.operations.answers import groups as answers
from barnabas.operations.partitions import PartitionArgument
from barnabas.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.operations.group_resets import Offsets, Reset


@click.group(cls=Group)
def groups() -> None:
    """List, describe and delete consumer groups; reset and delete offsets."""


@groups.command("list")
@cluster_options
def list_groups(target: Target) -> None:
    """List the groups of every broker."""
    rows = target.run(lambda cluster: GroupAdmin(cluster).groups())
    target.show(answers.Group, list(map(answers.Group.of, rows)))


@groups.command()
@click.argument("names", metavar="[GROUP]...", nargs=-1, shell_complete=names.groups)
@click.option("--all", "everything", is_flag=True, help="Every group.")
@click.option("--exact", is_flag=True, help="Count all records, however many there are.")
@cluster_options
def describe(target: Target, names: tuple[str, ...], everything: bool, exact: bool) -> None:
    """Show the state, committed offsets, lag and members of groups, or of all groups.

    With --json one GROUP is an object, and several are a list.

    LAG is the difference of offsets, as Kafka's tools show it, and never negative. TO_READ is the
    number of records that a read_committed consumer of the group will still be given. HELD_BACK is
    the number of records behind the last stable offset, and HELD_BACK_BY the oldest transaction
    there. A number that ends in + is a lower bound, because only so much is counted without
    --exact. OUT_OF_RANGE names a committed offset that is below the start of the log, behind its
    end, or of a partition that is gone.

    A group in the consumer protocol (type consumer) has the epoch to which its members are moving,
    and that of its assignment. A member reads what is ASSIGNED, and gives up or gets partitions
    until that is its TARGET.
    """
    if bool(names) == everything:
        raise click.UsageError("give either a GROUP or --all")
    # Imported here: the other commands count no records.
    from barnabas.operations.group_description import describe_all, describe_groups

    async def work(cluster: Cluster) -> tuple[list[answers.DescribedGroup], list[str]]:
        if everything:
            return await describe_all(cluster, exact=exact)
        found = await describe_groups(cluster, names, exact=exact)
        return [found[each] for each in names], []

    found, others = target.run(work)
    if target.as_json:
        target.answer(found[0] if len(names) == 1 else found)
    for index, each in enumerate([] if target.as_json else found):
        if index:
            click.echo()
        _show(target, each)
    if others:
        listed = ", ".join(others)
        tell(f"Groups of another protocol, which are not described: {listed}", err=True)


def _show(target: Target, group: answers.DescribedGroup) -> None:
    """Print a group for people: its fields, its partitions and its members."""
    from barnabas.cli import group_tables

    target.show_one(group_tables.card(group))
    if group.partitions:
        click.echo()
        target.show(group_tables.partition_columns(group), group_tables.partition_rows(group))
    if group.members:
        click.echo()
        target.show(group_tables.member_columns(group), group_tables.member_rows(group))


def _offsets(
    _context: click.Context, _parameter: click.Parameter, file: TextIO | None
) -> "Offsets | None":
    """Parse a file of offsets; a click callback."""
    from barnabas.operations.group_resets import parse_offsets

    try:
        return None if file is None else parse_offsets(file.read())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@groups.command("reset-offsets")
@click.argument("group", shell_complete=names.groups)
@click.option(
    "-t",
    "--topic",
    "named",
    metavar="TOPIC[:N,N]",
    shell_complete=names.topics,
    multiple=True,
    callback=topics_or_partitions,
    help="Only this topic, or these partitions of it. Default: all with a committed offset.",
)
@click.option("--to-earliest", is_flag=True, help="To the start of the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-current", is_flag=True, help="Change nothing; with --to-file, a copy.")
@click.option("--to-offset", type=int, metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="By so many offsets; negative: back.")
@click.option(
    "--to-time",
    "--to-datetime",
    "--to-timestamp",
    "to_time",
    type=arguments.time,
    metavar="TIME",
    help="To the first record at or after a time: 2026-11-22, 2026-11-22T10:00Z, -1h or ms.",
)
@click.option(
    "--by-duration",
    type=arguments.age,
    metavar="AGE",
    help="To the first record that is not older than this: 90m, 7d.",
)
@click.option(
    "--to-group",
    metavar="GROUP",
    shell_complete=names.groups,
    help="To the offsets of another group.",
)
@click.option(
    "--from-file",
    type=click.File(encoding="utf-8"),
    callback=_offsets,
    help="To the offsets in a file, with a line TOPIC,PARTITION,OFFSET for each partition.",
)
@click.option(
    "--to-file",
    type=click.File("w", encoding="utf-8", lazy=True),
    help="Write the new offsets to a file for --from-file.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be committed, commit nothing.")
@cluster_options
def reset_offsets(
    target: Target,
    group: str,
    named: list[PartitionArgument],
    to_file: TextIO | None,
    dry_run: bool,
    **ways: Any,
) -> None:
    """Reset the committed offsets of a group without members.

    An offset outside of the log becomes the nearest one inside, except with --to-current.

    `groups reset-offsets readers --topic orders:0,3 --by-duration 2h`
    """
    given = {way: value for way, value in ways.items() if value is not None and value is not False}
    if len(given) != 1:
        raise click.UsageError(
            "give exactly one of --to-... (without --to-file), --by-duration, --shift-by and "
            "--from-file"
        )
    ((way, value),) = given.items()
    from barnabas.operations.group_resets import offsets_text, plan_reset

    async def work(cluster: Cluster) -> "Reset":
        reset = await plan_reset(cluster, group, way, value, named)
        if not dry_run and way != "to_current":
            await GroupAdmin(cluster).set_offsets(group, reset.after)
        return reset

    before, after, gone = target.run(work)
    if gone:
        partitions = ", ".join(f"{topic}-{index}" for topic, index in gone)
        tell(f"Left out, because they do not exist: {partitions}", err=True)
    if to_file is not None:
        to_file.write(offsets_text(after))
    rows = [
        answers.ResetOffset(*each, was=before.get(each), offset=offset)
        for each, offset in sorted(after.items())
    ]
    title = f"{group} (dry run)" if dry_run else group
    target.show(answers.ResetOffset, rows, title=title)


@groups.command()
@click.argument("group", shell_complete=names.groups)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def delete(target: Target, group: str, yes: bool) -> None:
    """Delete an empty group with its offsets."""
    if not yes:
        click.confirm(f"Delete group {group} and its offsets?", abort=True, err=True)
    target.run(lambda cluster: GroupAdmin(cluster).delete(group))
    target.done(f"Deleted group {group}.", answers.DeletedGroup(group=group, deleted=True))


@groups.command("delete-offsets")
@click.argument("group", shell_complete=names.groups)
@click.option("-t", "--topic", required=True, shell_complete=names.topics)
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
    deleted = answers.DeletedOffsets(group=group, deleted=count)
    target.done(f"Deleted {count} offset(s) of {group}.", deleted)
