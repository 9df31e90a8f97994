"""Reassignment plans in the JSON format of Kafka's tool, and their throttled replicas. No I/O.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.partition_admin import Reassignment
from barnabas.protocol.topic_partition import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]
"""The target replicas of each partition, the preferred leader first."""


class Placement(NamedTuple):
    """The replicas of a partition, the preferred leader first, those in sync, and its leader."""

    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    leader: int


Placements = Mapping[TopicPartition, Placement]


def plan_factor(
    current: Placements,
    factor: int,
    racks: Mapping[int, str | None],
    replicas_on: Mapping[int, int],
    only: Collection[int] = (),
) -> Plan:
    """Return a plan in which each partition has `factor` replicas; partitions that do are left out.

    Leaders stay leaders, and replicas stay where they are. New ones go to the rack with the fewest
    replicas of the partition, and there to the broker with the fewest of all. Replicas go from
    brokers that are out of sync, then from racks and brokers with the most. `racks` has the live
    brokers, and `replicas_on` the number on each broker. With `only`, new replicas go to these
    brokers, and where replicas go, none stays on another broker, not even the leader. Raises
    ValueError if there are too few brokers.
    """
    load = Counter(replicas_on)
    targets = set(only or racks)
    plan: Plan = {}
    for partition, placed in sorted(current.items()):
        if len(placed.replicas) == factor:
            continue
        _check_factor(partition, placed, factor, targets, bool(only))
        replicas = list(placed.replicas)
        while len(replicas) < factor:
            added = least_used(replicas, targets, racks, load)
            replicas.append(added)
            load[added] += 1
        while len(replicas) > factor:
            kept = targets if only else set(replicas)
            removed = _most_dispensable(placed, replicas, kept, racks, load)
            replicas.remove(removed)
            load[removed] -= 1
        if replicas[0] != placed.replicas[0]:
            # The preferred leader is gone: the leader takes its place, and no election follows.
            replicas.sort(key=lambda each: each != placed.leader)
        plan[partition] = tuple(replicas)
    return plan


def _check_factor(
    partition: TopicPartition, placed: Placement, factor: int, targets: set[int], named: bool
) -> None:
    """Raise ValueError if a partition cannot have `factor` replicas; `named` are the targets."""
    name = f"{partition.topic}-{partition.partition}"
    here = set(placed.replicas)
    if len(here) < factor:
        possible = here | targets
        reason = f"only brokers {_ids(possible)} have one or may get one"
    else:
        possible = here & targets if named else here
        reason = (
            f"it has replicas on {_ids(here)}, of which {_ids(possible) or 'none'} may stay, and "
            "with fewer replicas none moves"
        )
    if len(possible) < factor:
        raise ValueError(f"there are too few brokers for {factor} replicas of {name}: {reason}")


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


def least_used(
    replicas: Iterable[int],
    targets: Iterable[int],
    racks: Mapping[int, str | None],
    load: Mapping[int, int],
) -> int:
    """Return the target for another replica: of the rack with the fewest of these replicas, the
    broker with the least load."""
    there = set(replicas)
    used = Counter(racks.get(each) for each in there)
    others = (each for each in targets if each not in there)
    return min(others, key=lambda each: (used[racks.get(each)], load[each], each))


def _most_dispensable(
    placed: Placement,
    replicas: Iterable[int],
    kept: Collection[int],
    racks: Mapping[int, str | None],
    load: Mapping[int, int],
) -> int:
    used = Counter(racks.get(each) for each in replicas)
    return max(
        replicas,
        key=lambda each: (
            each not in kept,
            each != placed.leader,
            each not in placed.in_sync,
            each != placed.replicas[0],
            used[racks.get(each)],
            load[each],
            each,
        ),
    )


def parse_plan(text: str | bytes) -> Plan:
    """Parse a plan; raises ValueError with a message of one line."""
    from pydantic import ValidationError

    from barnabas.client.plan_file import PlanFile
    from barnabas.config.faults import first_fault

    try:
        found = PlanFile.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"not a plan: {first_fault(error)}") from None
    plan: Plan = {}
    for index, row in enumerate(found.partitions):
        partition = TopicPartition(row.topic, row.partition)
        if partition in plan:
            name = f"partition {row.partition} of {row.topic!r}"
            raise ValueError(f"not a plan: partitions[{index}]: {name} comes more than once")
        plan[partition] = tuple(row.replicas)
    return plan


def plan_rows(plan: Mapping[TopicPartition, Iterable[int]]) -> dict[str, Any]:
    """Return a plan as JSON values, in the format of Kafka's tool."""
    rows = [
        {
            "topic": topic,
            "partition": index,
            "replicas": (ids := list(replicas)),
            "log_dirs": ["any"] * len(ids),
        }
        for (topic, index), replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": rows}


def plan_text(plan: Mapping[TopicPartition, Iterable[int]]) -> str:
    """Return a plan as one line of JSON, in the format of Kafka's tool."""
    return json.dumps(plan_rows(plan), separators=(",", ":"))


class ReplicaThrottle(NamedTuple):
    """The throttled replicas (`partition:broker` by topic) and the brokers with a rate."""

    leaders: dict[str, list[str]]
    followers: dict[str, list[str]]
    brokers: list[int]


def throttle_for(
    plan: Plan,
    current: Mapping[TopicPartition, tuple[int, ...]],
    ongoing: Mapping[TopicPartition, Reassignment],
) -> ReplicaThrottle:
    """Return the throttle of a plan: current replicas throttle as leaders, new ones as followers.

    `ongoing` are the running reassignments, so that a throttle can be changed during one.
    """
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for partition, wanted in sorted(plan.items()):
        topic, index = partition
        running = ongoing.get(partition)
        coming = running.adding if running is not None else ()
        sources = [each for each in current[partition] if each not in coming]
        targets = [each for each in wanted if each not in sources]
        if targets:
            leaders[topic] += [f"{index}:{each}" for each in sources]
            followers[topic] += [f"{index}:{each}" for each in targets]
            brokers.update(sources, targets)
    return ReplicaThrottle(dict(leaders), dict(followers), sorted(brokers))
