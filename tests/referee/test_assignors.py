"""The assignors of consumer groups give what Apache Kafka's own give.

Kafka takes members in the order of a hash table. Here it is given one that keeps their order, and
topics whose ids its hash sets keep in order.
"""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from barnabas.coordinator.group.consumer.assignors import ASSIGNORS
from tests.support.assignor_groups import Group, groups, large_group
from tests.support.kafka import jvm
from tests.support.kafka.resident import Resident


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    with jvm.start(tmp_path_factory.mktemp("java") / "errors") as resident:
        yield resident


def _number(topic: bytes) -> str:
    return str(int.from_bytes(topic, "big"))


def _assigned_by_kafka(java: Resident, name: str, group: Group) -> dict[str, dict[str, list[int]]]:
    answer = java.call(
        "assign",
        assignor=name,
        topics={_number(topic): count for topic, count in group.topics.items()},
        members=[
            {
                "id": member,
                "instance": spec.instance_id,
                "topics": [_number(topic) for topic in spec.topics],
                "assigned": {_number(topic): sorted(p) for topic, p in spec.assigned.items()},
            }
            for member, spec in group.members.items()
        ],
    )
    # A group without subscriptions has no shares at all.
    return {member: answer["shares"].get(member, {}) for member in group.members}


def _compare(java: Resident, name: str, group: Group) -> None:
    ours = {
        member: {_number(topic): list(found) for topic, found in share.items()}
        for member, share in ASSIGNORS[name](group.members, group.topics).items()
    }
    assert ours == _assigned_by_kafka(java, name, group)


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_assignments_are_those_of_kafka(java: Resident, name: str, equal: bool) -> None:
    @settings(max_examples=300)
    @given(groups(equal=equal))
    def compare(group: Group) -> None:
        if group.members:  # Kafka's range fails without; neither is asked then.
            _compare(java, name, group)

    compare()


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_assignments_of_large_groups_are_those_of_kafka(
    java: Resident, name: str, equal: bool
) -> None:
    for seed in range(200):
        _compare(java, name, large_group(seed, equal=equal))
