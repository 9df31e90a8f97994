"""`barnabas partitions`: reassign replicas and elect leaders."""

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import click

from barnabas.cli import reassignments
from barnabas.cli.common import Target, cluster_options
from barnabas.cli.help import Group
from barnabas.cli.partition_arguments import (
    any_partitions,
    throttle_option,
)
from barnabas.cli.reassignments import Placed, placed_on
from barnabas.cli.tables import tell
from barnabas.client.admin import Admin
from barnabas.client.balance_plan import loads, plan_balance
from barnabas.client.cluster import Cluster
from barnabas.client.partition_admin import Outcomes, PartitionAdmin
from barnabas.client.reassignment_plan import Plan, parse_plan, plan_rows, plan_text
from barnabas.operations.answers.partitions import (
    Balance,
    BalancedBroker,
    MovingPartition,
    Outcome,
    PlanProgress,
)
from barnabas.operations.partitions import PartitionArgument, every_partition, partitions_of
from barnabas.operations.quantities import size_text
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition


@click.group(cls=Group)
def partitions() -> None:
    """Reassign replicas between brokers and elect leaders."""


def _read(
    _context: click.Context, _parameter: click.Parameter, file: BinaryIO | None
) -> Plan | None:
    if file is None:
        return None
    try:
        return parse_plan(file.read())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _broker_ids(_context: click.Context, _parameter: click.Parameter, text: str) -> list[int]:
    try:
        ids = [int(each) for each in text.split(",")] if text else []
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of broker ids") from None
    if len(set(ids)) != len(ids):
        raise click.BadParameter(f"{text!r} contains a broker more than once")
    return ids


_FILE = click.File("rb")
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)
_plan_argument = click.argument("plan", metavar="PLAN", type=_FILE, callback=_read)
_keep_throttle = click.option("--keep-throttle", is_flag=True, help="Do not remove the throttle.")


@partitions.command()
@any_partitions
@click.option("--all", "everything", is_flag=True, help="Every partition of the cluster.")
@click.option(
    "--brokers", default="", callback=_broker_ids, metavar="ID,ID", help="Target brokers."
)
@click.option(
    "--replication-factor",
    "factor",
    type=click.IntRange(1),
    metavar="N",
    help="Raise or lower the replicas to N; new ones go to --brokers, or to any, and if there are "
    "fewer, those on --brokers stay.",
)
@click.option("--current", is_flag=True, help="Print the current replicas, e.g. for a rollback.")
@click.option("--ignore-racks", is_flag=True, help="Ignore the racks of the brokers.")
@cluster_options
def plan(
    target: Target,
    named: list[PartitionArgument],
    everything: bool,
    brokers: list[int],
    factor: int | None,
    current: bool,
    ignore_racks: bool,
) -> None:
    """Print a plan that spreads partitions over brokers, as JSON of Kafka's tool.

    With --replication-factor no replica moves: some are added or removed. Leaders stay, unless
    --brokers leaves them out.

    `partitions plan orders --replication-factor 3 | partitions reassign -` carries it out at once.
    """
    if bool(named) == everything:
        raise click.UsageError("give either partitions or --all")
    if bool(brokers or factor) == current:
        raise click.UsageError(
            "give either --brokers or --replication-factor for a new plan, or --current"
        )
    racks = not ignore_racks

    async def work(cluster: Cluster) -> Plan:
        wanted = await (every_partition(cluster) if everything else partitions_of(cluster, named))
        if not wanted:
            raise click.ClickException("the cluster has no partitions")
        if current:
            return await reassignments.current_plan(cluster, wanted)
        if factor is not None:
            return await reassignments.factor_plan(cluster, wanted, factor, brokers, racks=racks)
        return await reassignments.proposed_plan(cluster, wanted, brokers, racks=racks)

    found = target.run(work)
    if not found:
        raise click.ClickException(f"all these partitions have {factor} replicas already")
    if target.as_json:
        target.answer(plan_rows(found), indent=None)
    else:
        click.echo(plan_text(found))


@partitions.command()
@_plan_argument
@throttle_option
@click.option("--additional", is_flag=True, help="Allow while other reassignments are running.")
@click.option("--same-factor", is_flag=True, help="Refuse a changed replication factor.")
@click.option("--rollback", type=_NEW_FILE, help="Write the current replicas to this file.")
@click.option("--wait", is_flag=True, help="Wait for the end, then remove the throttle.")
@cluster_options
def reassign(
    target: Target,
    plan: Plan,
    throttle: int | None,
    additional: bool,
    same_factor: bool,
    rollback: Path | None,
    wait: bool,
) -> None:
    """Reassign partitions to the replicas in PLAN; - is standard input."""
    if throttle == 0:
        raise click.UsageError("with --throttle 0 nothing would move")
    if rollback is not None:
        reassignments.keep_current(target, plan, rollback)
    outcomes = target.run(
        lambda cluster: reassignments.execute(
            cluster,
            plan,
            throttle=throttle,
            additional=additional,
            allow_factor_change=not same_factor,
        )
    )
    if wait and not _failed(outcomes):
        target.show(PlanProgress, reassignments.until_done(target, plan, "moving"))
        return
    _show(target, outcomes, "moving")
    if throttle is not None:
        click.echo("The throttle stays until `barnabas partitions verify` removes it.", err=True)
    _exit(_failed(outcomes))


@partitions.command()
@_plan_argument
@_keep_throttle
@cluster_options
def verify(target: Target, plan: Plan, keep_throttle: bool) -> None:
    """Show the progress of PLAN; remove its throttle if no reassignment is running.

    The exit code is 1 unless every partition has the replicas in PLAN.
    """
    rows, _ = target.run(
        lambda cluster: reassignments.verify(cluster, plan, keep_throttle=keep_throttle)
    )
    target.show(PlanProgress, rows)
    _exit(any(row.state != "done" for row in rows))


@partitions.command("list")
@cluster_options
def list_moving(target: Target) -> None:
    """List the partitions that are being reassigned."""
    found = target.run(lambda cluster: PartitionAdmin(cluster).reassignments())
    rows = [
        MovingPartition(
            *partition,
            replicas=list(each.replicas),
            adding=list(each.adding),
            removing=list(each.removing),
        )
        for partition, each in sorted(found.items())
    ]
    target.show(MovingPartition, rows)


@partitions.command()
@click.argument("plan", metavar="[PLAN]", type=_FILE, callback=_read, required=False)
@click.option("--all", "everything", is_flag=True, help="All running reassignments.")
@_keep_throttle
@cluster_options
def cancel(target: Target, plan: Plan | None, everything: bool, keep_throttle: bool) -> None:
    """Cancel running reassignments: partitions get their original replicas back."""
    if (plan is None) != everything:
        raise click.UsageError("give either a PLAN or --all")
    outcomes = target.run(
        lambda cluster: reassignments.cancel(cluster, plan, keep_throttle=keep_throttle)
    )
    _show(target, outcomes, "cancelled")
    _exit(_failed(outcomes))


@partitions.command()
@any_partitions
@click.option("--all", "everything", is_flag=True, help="Every partition of the cluster.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Allow an out-of-sync replica to become leader if no in-sync replica is left "
    "(may lose data).",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def elect(
    target: Target, named: list[PartitionArgument], everything: bool, unclean: bool, yes: bool
) -> None:
    """Elect the preferred replicas as leaders."""
    if bool(named) == everything:
        raise click.UsageError("give either partitions or --all")
    if unclean and not yes:
        click.confirm(
            "Records that no live replica has will be lost. Continue?", abort=True, err=True
        )

    async def work(cluster: Cluster) -> Outcomes:
        wanted = None if everything else await partitions_of(cluster, named)
        return await PartitionAdmin(cluster).elect_leaders(wanted, unclean=unclean)

    outcomes = target.run(work)
    _show(target, outcomes, "elected")
    _exit(_failed(outcomes))


@partitions.command()
@throttle_option
@click.option("--rollback", type=_NEW_FILE, help="Write the current replicas to this file.")
@click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def balance(
    target: Target, throttle: int | None, rollback: Path | None, dry_run: bool, yes: bool
) -> None:
    """Spread size, replicas and leaders evenly over the brokers, with few moves.

    Shows the brokers before and after, and asks. The load of a broker is half the size of its
    replicas and half their number; below 1.05 times the mean none gives any away. Racks are kept.

    `partitions balance --throttle 50MB --rollback before.json`
    """
    placed, sizes = target.run(_placed_with_sizes)
    plan = plan_balance(placed.placements, sizes, placed.racks)
    made = _balance(placed, sizes, plan, changed=bool(plan) and not dry_run)
    if not target.as_json:
        target.show(BalancedBroker, made.brokers, table=True)
    if plan and not (dry_run or yes):
        moved = size_text(made.moved_bytes)
        text = f"Move {made.moved_replicas} replica(s), {moved}, and {made.moved_leaders} "
        click.confirm(f"{text}preferred leader(s)?", abort=True, err=True)
    if plan and not dry_run:
        if rollback is not None:
            reassignments.keep_current(target, plan, rollback)
        reassignments.carry_out(target, plan, "moving", throttle=throttle)
        target.run(lambda cluster: PartitionAdmin(cluster).elect_leaders(plan))
    if target.as_json:
        target.answer(made)
    elif not plan:
        tell("The brokers are balanced.")


async def _placed_with_sizes(cluster: Cluster) -> tuple[Placed, dict[TopicPartition, int]]:
    """Return the placements, and the bytes of the largest replica of each partition."""
    placed = await placed_on(cluster)
    sizes: dict[TopicPartition, int] = {}
    for broker in placed.racks:
        for directory in await Admin(cluster).describe_log_dirs(broker):
            for topic in directory.topics:
                for row in topic.partitions:
                    key = TopicPartition(topic.name, row.partition_index)
                    sizes[key] = max(sizes.get(key, 0), row.partition_size)
    return placed, sizes


def _balance(
    placed: Placed, sizes: Mapping[TopicPartition, int], plan: Plan, *, changed: bool
) -> Balance:
    """Return the loads of the brokers before and after a plan, and what it moves."""
    before = {key: each.replicas for key, each in placed.placements.items()}
    now = loads(before, sizes, placed.racks)
    then = loads(before | plan, sizes, placed.racks)
    moved = [
        (len(set(replicas) - set(before[key])), sizes.get(key, 0)) for key, replicas in plan.items()
    ]
    return Balance(
        brokers=[
            BalancedBroker(
                broker=broker,
                replicas=now[broker].replicas,
                replicas_after=then[broker].replicas,
                bytes=now[broker].size_bytes,
                bytes_after=then[broker].size_bytes,
                leaders=now[broker].leaders,
                leaders_after=then[broker].leaders,
            )
            for broker in now
        ],
        moved_replicas=sum(count for count, _ in moved),
        moved_bytes=sum(count * size for count, size in moved),
        moved_leaders=sum(plan[key][0] != before[key][0] for key in plan),
        changed=changed,
    )


def _show(target: Target, outcomes: Outcomes, done: str) -> None:
    rows = [
        Outcome(*partition, result=_result(error, done))
        for partition, error in sorted(outcomes.items(), key=_by_partition)
    ]
    target.show(Outcome, rows)


def _failed(outcomes: Outcomes) -> bool:
    return any(error is not None and not _is_success(error) for error in outcomes.values())


def _by_partition(item: tuple[TopicPartition, KafkaError | None]) -> TopicPartition:
    return item[0]


def _result(error: KafkaError | None, done: str) -> str:
    if error is None:
        return done
    return error.code.text if _is_success(error) else str(error)


def _is_success(error: KafkaError) -> bool:
    return error.code is ErrorCode.ELECTION_NOT_NEEDED


def _exit(failed: bool) -> None:
    if failed:
        raise click.exceptions.Exit(1)
