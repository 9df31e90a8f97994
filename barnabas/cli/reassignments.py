"""The reassignment of partitions in the steps of kafka-reassign-partitions.sh (KIP-455).

A throttle (KIP-73) consists of two rates on every broker that takes part, and of the lists of
throttled replicas on the topics. It stays until it is removed: `verify` does that once no partition
is being reassigned.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from barnabas.broker.controller.rules.placement import place
from barnabas.broker.loop.slices import Slicer
from barnabas.cli.common import Target, progress
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.partition_admin import Outcomes, PartitionAdmin
from barnabas.client.reassignment_plan import (
    Placement,
    Placements,
    Plan,
    plan_factor,
    plan_text,
    throttle_for,
)
from barnabas.operations.answers.partitions import PlanProgress, State
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"
_PROPAGATION_SECONDS = 2.0
_POLL_SECONDS = 1.0


class Progress(NamedTuple):
    """The progress of a plan: rows to show, and whether any partition is being reassigned."""

    rows: list[PlanProgress]
    moving: bool


def keep_current(target: Target, plan: Plan, file: Path) -> None:
    """Write the current replicas of the partitions of a plan to a file, for a rollback."""
    here = target.run(lambda cluster: current_plan(cluster, plan))
    file.write_text(plan_text(here) + "\n", encoding="utf-8")


async def current_plan(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Plan:
    """Return the current replicas of partitions; raises UNKNOWN_TOPIC_OR_PARTITION."""
    wanted = list(partitions)
    await cluster.refresh(sorted({topic for topic, _ in wanted}))
    found = {
        (topic.name, row.partition_index): tuple(row.replica_nodes)
        for topic in cluster.topics.values()
        for row in topic.description.partitions
    }
    for topic, index in wanted:
        if (topic, index) not in found:
            text = f"there is no partition {topic}-{index}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return {each: found[each] for each in wanted}


async def proposed_plan(
    cluster: Cluster, partitions: Iterable[TopicPartition], brokers: list[int], *, racks: bool
) -> Plan:
    """Return a plan that places partitions on some brokers, as if their topics were created new.

    Each partition keeps its number of replicas. With `racks` the replicas are spread over racks
    first; then either every broker must have a rack, or none. Raises ClickException if there are
    too few brokers.
    """
    rack_of = await _racks(cluster, brokers, racks=racks)
    chosen = {each: rack_of[each] for each in brokers}
    now = await current_plan(cluster, partitions)
    plan: Plan = {}
    slicer = Slicer(time.monotonic)
    for topic in sorted({topic for topic, _ in now}):
        indexes = [index for name, index in now if name == topic]
        counts = {index: len(now[TopicPartition(topic, index)]) for index in indexes}
        factor = max(counts.values())
        if factor > len(chosen):
            raise click.ClickException(
                f"topic {topic} has {factor} replicas, and --brokers names {len(chosen)}: name "
                "more, or plan fewer replicas first with --replication-factor"
            )
        placed = await slicer.run(place(chosen, len(indexes), factor, random.Random()))
        for index, replicas in zip(indexes, placed.values(), strict=True):
            plan[TopicPartition(topic, index)] = replicas[: counts[index]]
    return plan


async def factor_plan(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    factor: int,
    brokers: list[int],
    *,
    racks: bool,
) -> Plan:
    """Return a plan that gives partitions `factor` replicas, on `brokers` or on all.

    Raises ClickException if there are too few brokers, and if min.insync.replicas is higher.
    """
    rack_of = await _racks(cluster, brokers, racks=racks)
    await cluster.refresh()
    now = await current_plan(cluster, partitions)
    for topic, least in (await Admin(cluster).min_isr({topic for topic, _ in now})).items():
        if least > factor:
            raise click.ClickException(
                f"with {factor} replicas nothing could be written with acks=all: "
                f"min.insync.replicas of {topic} is {least}"
            )
    placed = placements(cluster)
    load = Counter(each for row in placed.values() for each in row.replicas)
    here = {each: placed[each] for each in now}
    try:
        return plan_factor(here, factor, rack_of, load, brokers)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


class Placed(NamedTuple):
    """The placement of all partitions, and the racks of the live brokers."""

    placements: Placements
    racks: dict[int, str | None]


async def placed_on(cluster: Cluster) -> Placed:
    """Return the placements in a cluster, whose metadata is refreshed, and its brokers."""
    racks = {row.broker_id: row.rack for row in (await Admin(cluster).describe_cluster()).brokers}
    await cluster.refresh()
    return Placed(placements(cluster), racks)


def placements(cluster: Cluster) -> dict[TopicPartition, Placement]:
    """Return the placement of every partition, as the last refresh has found it."""
    return {
        TopicPartition(topic.name, row.partition_index): Placement(
            tuple(row.replica_nodes), frozenset(row.isr_nodes), row.leader_id
        )
        for topic in cluster.topics.values()
        for row in topic.description.partitions
    }


async def _racks(cluster: Cluster, brokers: list[int], *, racks: bool) -> dict[int, str | None]:
    """Return the racks of live brokers; None each without `racks`.

    Raises ClickException if one of `brokers` is unknown, and if some of them, or of all without
    them, have a rack and some have none.
    """
    described = await Admin(cluster).describe_cluster()
    rack_of = {row.broker_id: row.rack if racks else None for row in described.brokers}
    if unknown := [each for each in brokers if each not in rack_of]:
        raise click.ClickException(f"no such broker: {', '.join(map(str, unknown))}")
    if len({rack_of[each] is None for each in brokers or rack_of}) > 1:
        raise click.ClickException("not every broker has a rack; try --ignore-racks")
    return rack_of


def carry_out(target: Target, plan: Plan, title: str, *, throttle: int | None = None) -> None:
    """Reassign partitions and wait for the end; raises ClickException if one is refused.

    `title` is what the progress bar says.
    """
    outcomes = target.run(
        lambda cluster: execute(
            cluster, plan, throttle=throttle, additional=True, allow_factor_change=True
        )
    )
    for (topic, index), error in sorted(outcomes.items(), key=lambda each: each[0]):
        if error is not None:
            raise click.ClickException(f"{topic}-{index}: {error}")
    until_done(target, plan, title)


def until_done(target: Target, plan: Plan, title: str) -> list[PlanProgress]:
    """Wait for the end of the reassignments of a plan, then remove its throttle; return its rows.

    `title` is what the progress bar says.
    """
    with progress(title, len(plan)) as advance:
        while True:
            rows, moving = target.run(lambda cluster: verify(cluster, plan, keep_throttle=False))
            advance(sum(row.state == "done" for row in rows))
            if not moving:
                return rows
            time.sleep(_POLL_SECONDS)


async def execute(
    cluster: Cluster,
    plan: Plan,
    *,
    throttle: int | None,
    additional: bool,
    allow_factor_change: bool,
) -> Outcomes:
    """Start the reassignments of a plan.

    `throttle` is in bytes per second, for each broker and direction. While other partitions are
    being reassigned, `additional` must be set; the throttle then covers these partitions too.
    """
    admin = PartitionAdmin(cluster)
    ongoing = await admin.reassignments()
    if ongoing and not additional:
        raise click.ClickException(
            f"{len(ongoing)} partition(s) are being reassigned; --additional adds to them"
        )
    await current_plan(cluster, plan)
    if throttle is not None:
        whole = {partition: running.target for partition, running in ongoing.items()} | plan
        here = await current_plan(cluster, whole)
        moved = throttle_for(whole, here, ongoing)
        await _set_throttle(cluster, moved.leaders, moved.followers, moved.brokers, throttle)
    return await admin.reassign(plan, allow_factor_change=allow_factor_change)


async def verify(cluster: Cluster, plan: Plan, *, keep_throttle: bool) -> Progress:
    """Return the progress of a plan; remove its throttle if no partition is being reassigned."""
    ongoing = await PartitionAdmin(cluster).reassignments()
    here = await _propagated_plan(cluster, plan, ongoing)
    rows = []
    for place_, wanted in sorted(plan.items()):
        running = ongoing.get(place_)
        if running is not None and running.target == wanted:
            state: State = "moving"
        elif running is not None:
            state = "moving elsewhere"
        else:
            state = "done" if here[place_] == wanted else "elsewhere"
        replicas = list(here[place_])
        rows.append(PlanProgress(*place_, state=state, replicas=replicas, wanted=list(wanted)))
    if not ongoing and not keep_throttle:
        await clear_throttle(cluster, {topic for topic, _ in plan})
    return Progress(rows, bool(ongoing))


async def _propagated_plan(cluster: Cluster, plan: Plan, moving: Container[TopicPartition]) -> Plan:
    """Return the current replicas, once the metadata of the brokers is up to date.

    Brokers learn the end of a reassignment later than the controller; wait for it.
    """
    deadline = time.monotonic() + _PROPAGATION_SECONDS
    while True:
        here = await current_plan(cluster, plan)
        elsewhere = (each for each in plan if each not in moving and here[each] != plan[each])
        if next(elsewhere, None) is None or time.monotonic() > deadline:
            return here
        await asyncio.sleep(_PROPAGATION_SECONDS / 20)


async def cancel(cluster: Cluster, plan: Plan | None, *, keep_throttle: bool) -> Outcomes:
    """Cancel the reassignments of a plan, or all; partitions without one are left out."""
    admin = PartitionAdmin(cluster)
    ongoing = await admin.reassignments()
    wanted = [partition for partition in ongoing if plan is None or partition in plan]
    outcomes = await admin.reassign(dict.fromkeys(wanted)) if wanted else {}
    if not keep_throttle:
        await clear_throttle(cluster, {topic for topic, _ in (wanted if plan is None else plan)})
    return outcomes


async def clear_throttle(cluster: Cluster, topics: Iterable[str]) -> None:
    """Remove the rates from every broker, and the lists of throttled replicas from `topics`."""
    admin = Admin(cluster)
    for node in sorted(cluster.nodes):
        resets = [(key, ConfigOperation.DELETE, None) for key in _RATES]
        await admin.alter_configs(ConfigResourceType.BROKER, str(node), resets)
    for topic in sorted(topics):
        resets = [(key, ConfigOperation.DELETE, None) for key in (_LEADERS, _FOLLOWERS)]
        await admin.alter_configs(ConfigResourceType.TOPIC, topic, resets)


async def _set_throttle(
    cluster: Cluster,
    leaders: Mapping[str, list[str]],
    followers: Mapping[str, list[str]],
    brokers: Iterable[int],
    rate: int,
) -> None:
    """Set the lists of throttled replicas first: a rate without a list throttles nothing."""
    admin = Admin(cluster)
    for topic in leaders:
        lists = ((_LEADERS, leaders[topic]), (_FOLLOWERS, followers[topic]))
        changes = [(key, ConfigOperation.SET, ",".join(replicas)) for key, replicas in lists]
        await admin.alter_configs(ConfigResourceType.TOPIC, topic, changes)
    for broker in brokers:
        rates = [(key, ConfigOperation.SET, str(rate)) for key in _RATES]
        await admin.alter_configs(ConfigResourceType.BROKER, str(broker), rates)
