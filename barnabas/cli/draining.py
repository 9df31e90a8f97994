"""A broker that is emptied before it is stopped, or gets its leaders back, in steps that resume."""

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import click

from barnabas.cli import reassignments
from barnabas.cli.common import Target
from barnabas.cli.reassignments import Placed, placed_on
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.drain_plan import Loss, losses
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.client.reassignment_plan import Placements, Plan
from barnabas.operations.answers.cluster import Restart
from barnabas.operations.health import find_problems
from barnabas.protocol.topic_partition import TopicPartition

_POLL_S: Final = 0.5
Planned = Callable[[Placements], Plan]


def require(state: Placed, broker: int, *, dead: bool = False) -> None:
    """Raise ClickException unless a broker is alive, or with `dead` has died and has replicas."""
    left = dead and any(broker in placed.replicas for placed in state.placements.values())
    if broker not in state.racks and not left:
        raise click.ClickException(f"no live broker has the id {broker}")


def order(target: Target, planned: Planned) -> Plan:
    """Reorder the replicas of partitions by a plan and elect the first of each, until the metadata
    of the brokers has them as leaders or the target's timeout is over.

    Returns the partitions that were to change, with their replicas.
    """
    deadline = time.monotonic() + target.timeout
    changed: Plan = {}
    while True:
        placements = target.run(placed_on).placements
        plan = planned(placements)
        if not plan or time.monotonic() > deadline:
            return changed
        changed |= plan
        reordered = {key: ids for key, ids in plan.items() if ids != placements[key].replicas}
        if reordered:
            reassignments.carry_out(target, reordered, "ordering")
        target.run(partial(_elect, partitions=list(plan)))
        time.sleep(_POLL_S)


async def _elect(cluster: Cluster, partitions: Collection[TopicPartition]) -> None:
    await PartitionAdmin(cluster).elect_leaders(partitions)


def wait_for_replicas(target: Target, broker: int) -> tuple[list[Loss], Placements]:
    """Wait until replicas that are behind have caught up, at most for the target's timeout.

    Returns the partitions that would lose a leader or min.insync.replicas without a broker, those
    that it still leads, and the placements then.
    """
    deadline = time.monotonic() + target.timeout
    while True:
        found, placements = target.run(partial(_needed, broker=broker))
        behind = any(
            len(placements[each.partition].in_sync) < len(placements[each.partition].replicas)
            for each in found
        )
        if not behind or time.monotonic() > deadline:
            return found, placements
        time.sleep(_POLL_S)


async def _needed(cluster: Cluster, broker: int) -> tuple[list[Loss], Placements]:
    placements = (await placed_on(cluster)).placements
    topics = {key.topic for key, placed in placements.items() if broker in placed.in_sync}
    found = losses(placements, broker, await Admin(cluster).min_isr(topics))
    named = {each.partition for each in found}
    # The time for elections was over before they were.
    led = [
        Loss(partition, "it still leads it: run the command again")
        for partition, placed in placements.items()
        if placed.leader == broker and partition not in named
    ]
    return sorted(found + led), placements


async def restarts(cluster: Cluster, broker: int | None) -> list[Restart]:
    """Return whether each live broker, or one, may be restarted now; the controller comes last."""
    described = await Admin(cluster).describe_cluster()
    live = sorted(
        (row.broker_id for row in described.brokers),
        key=lambda each: (each == described.controller_id, each),
    )
    if broker is not None and broker not in live:
        raise click.ClickException(f"no live broker has the id {broker}")
    general = [f"{each.where}: {each.problem}" for each in await find_problems(cluster)]
    placements = reassignments.placements(cluster)
    min_isr = await Admin(cluster).min_isr({each.topic for each in placements})
    rows = []
    for each in live if broker is None else [broker]:
        problems = [
            f"{topic}-{partition}: {problem}"
            for (topic, partition), problem in losses(placements, each, min_isr)
        ]
        rows.append(
            Restart(
                broker=each,
                controller=each == described.controller_id,
                may_be_restarted=not (general or problems),
                problems=[*general, *problems],
            )
        )
    return rows
