"""The assignors of a group: deterministic functions from subscriptions to assignments.

`range` and `roundrobin` are eager: all members revoke all partitions. `cooperative-sticky`
(KIP-429) moves as few partitions as possible, in two rebalances: the first revokes a partition from
one member, the second assigns it to another.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.protocol.topic_partition import TopicPartition

COOPERATIVE_STICKY = "cooperative-sticky"

Assignment = dict[str, list[TopicPartition]]


class Subscription(NamedTuple):
    """A member's topics, its owned partitions and their generation (KIP-792)."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = -1


def assign_range(members: Mapping[str, Sequence[str]], counts: Mapping[str, int]) -> Assignment:
    """Assign consecutive partitions of each topic to its subscribers, in order of member id."""
    out: Assignment = {member: [] for member in members}
    for topic, count in sorted(counts.items()):
        readers = sorted(m for m, topics in members.items() if topic in topics)
        share, extra = divmod(count, len(readers)) if readers else (0, 0)
        start = 0
        for index, member in enumerate(readers):
            end = start + share + (index < extra)
            out[member] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return out


def assign_round_robin(
    members: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> Assignment:
    """Assign the partitions one by one to the members that subscribe to their topic."""
    out: Assignment = {member: [] for member in members}
    ring = sorted(members)
    turn = 0
    for topic, count in sorted(counts.items()):
        if not any(topic in topics for topics in members.values()):
            continue
        for partition in range(count):
            while topic not in members[ring[turn % len(ring)]]:
                turn += 1
            out[ring[turn % len(ring)]].append(TopicPartition(topic, partition))
            turn += 1
    return out


EAGER = {"range": assign_range, "roundrobin": assign_round_robin}


def assign_cooperative_sticky(
    members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> Assignment:
    """Return the sticky assignment, without partitions that another member must revoke first.

    A member that revokes partitions joins again; in that rebalance they can be assigned.
    """
    claims: dict[TopicPartition, set[str]] = defaultdict(set)
    for member, subscription in members.items():
        for partition in subscription.owned:
            claims[partition].add(member)
    owners = _owners(members)
    return {
        member: [tp for tp in share if owners.get(tp) == member or not claims[tp] - {member}]
        for member, share in assign_sticky(members, counts).items()
    }


def assign_sticky(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Assignment:
    """Assign every partition to a subscriber, if possible to its owner.

    A partition moves from its owner only to a member that has at least two partitions less.
    """
    held: Assignment = {member: [] for member in members}
    owners = _owners(members)
    readers = {
        topic: sorted(m for m, wants in members.items() if topic in wants.topics)
        for topic in counts
    }
    free: list[TopicPartition] = []
    for topic, count in sorted(counts.items(), key=lambda row: (len(readers[row[0]]), row[0])):
        for partition in range(count) if readers[topic] else ():
            at = TopicPartition(topic, partition)
            owner = owners.get(at)
            if owner in readers[topic]:
                held[owner].append(at)
            else:
                free.append(at)
    for at in free:
        held[min(readers[at[0]], key=lambda m: len(held[m]))].append(at)
    while _move_one(held, members):
        pass
    return held


def _owners(members: Mapping[str, Subscription]) -> dict[TopicPartition, str]:
    """Return the owner of each partition: the member that claims it in the newest generation.

    If several members claim it in that generation, it has no owner.
    """
    newest: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str | None] = {}
    for member, subscription in members.items():
        for partition in set(subscription.owned):
            known = newest.get(partition)
            if known is None or subscription.generation > known:
                newest[partition] = subscription.generation
                owners[partition] = member
            elif subscription.generation == known:
                owners[partition] = None
    return {partition: owner for partition, owner in owners.items() if owner is not None}


def _move_one(held: Assignment, members: Mapping[str, Subscription]) -> bool:
    """Move one partition from the fullest possible member to the emptiest; return False if none."""
    by_load = sorted(held, key=lambda m: (len(held[m]), m))
    for taker in by_load:
        wanted = members[taker].topics
        for giver in reversed(by_load):
            if len(held[giver]) < len(held[taker]) + 2:
                break
            # Partitions without an owner were just appended: giving these away moves nothing.
            had = held[giver]
            at = next((n for n in reversed(range(len(had))) if had[n][0] in wanted), None)
            if at is not None:
                held[taker].append(had.pop(at))
                return True
    return False
