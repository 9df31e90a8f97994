"""Plans that take leaders and replicas away from a broker, or give it leaders back. No I/O.

Leaders move without data: the order of a partition's replicas changes, and the first is elected.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.reassignment_plan import Placements, Plan, least_used
from barnabas.protocol.topic_partition import TopicPartition


class Loss(NamedTuple):
    """A partition that could not be used as before without a broker, and why."""

    partition: TopicPartition
    problem: str


def losses(current: Placements, broker: int, min_isr: Mapping[str, int]) -> list[Loss]:
    """Return the partitions that would lack a leader or min.insync.replicas without a broker.

    `min_isr` has the value of each topic. Partitions of which the broker has no replica in sync
    lose nothing.
    """
    found = []
    for partition, placed in sorted(current.items()):
        if broker not in placed.in_sync:
            continue
        left = len(placed.in_sync) - 1
        least = min(min_isr[partition.topic], len(placed.replicas))
        if len(placed.replicas) == 1:
            found.append(Loss(partition, "it has no other replica"))
        elif not left:
            found.append(Loss(partition, "no other replica is in sync"))
        elif left < least:
            problem = f"{left} would be left in sync, and min.insync.replicas is {least}"
            found.append(Loss(partition, problem))
    return found


def leaders_away(current: Placements, broker: int) -> Plan:
    """Return a plan in which a broker comes last in each partition that it leads or would lead.

    The first is the replica in sync that is preferred leader of the fewest partitions. Partitions
    without another replica in sync are left out.
    """
    preferred = Counter(placed.replicas[0] for placed in current.values())
    plan: Plan = {}
    for partition, placed in sorted(current.items()):
        if broker not in (placed.leader, placed.replicas[0]):
            continue
        others = [each for each in placed.replicas if each != broker]
        able = [each for each in others if each in placed.in_sync]
        if broker not in placed.replicas or not able:
            continue
        first = placed.replicas[0]
        if first == broker or first not in placed.in_sync:
            first = min(able, key=lambda each: (preferred[each], each))
            preferred[placed.replicas[0]] -= 1
            preferred[first] += 1
        plan[partition] = (first, *(each for each in others if each != first), broker)
    return plan


def replicas_away(current: Placements, broker: int, racks: Mapping[int, str | None]) -> Plan:
    """Return a plan in which other brokers have the replicas of a broker.

    A new replica goes to the rack with the fewest replicas of the partition, and there to the
    broker with the fewest of all. `racks` has the live brokers. Partitions that have a replica on
    each of them are left out, and those without a leader, from which nothing can be copied.
    """
    load = Counter(each for placed in current.values() for each in placed.replicas)
    targets = racks.keys() - {broker}
    plan: Plan = {}
    for partition, placed in sorted(current.items()):
        if broker not in placed.replicas or placed.leader not in racks:
            continue
        others = [each for each in placed.replicas if each != broker]
        if targets <= set(others):
            continue
        added = least_used(others, targets, racks, load)
        load[added] += 1
        plan[partition] = (*others, added)
    return plan


def leaders_back(current: Placements, broker: int) -> Plan:
    """Return a plan that makes a broker leader of its share of the partitions it has in sync.

    Its share is one of N partitions with N replicas. It gets them from the brokers that are
    preferred leaders of the most. Partitions whose preferred leader it is already, without leading
    them, stay as they are and are in the plan too.
    """
    here = {key: placed for key, placed in current.items() if broker in placed.in_sync}
    plan = {
        key: placed.replicas
        for key, placed in here.items()
        if placed.replicas[0] == broker != placed.leader
    }
    preferred = Counter(placed.replicas[0] for placed in current.values())
    share = round(sum(1 / len(placed.replicas) for placed in here.values()))
    others = [key for key, placed in here.items() if placed.replicas[0] != broker]
    while others and preferred[broker] < share:
        partition = max(others, key=lambda key: (preferred[here[key].replicas[0]], key))
        first, *rest = here[partition].replicas
        if preferred[first] <= preferred[broker] + 1:
            break
        preferred[first] -= 1
        preferred[broker] += 1
        others.remove(partition)
        plan[partition] = (broker, first, *(each for each in rest if each != broker))
    return plan
