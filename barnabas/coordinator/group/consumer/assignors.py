"""The assignors of consumer groups (KIP-848), with the results of Apache Kafka 4.4.

Members are taken in the order in which they are given, topics in the order of Java's `Uuid`. Kafka
takes some of them in the order of its hash tables, so that two equal groups may get different
assignments there; tests/referee/test_assignors.py compares where its order is defined. Neither
assignor looks at racks, as in Kafka since 4.0.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import islice
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

_SIGNED: Final = Struct(">qq")

_MAX_ROUNDS: Final = 16
"""Rounds of balancing over all topics. One is enough where the members of a topic have equal
subscriptions; overlapping ones converge slowly, and end as balanced as 16 rounds make them."""


class MemberSpec(NamedTuple):
    """A member, as an assignor sees it.

    Attributes:
        topics: ids of the topics that it subscribes to; they exist.
        assigned: the partitions of its target assignment until now, by topic.
    """

    topics: frozenset[bytes]
    instance_id: str | None
    assigned: Mapping[bytes, frozenset[int]]


Members = Mapping[str, MemberSpec]
Topics = Mapping[bytes, int]
"""The number of partitions of each topic, by its id."""
Assignment = dict[str, dict[bytes, tuple[int, ...]]]
"""The target assignment: by member id, the sorted partitions of each topic that it has some of."""
Assignor = Callable[[Members, Topics], Assignment]


def uniform(members: Members, topics: Topics) -> Assignment:
    """Assign equally many partitions to each member, moving as few as that allows."""
    if not members:
        return {}
    if len({spec.topics for spec in members.values()}) == 1:
        return _uniform_for_equals(members, topics)
    return _UnequalGroup(members, topics).assign()


def range_(members: Members, topics: Topics) -> Assignment:
    """Assign a range of each topic to each of its subscribers.

    Members with equal subscriptions get equal ranges of topics that have equally many partitions.
    Static members come first, by instance id, so that their ranges outlive their member ids.
    """
    assignment: Assignment = {member_id: {} for member_id in members}
    order = sorted(members, key=lambda each: _static_first(each, members[each]))
    subscribers = _subscribers([members[each].topics for each in order])
    for topic in _in_order(subscribers):
        quota, extra = divmod(topics[topic], len(subscribers[topic]))
        start = 0
        for at, place in enumerate(subscribers[topic]):
            end = start + quota + (at < extra)
            if start == end:
                break
            assignment[order[place]][topic] = tuple(range(start, end))
            start = end
    return assignment


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": uniform, "range": range_})


def _static_first(member_id: str, spec: MemberSpec) -> tuple[bool, bytes]:
    name = member_id if spec.instance_id is None else spec.instance_id
    # The order of UTF-16, in which Java compares strings.
    return spec.instance_id is None, name.encode("utf-16-be", "surrogatepass")


def _subscribers(subscriptions: Sequence[frozenset[bytes]]) -> dict[bytes, list[int]]:
    """Return the places of a topic's subscribers, by topic; those of equal ones are one list."""
    kinds = {topics: number for number, topics in enumerate(dict.fromkeys(subscriptions))}
    subscribed: dict[bytes, list[int]] = defaultdict(list)
    for topics, kind in kinds.items():
        for topic in topics:
            subscribed[topic].append(kind)
    places: dict[tuple[int, ...], list[int]] = {}
    kind_at = [kinds[topics] for topics in subscriptions]
    for some in set(map(tuple, subscribed.values())):
        wanted = set(some)
        places[some] = [place for place, kind in enumerate(kind_at) if kind in wanted]
    return {topic: places[tuple(some)] for topic, some in subscribed.items()}


def _in_order(topics: Collection[bytes]) -> list[bytes]:
    return sorted(topics, key=_SIGNED.unpack) if len(topics) > 1 else list(topics)


def _uniform_for_equals(members: Members, topics: Topics) -> Assignment:
    """Assign partitions to members with the same subscription."""
    member_id, spec = next(iter(members.items()))
    subscribed = _in_order(spec.topics)
    if len(members) == 1 and not spec.assigned:
        # The first member of a new group.
        whole = {topic: tuple(range(topics[topic])) for topic in subscribed if topics[topic]}
        return {member_id: whole}
    quota, extra = divmod(sum(topics[topic] for topic in subscribed), len(members))
    owned = {topic: bytearray(topics[topic]) for topic in subscribed}
    released: list[tuple[bytes, int]] = []
    unfilled: list[tuple[str, int]] = []
    shares: dict[str, dict[bytes, list[int]]] = {}
    for left, (member_id, spec) in zip(range(len(members), 0, -1), members.items(), strict=True):
        room = quota + (extra > 0)
        shares[member_id] = share = {}
        for topic in _in_order(spec.assigned):
            kept = _claim(owned, topic, spec.assigned[topic])
            released += [(topic, partition) for partition in kept[room:]]
            if kept[:room]:
                share[topic] = kept[:room]
            room -= len(share.get(topic, ()))
        # A member with room is not given one of the larger shares as long as there are members
        # behind it, which may hold as much already.
        takes_extra = extra > 0 and not (room and left > extra)
        room -= extra > 0 and not takes_extra
        extra -= takes_extra
        if room:
            unfilled.append((member_id, room))
    free = [
        (topic, partition)
        for topic in subscribed
        for partition, taken in enumerate(owned[topic])
        if not taken
    ]
    rest = iter(free + released)
    for member_id, room in unfilled:
        share = shares[member_id]
        for topic, partition in islice(rest, room):
            share.setdefault(topic, []).append(partition)
    return _finished(shares)


def _claim(
    owned: Mapping[bytes, bytearray], topic: bytes, partitions: Collection[int]
) -> list[int]:
    """Return those partitions that exist, are subscribed to and have no other owner, sorted.

    The assignment of a classic group, which a group begins with, comes from a client.
    """
    if topic not in owned:
        return []
    taken = owned[topic]
    mine = [each for each in sorted(partitions) if each < len(taken) and not taken[each]]
    for each in mine:
        taken[each] = 1
    return mine


def _finished(shares: Mapping[str, Mapping[bytes, Collection[int]]]) -> Assignment:
    return {
        member_id: {topic: tuple(sorted(partitions)) for topic, partitions in share.items()}
        for member_id, share in shares.items()
    }


class _UnequalGroup:
    """A group whose members subscribe to different topics."""

    def __init__(self, members: Members, topics: Topics) -> None:
        self._ids = list(members)
        self._subscribers = _subscribers([spec.topics for spec in members.values()])
        self._balanced: set[int] = set()
        """Lists of subscribers, by identity, whose members are balanced."""
        self._owners = {topic: [-1] * topics[topic] for topic in self._subscribers}
        """The member that owns each partition, by its place in `_ids`; -1 for none."""
        self._sizes = [0] * len(members)
        claimed = {topic: bytearray(len(owners)) for topic, owners in self._owners.items()}
        for member, spec in enumerate(members.values()):
            for topic in spec.topics & spec.assigned.keys():
                for partition in _claim(claimed, topic, spec.assigned[topic]):
                    self._give(topic, partition, member)

    def assign(self) -> Assignment:
        """Return the target assignment."""
        self._assign_free()
        self._balance()
        shares: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in self._ids}
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                shares[self._ids[owner]].setdefault(topic, []).append(partition)
        return _finished(shares)

    def _give(self, topic: bytes, partition: int, member: int) -> None:
        self._owners[topic][partition] = member
        self._sizes[member] += 1

    def _most_shared_last(self, topics: Collection[bytes]) -> list[bytes]:
        """Sort topics by partitions for each subscriber, and then by subscribers, few first."""

        def rank(topic: bytes) -> tuple[float, int]:
            subscribers = len(self._subscribers[topic])
            return -len(self._owners[topic]) / subscribers, subscribers

        return sorted(_in_order(topics), key=rank)

    def _by_size(self, topic: bytes) -> list[int]:
        """Return the subscribers of a topic, those with the fewest partitions first."""
        return sorted(self._subscribers[topic], key=self._sizes.__getitem__)

    def _assign_free(self) -> None:
        """Give the partitions without an owner to the members with the fewest partitions."""
        free = {
            topic: [partition for partition, owner in enumerate(owners) if owner < 0]
            for topic, owners in self._owners.items()
        }
        takers: Iterator[tuple[int, int]] = iter(())
        served: list[int] | None = None
        for topic in self._most_shared_last([topic for topic in free if free[topic]]):
            subscribers = self._subscribers[topic]
            if len(free[topic]) > 1:
                takers, served = self._takers(self._by_size(topic)), None
            elif subscribers is not served:
                # Topics with one partition and the same subscribers, of which there may be
                # thousands, are served in one go.
                takers, served = self._takers(subscribers), subscribers
            for partition in free[topic]:
                self._give(topic, partition, next(takers)[1])

    def _balance(self) -> None:
        """Move partitions from members with many to members with few, topic by topic."""
        shared = [topic for topic, members in self._subscribers.items() if len(members) > 1]
        order = self._most_shared_last(shared)
        last_moved = -1
        for _ in range(_MAX_ROUNDS):
            for at, topic in enumerate(order):
                if at == last_moved:
                    return
                if self._balance_topic(topic) or last_moved < 0:
                    last_moved = at

    def _balance_topic(self, topic: bytes) -> int:
        """Return how many partitions of a topic were moved."""
        subscribers = self._subscribers[topic]
        if id(subscribers) in self._balanced:
            return 0
        sizes = [self._sizes[member] for member in subscribers]
        if max(sizes) - min(sizes) <= 1:
            self._balanced.add(id(subscribers))
            return 0
        held: dict[int, list[int]] = defaultdict(list)
        for partition, owner in enumerate(self._owners[topic]):
            held[owner].append(partition)
        by_size = self._by_size(topic)
        takers = self._takers(by_size)
        moved = 0
        for most, giver in self._givers(by_size, held):
            fewest, taker = next(takers)
            if most - fewest <= 1:
                break
            self._sizes[giver] -= 1
            self._give(topic, held[giver].pop(), taker)
            moved += 1
        if moved:
            self._balanced.clear()
        return moved

    def _takers(self, members: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the first member with the fewest partitions, and how many; it takes one."""
        heap = [(self._sizes[member], place, member) for place, member in enumerate(members)]
        heapify(heap)
        while True:
            size, place, member = heap[0]
            heapreplace(heap, (size + 1, place, member))
            yield size, member

    def _givers(
        self, by_size: Sequence[int], held: Mapping[int, Sequence[int]]
    ) -> Iterator[tuple[int, int]]:
        """Yield the last member with the most partitions, and how many; it gives one.

        Members that hold none of the topic are passed over.
        """
        order = list(by_size)
        start = end = len(order)
        most = 0
        while True:
            most = self._sizes[order[start - 1]] if start == end and start else most - 1
            while start and self._sizes[order[start - 1]] == most:
                start -= 1
            if start == end:
                return
            for at in range(end - 1, start - 1, -1):
                if held.get(order[at]):
                    yield most, order[at]
                else:
                    end -= 1
                    order[at], order[end] = order[end], order[at]
