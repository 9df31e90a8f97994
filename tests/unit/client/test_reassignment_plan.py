"""Reassignment plans in the JSON format of Kafka's tool, and their throttles."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.partition_admin import Reassignment
from barnabas.client.reassignment_plan import (
    Placement,
    parse_plan,
    plan_factor,
    plan_text,
    throttle_for,
)
from barnabas.protocol.topic_partition import TopicPartition


def row(**fields: object) -> dict[str, object]:
    return {"topic": "t", "partition": 0, "replicas": [1, 2], **fields}


def text(*rows: dict[str, object], **fields: object) -> str:
    return json.dumps({"version": 1, "partitions": list(rows), **fields})


def test_plan_of_kafkas_tool_is_parsed() -> None:
    plan = parse_plan(
        '{"version":1,"partitions":[{"topic":"a","partition":1,"replicas":[3,1],'
        '"log_dirs":["any","any"]},{"topic":"b","partition":0,"replicas":[2]}]}'
    )
    assert plan == {("a", 1): (3, 1), ("b", 0): (2,)}


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("{", "not JSON"),
        ("[]", 'no list of "partitions"'),
        (text(row(), version=2), "version 2"),
        (text(), "names no partition"),
        (text(row(), row(replicas=[3])), "t-0 more than once"),
        (text({"topic": "t"}), "not a topic, a partition and its replicas"),
        (text(row(partition="0")), "not a topic, a partition and its replicas"),
        (text(row(partition=True)), "not a topic, a partition and its replicas"),
        (text(row(replicas=[])), "t-0 needs different broker ids"),
        (text(row(replicas=[1, 1])), "t-0 needs different broker ids"),
        (text(row(partition=-1)), "t--1 needs different broker ids"),
        (text(row(replicas=[1, "2"])), "t-0 needs broker ids that are numbers"),
        (text(row(replicas=[1 << 31])), "t-0 needs broker ids that are numbers"),
        (text(row(replicas=[-1])), "t-0 needs broker ids that are numbers"),
        (text(row(log_dirs=["/data", "any"])), "log_dirs"),
    ],
)
def test_invalid_plan_is_refused_with_a_reason(plan: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_plan(plan)


PLANS = st.dictionaries(
    st.tuples(st.text(min_size=1), st.integers(0, 99)),
    st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(tuple),
    min_size=1,
)


@given(PLANS)
def test_plan_text_round_trips(plan: dict[tuple[str, int], tuple[int, ...]]) -> None:
    assert parse_plan(plan_text(plan)) == plan


def test_throttle_lists_current_replicas_as_leaders_and_new_ones_as_followers() -> None:
    plan = {("a", 0): (2, 3), ("a", 1): (1, 2), ("b", 0): (4,)}
    here = {("a", 0): (1, 2), ("a", 1): (2, 1), ("b", 0): (1,)}
    throttle = throttle_for(plan, here, {})
    assert throttle.leaders == {"a": ["0:1", "0:2"], "b": ["0:1"]}
    assert throttle.followers == {"a": ["0:3"], "b": ["0:4"]}
    assert throttle.brokers == [1, 2, 3, 4]


def test_throttle_covers_replicas_of_a_running_reassignment() -> None:
    plan = {("a", 0): (3, 4)}
    here = {("a", 0): (3, 4, 1, 2)}
    running = {("a", 0): Reassignment((3, 4, 1, 2), adding=(3, 4), removing=(1, 2))}
    throttle = throttle_for(plan, here, running)
    assert throttle.leaders == {"a": ["0:1", "0:2"]}
    assert throttle.followers == {"a": ["0:3", "0:4"]}


def test_changed_order_of_replicas_is_not_throttled() -> None:
    throttle = throttle_for({("a", 0): (2, 1)}, {("a", 0): (1, 2)}, {})
    assert throttle == ({}, {}, [])


RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
T0 = TopicPartition("t", 0)


def placed(*replicas: int, leader: int = 0, lost: frozenset[int] = frozenset()) -> Placement:
    return Placement(replicas, frozenset(replicas) - lost, leader or replicas[0])


@pytest.mark.parametrize(
    ("now", "factor", "then"),
    [
        # Racks first, then the brokers with the fewest replicas, then the lowest id.
        (placed(1), 3, (1, 3, 5)),
        (placed(5), 3, (5, 1, 3)),
        (placed(1, 3), 5, (1, 3, 5, 2, 4)),
        # Replicas out of sync go first, then those in a rack that has others.
        (placed(1, 3, 5, lost=frozenset({5})), 2, (1, 3)),
        (placed(1, 3, 2), 2, (1, 3)),
        # The leader stays, and becomes the preferred one if that goes.
        (placed(1, 3, 5, leader=5), 1, (5,)),
        (placed(1, 3, 5, leader=3, lost=frozenset({1})), 2, (3, 5)),
        (placed(1, 3, 5, leader=5), 2, (1, 5)),
    ],
)
def test_plan_changes_the_replication_factor(
    now: Placement, factor: int, then: tuple[int, ...]
) -> None:
    assert plan_factor({T0: now}, factor, RACKS, {}) == {T0: then}


def test_plan_of_a_factor_balances_brokers_and_leaves_out_what_has_it() -> None:
    now = {TopicPartition("t", each): placed(1) for each in range(4)}
    plan = plan_factor(now, 2, dict.fromkeys((1, 2, 3), None), {1: 4, 2: 1})
    assert sorted(plan.values()) == [(1, 2), (1, 2), (1, 3), (1, 3)]
    assert plan_factor(now, 1, RACKS, {}) == {}
    with pytest.raises(ValueError, match="too few brokers for 3 replicas of t-0"):
        plan_factor(now, 3, {1: None, 2: None}, {})


@given(
    st.lists(st.permutations(range(1, 6)), min_size=1, max_size=6),
    st.integers(1, 5),
    st.integers(1, 5),
    st.data(),
)
def test_plan_of_a_factor_moves_no_leader_and_no_replica(
    orders: list[list[int]], before: int, factor: int, data: st.DataObject
) -> None:
    now = {}
    for index, order in enumerate(orders):
        leader = data.draw(st.sampled_from(order[:before]))
        now[TopicPartition("t", index)] = placed(*order[:before], leader=leader)
    plan = plan_factor(now, factor, RACKS, {})
    assert len(plan) == (len(now) if before != factor else 0)
    for partition, replicas in plan.items():
        old = now[partition]
        assert len(set(replicas)) == factor
        assert old.leader in replicas
        assert replicas[0] in (old.replicas[0], old.leader)
        assert set(replicas) <= set(old.replicas) or set(replicas) >= set(old.replicas)
        racks = {RACKS[each] for each in replicas}
        if factor > before:
            most = min(len({RACKS[each] for each in old.replicas}) + factor - before, 3)
            assert len(racks) == most
