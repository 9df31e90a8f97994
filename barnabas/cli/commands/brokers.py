"""`barnabas brokers`: list, describe and drain the brokers of a cluster."""

import click

from barnabas.cli import names, reassignments
from barnabas.cli.common import UNHEALTHY, Target, cluster_options
from barnabas.cli.help import Group
from barnabas.cli.partition_arguments import throttle_option
from barnabas.cli.tables import tell
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.drain_plan import leaders_away, leaders_back, replicas_away
from barnabas.client.reassignment_plan import Placements, Plan
from barnabas.operations.answers.cluster import (
    Broker,
    DescribedBroker,
    DrainedBroker,
    NeededBroker,
    PlannedPartition,
    UndrainedBroker,
)
from barnabas.operations.answers.model import fields_of
from barnabas.operations.brokers import broker_rows
from barnabas.operations.log_dirs import ONLINE, directories


@click.group(cls=Group)
def brokers() -> None:
    """List, describe and drain the brokers of a cluster."""


@brokers.command("list")
@cluster_options
def list_brokers(target: Target) -> None:
    """List the live brokers with the partitions that they lead and have."""

    async def work(cluster: Cluster) -> list[Broker]:
        return await broker_rows(cluster, await Admin(cluster).describe_cluster())

    target.show(Broker, target.run(work))


@brokers.command()
@click.argument("broker", type=int, shell_complete=names.brokers)
@cluster_options
def describe(target: Target, broker: int) -> None:
    """Show a broker: address, rack, partitions and disk space."""

    async def work(cluster: Cluster) -> DescribedBroker:
        rows = await broker_rows(cluster, await Admin(cluster).describe_cluster())
        found = [row for row in rows if row.broker == broker]
        if not found:
            raise click.ClickException(f"no live broker has the id {broker}")
        places = await directories(cluster, broker)
        return DescribedBroker(
            **fields_of(found[0]),
            log_dirs=[each.log_dir for each in places],
            offline_log_dirs=[each.log_dir for each in places if each.state != ONLINE],
            bytes=sum(each.bytes for each in places),
        )

    target.show_one(target.run(work))


_broker_argument = click.argument("broker", metavar="ID", type=int, shell_complete=names.brokers)
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")


@brokers.command()
@_broker_argument
@click.option("--replicas", is_flag=True, help="Move its replicas too.")
@throttle_option
@_dry_run
@cluster_options
def drain(target: Target, broker: int, replicas: bool, throttle: int | None, dry_run: bool) -> None:
    """Move the leaders of a broker to other brokers, until it may be stopped.

    The broker comes last in the replicas of its partitions, so that no election makes it leader
    again; `brokers undrain` gives it leaders back. With --replicas other brokers get its data, and
    it may be removed; it may have died already. The command can be interrupted and run again, and
    it says which partitions could not be written or read without the broker, or are still led by
    it; the exit code is 3 then.
    """
    if throttle is not None and not replicas:
        raise click.UsageError("--throttle is for --replicas: no data moves without it")
    # Imported here: the other commands move nothing.
    from barnabas.cli.draining import order, require, wait_for_replicas

    state = target.run(reassignments.placed_on)
    require(state, broker, dead=replicas)
    moved = replicas_away(state.placements, broker, state.racks) if replicas else {}
    if dry_run:
        _show_plan(target, state.placements, leaders_away(state.placements, broker) | moved)
        return
    if moved:
        reassignments.carry_out(target, moved, "moving", throttle=throttle)
    order(target, lambda placements: leaders_away(placements, broker))
    problems, after = wait_for_replicas(target, broker)
    rows = [NeededBroker(*each.partition, problem=each.problem) for each in problems]
    left = sum(broker in placed.replicas for placed in after.values())
    if target.as_json:
        target.answer(
            DrainedBroker(
                broker=broker,
                leaders=sum(placed.leader == broker for placed in after.values()),
                replicas=left,
                may_be_stopped=not problems,
                problems=rows,
            )
        )
    elif problems:
        target.show(NeededBroker, rows)
    else:
        tell(f"Broker {broker} may be stopped: it leads no partition and has {left} replica(s).")
    if problems:
        raise click.exceptions.Exit(UNHEALTHY)


@brokers.command()
@_broker_argument
@_dry_run
@cluster_options
def undrain(target: Target, broker: int, dry_run: bool) -> None:
    """Give a broker its share of the leaders again.

    It is the preferred leader of one in N partitions with N replicas then, of those that it has in
    sync; `partitions balance` moves replicas to it.
    """
    from barnabas.cli.draining import order, require

    state = target.run(reassignments.placed_on)
    require(state, broker)
    if dry_run:
        _show_plan(target, state.placements, leaders_back(state.placements, broker))
        return
    changed = order(target, lambda placements: leaders_back(placements, broker))
    text = f"Broker {broker} leads {len(changed)} partition(s) more."
    target.done(text, UndrainedBroker(broker=broker, leaders=len(changed)))


def _show_plan(target: Target, now: Placements, plan: Plan) -> None:
    rows = [
        PlannedPartition(*each, replicas=list(now[each].replicas), wanted=list(wanted))
        for each, wanted in sorted(plan.items())
    ]
    target.show(PlannedPartition, rows)
