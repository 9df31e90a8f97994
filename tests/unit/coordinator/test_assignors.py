"""The assignors of consumer groups: everything assigned once, balanced, with few moves."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.group.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    MemberSpec,
    range_,
    uniform,
)
from tests.support.assignor_groups import Group, groups, topic_id

A, B, C = (topic_id(number) for number in (2, 3, 4))


def _sizes(assignment: Assignment) -> dict[str, int]:
    return {member: sum(map(len, partitions.values())) for member, partitions in assignment.items()}


def _kept(group: Group, assignment: Assignment) -> int:
    return sum(
        len(group.members[member].assigned.get(topic, frozenset()) & set(partitions))
        for member, share in assignment.items()
        for topic, partitions in share.items()
    )


def _next(group: Group, assignment: Assignment, *, without: str | None = None) -> Group:
    """Return the group after an assignment, one member less if `without` is given."""
    members = {
        member: MemberSpec(
            spec.topics,
            spec.instance_id,
            {topic: frozenset(found) for topic, found in assignment[member].items()},
        )
        for member, spec in group.members.items()
        if member != without
    }
    return Group(members, group.topics)


def _member(*topics: bytes, assigned: dict[bytes, set[int]] | None = None) -> MemberSpec:
    found = {topic: frozenset(some) for topic, some in (assigned or {}).items()}
    return MemberSpec(frozenset(topics), None, found)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_each_partition_of_a_subscribed_topic_has_one_subscriber(name: str, group: Group) -> None:
    assignment = ASSIGNORS[name](group.members, group.topics)
    assert assignment.keys() == group.members.keys()
    given_out = Counter(
        (topic, partition)
        for member, share in assignment.items()
        for topic, partitions in share.items()
        for partition in partitions
        if topic in group.members[member].topics
    )
    assert given_out == Counter(
        (topic, partition)
        for topic, count in group.topics.items()
        if group.subscribers(topic)
        for partition in range(count)
    )
    for share in assignment.values():
        assert all(partitions for partitions in share.values())
        assert all(list(each) == sorted(each) for each in share.values())


@given(groups(equal=True))
def test_uniform_shares_differ_by_one_at_most(group: Group) -> None:
    sizes = _sizes(uniform(group.members, group.topics)).values()
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(groups(equal=False))
def test_uniform_leaves_no_move_that_balances_one_topic(group: Group) -> None:
    assignment = uniform(group.members, group.topics)
    sizes = _sizes(assignment)
    for topic in group.topics:
        for giver in group.subscribers(topic):
            for taker in group.subscribers(topic):
                assert topic not in assignment[giver] or sizes[giver] <= sizes[taker] + 1


@given(groups(equal=True))
def test_uniform_keeps_as_much_as_balance_allows(group: Group) -> None:
    assignment = uniform(group.members, group.topics)
    had = [
        sum(len(found) for topic, found in spec.assigned.items() if topic in spec.topics)
        for spec in group.members.values()
    ]
    total = sum(_sizes(assignment).values())
    quota, extra = divmod(total, len(had)) if had else (0, 0)
    larger = sum(count > quota for count in had)
    at_most = sum(min(count, quota) for count in had) + min(larger, extra)
    # Members are looked at once, in their order: up to `extra` of the larger shares may go to
    # members that did not have them.
    assert at_most - extra <= _kept(group, assignment) <= at_most


@given(groups(equal=True), st.data())
def test_uniform_moves_nothing_but_the_share_of_a_member_that_left(
    group: Group, data: st.DataObject
) -> None:
    first = uniform(group.members, group.topics)
    settled = _next(group, first)
    assert uniform(settled.members, settled.topics) == first
    if not group.members:
        return
    left = data.draw(st.sampled_from(sorted(group.members)))
    smaller = _next(group, first, without=left)
    second = uniform(smaller.members, smaller.topics)
    for member, share in second.items():
        for topic, partitions in first[member].items():
            assert set(partitions) <= set(share[topic])


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_the_same_group_gets_the_same_assignment(name: str, group: Group) -> None:
    again = {
        member: MemberSpec(
            frozenset(sorted(spec.topics, reverse=True)),
            spec.instance_id,
            dict(reversed(spec.assigned.items())),
        )
        for member, spec in group.members.items()
    }
    topics = dict(reversed(group.topics.items()))
    assert ASSIGNORS[name](again, topics) == ASSIGNORS[name](group.members, group.topics)


@given(groups(equal=True))
def test_range_assigns_equal_ranges_of_topics_with_equally_many_partitions(group: Group) -> None:
    for share in range_(group.members, group.topics).values():
        by_count: dict[int, set[tuple[int, ...]]] = {}
        for topic, partitions in share.items():
            assert partitions == tuple(range(partitions[0], partitions[-1] + 1))
            by_count.setdefault(group.topics[topic], set()).add(partitions)
        assert all(len(ranges) == 1 for ranges in by_count.values())


def test_range_of_a_static_member_outlives_its_member_id() -> None:
    topics = {A: 5}
    old = {
        "z": MemberSpec(frozenset({A}), "one", {}),
        "y": MemberSpec(frozenset({A}), "two", {}),
        "dynamic": _member(A),
    }
    new = {"a": old["y"], "dynamic": old["dynamic"], "b": old["z"]}
    before, after = range_(old, topics), range_(new, topics)
    assert before["z"] == after["b"] == {A: (0, 1)}
    assert before["y"] == after["a"] == {A: (2, 3)}
    assert before["dynamic"] == after["dynamic"] == {A: (4,)}


def test_range_leaves_members_empty_that_are_more_than_partitions() -> None:
    members = {name: _member(A) for name in "cab"}
    assert range_(members, {A: 2}) == {"a": {A: (0,)}, "b": {A: (1,)}, "c": {}}


def test_kafka_18688_uniform_lets_any_member_keep_the_partition_that_is_left_over() -> None:
    members = {"a": _member(A, assigned={A: {2}}), "b": _member(A, assigned={A: {0, 1}})}
    assert uniform(members, {A: 3}) == {"a": {A: (2,)}, "b": {A: (0, 1)}}


def test_uniform_gives_a_partition_with_two_owners_to_one() -> None:
    twice = {A: {0, 1}}
    members = {"a": _member(A, assigned=twice), "b": _member(A, assigned=twice)}
    assert uniform(members, {A: 3}) == {"a": {A: (0, 1)}, "b": {A: (2,)}}
    assert uniform({**members, "c": _member(B)}, {A: 3, B: 1}) == {
        "a": {A: (0, 1)},
        "b": {A: (2,)},
        "c": {B: (0,)},
    }


@pytest.mark.parametrize("others", [{}, {"c": _member(B)}], ids=["equal", "unequal"])
def test_uniform_drops_partitions_that_do_not_exist(others: dict[str, MemberSpec]) -> None:
    members = {"a": _member(A, assigned={A: {0, 7}, C: {0}}), "b": _member(A), **others}
    assignment = uniform(members, {A: 2, B: 1})
    assert (assignment["a"], assignment["b"]) == ({A: (0,)}, {A: (1,)})


def test_uniform_balances_each_topic_among_its_subscribers() -> None:
    members = {"a": _member(A), "b": _member(A, B), "c": _member(B, assigned={B: set(range(6))})}
    assignment = uniform(members, {A: 6, B: 6})
    # As Kafka's. A chain of moves over both topics, to 4 for each, is not looked for.
    assert _sizes(assignment) == {"a": 3, "b": 4, "c": 5}
    assert set(assignment["c"][B]) <= set(range(6))
