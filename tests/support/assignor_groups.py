"""Groups for the assignors of consumer groups: members with subscriptions and assignments."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from barnabas.coordinator.group.consumer.assignors import MemberSpec

MEMBERS = 12
TOPICS = range(2, 8)
"""Numbers of topics. Java's hash sets hold ids with a few small numbers in their order."""


def topic_id(number: int) -> bytes:
    """Return the id of a topic."""
    return number.to_bytes(16, "big")


@dataclass(frozen=True, slots=True)
class Group:
    """The input of an assignor."""

    members: Mapping[str, MemberSpec]
    topics: Mapping[bytes, int]

    def subscribers(self, topic: bytes) -> list[str]:
        """Return the members that subscribe to a topic."""
        return [each for each, spec in self.members.items() if topic in spec.topics]


@st.composite
def groups(draw: st.DrawFn, *, equal: bool | None = None) -> Group:
    """A group; if `equal` is given, all members subscribe to the same topics, or may differ."""
    counts = {topic_id(each): draw(st.just(1) | st.integers(1, 12)) for each in TOPICS}
    subscriptions = st.frozensets(st.sampled_from(sorted(counts)))
    common = draw(subscriptions)
    alike = draw(st.booleans()) if equal is None else equal
    names = draw(st.lists(st.text("abcxyz-é", min_size=1), max_size=MEMBERS, unique=True))
    owned: dict[str, dict[bytes, set[int]]] = {name: {} for name in names}
    owners = st.sampled_from([*names, *names, *names, None])
    for topic, count in counts.items() if draw(st.booleans()) and names else ():
        for partition in range(count):
            if (owner := draw(owners)) is not None:
                owned[owner].setdefault(topic, set()).add(partition)
    members = {
        name: MemberSpec(
            topics=common if alike else draw(subscriptions),
            instance_id=draw(st.none() | st.just(f"i{name[::-1]}")),
            assigned={topic: frozenset(found) for topic, found in owned[name].items()},
        )
        for name in names
    }
    return Group(members, counts)


def large_group(seed: int, *, equal: bool) -> Group:
    """A group of up to 40 members, some of which own much and others nothing."""
    random = Random(seed)
    counts = {topic_id(each): random.choice((1, 7, 7, 40)) for each in range(2, 14)}
    names = [f"m{random.random()}" for _ in range(random.randint(2, 40))]
    common = frozenset(random.sample(sorted(counts), 9))
    kinds = [frozenset(random.sample(sorted(counts), random.randint(1, 6))) for _ in range(4)]
    owned: dict[str, dict[bytes, set[int]]] = {name: {} for name in names}
    rich = random.sample(names, random.randint(1, len(names)))
    for topic, count in counts.items():
        for partition in range(count):
            if random.random() < 0.9:
                owned[random.choice(rich)].setdefault(topic, set()).add(partition)
    members = {
        name: MemberSpec(
            topics=common if equal else random.choice(kinds),
            instance_id=None,
            assigned={topic: frozenset(found) for topic, found in owned[name].items()},
        )
        for name in names
    }
    return Group(members, counts)
