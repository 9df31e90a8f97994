"""A plan that spreads size, replicas and leaders evenly over brokers with few moves. No I/O."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.client.reassignment_plan import Placements, Plan
from barnabas.protocol.topic_partition import TopicPartition

_TOLERANCE: Final = 0.05
"""The part of the mean load by which a broker may be above it before a replica moves."""


class Load(NamedTuple):
    """The replicas on a broker, their bytes, and the partitions whose preferred leader it is."""

    replicas: int
    size_bytes: int
    leaders: int


def loads(
    plan: Plan, sizes: Mapping[TopicPartition, int], brokers: Mapping[int, object]
) -> dict[int, Load]:
    """Return the load of each broker, if partitions have the replicas of a plan."""
    count: Counter[int] = Counter()
    size: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    for partition, replicas in plan.items():
        leaders[replicas[0]] += 1
        for each in replicas:
            count[each] += 1
            size[each] += sizes.get(partition, 0)
    return {each: Load(count[each], size[each], leaders[each]) for each in sorted(brokers)}


def plan_balance(
    current: Placements,
    sizes: Mapping[TopicPartition, int],
    racks: Mapping[int, str | None],
) -> Plan:
    """Return the new replicas of partitions, of those that change.

    The load of a broker is half the size of its replicas and half their number. Replicas go from
    brokers with more than the mean and a twentieth to those with the least, the largest first, as
    long as that makes the larger of both loads smaller. A partition has replicas on no fewer racks
    afterwards. Then the order of replicas changes, until no broker is preferred leader of two
    partitions more than another that has a replica of one of them. `sizes` are bytes of a replica,
    and `racks` has the live brokers; replicas elsewhere stay.
    """
    placed = {partition: list(each.replicas) for partition, each in sorted(current.items())}
    _even_load(placed, sizes, racks)
    _even_leaders(placed, racks)
    return {
        partition: tuple(replicas)
        for partition, replicas in placed.items()
        if tuple(replicas) != current[partition].replicas
    }


def _even_load(
    placed: dict[TopicPartition, list[int]],
    sizes: Mapping[TopicPartition, int],
    racks: Mapping[int, str | None],
) -> None:
    here: dict[int, set[TopicPartition]] = {broker: set() for broker in racks}
    for partition, replicas in placed.items():
        for each in replicas:
            if each in here:
                here[each].add(partition)
    weight = _weights(here, sizes)
    load = {broker: sum(weight[each] for each in found) for broker, found in here.items()}
    limit = sum(load.values()) * (1 + _TOLERANCE) / len(load)

    def move_one() -> bool:
        """Move a replica from the broker with the most load that can give one."""
        for giver in sorted(load, key=lambda each: (-load[each], each)):
            if load[giver] <= limit:
                return False
            for partition in sorted(here[giver], key=lambda each: (-weight[each], each)):
                replicas, moved = placed[partition], weight[partition]
                able = [
                    each
                    for each in load
                    if each not in replicas
                    and load[each] + moved < load[giver]
                    and _keeps_racks(replicas, giver, each, racks)
                ]
                if able:
                    taker = min(able, key=lambda each: (load[each], each))
                    replicas[replicas.index(giver)] = taker
                    here[giver].remove(partition)
                    here[taker].add(partition)
                    load[giver] -= moved
                    load[taker] += moved
                    return True
        return False

    while move_one():
        pass


def _weights(
    here: Mapping[int, set[TopicPartition]], sizes: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the load of a replica of each partition: integers, so that sums are exact.

    It is its size and the mean size of all, so that all replicas count as much as all data, times
    the number of replicas.
    """
    every = [sizes.get(each, 0) for found in here.values() for each in found]
    whole = sum(every) or len(every)
    return {
        each: sizes.get(each, 0) * len(every) + whole for found in here.values() for each in found
    }


def _keeps_racks(
    replicas: list[int], giver: int, taker: int, racks: Mapping[int, str | None]
) -> bool:
    """Whether a partition has replicas on as many racks after a move."""
    after = {racks.get(taker if each == giver else each) for each in replicas}
    return len(after) >= len({racks.get(each) for each in replicas})


def _even_leaders(placed: dict[TopicPartition, list[int]], racks: Mapping[int, str | None]) -> None:
    leads: dict[int, list[TopicPartition]] = {each: [] for each in racks}
    for partition, replicas in placed.items():
        leads.setdefault(replicas[0], []).append(partition)
    changed = True
    while changed:
        changed = False
        for giver in sorted(leads, key=lambda each: (-len(leads[each]), each)):
            for partition in list(leads[giver]):
                replicas = placed[partition]
                able = [each for each in replicas[1:] if each in racks]
                taker = min(able, key=lambda each: (len(leads[each]), each), default=giver)
                if len(leads[taker]) + 1 >= len(leads[giver]):
                    continue
                leads[giver].remove(partition)
                leads[taker].append(partition)
                at = replicas.index(taker)
                replicas[0], replicas[at] = taker, giver
                changed = True
