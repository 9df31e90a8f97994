"""The assignors compared with aiokafka's: members of both clients may be in the same group."""

from typing import Any

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.groups.assignors import Assignment, assign_range, assign_round_robin

TOPICS = ["a", "b", "c"]
members = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4"]),
    st.lists(st.sampled_from(TOPICS), min_size=1, unique=True),
    min_size=1,
)
counts = st.fixed_dictionaries({topic: st.integers(1, 6) for topic in TOPICS})


class _Cluster:
    def __init__(self, partitions: dict[str, int]) -> None:
        self._counts = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if topic in self._counts else None


def _foreign(assignor: Any, subscribed: dict[str, list[str]], parts: dict[str, int]) -> Assignment:
    metadata = {member: assignor.metadata(topics) for member, topics in subscribed.items()}
    answer = assignor.assign(_Cluster(parts), metadata)
    return {
        member: sorted(
            (topic, partition)
            for topic, partitions in answer[member].assignment
            for partition in partitions
        )
        for member in subscribed
    }


def _sorted(assignment: Assignment) -> Assignment:
    return {member: sorted(share) for member, share in assignment.items()}


@given(members, counts)
def test_range_equals_aiokafkas(subscribed: dict[str, list[str]], parts: dict[str, int]) -> None:
    wanted = {t: n for t, n in parts.items() if any(t in topics for topics in subscribed.values())}
    ours = _sorted(assign_range(subscribed, wanted))
    assert ours == _foreign(RangePartitionAssignor, subscribed, wanted)


@given(members, counts)
def test_round_robin_equals_aiokafkas(
    subscribed: dict[str, list[str]], parts: dict[str, int]
) -> None:
    wanted = {t: n for t, n in parts.items() if any(t in topics for topics in subscribed.values())}
    ours = _sorted(assign_round_robin(subscribed, wanted))
    assert ours == _foreign(RoundRobinPartitionAssignor, subscribed, wanted)
