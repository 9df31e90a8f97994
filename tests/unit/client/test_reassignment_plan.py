"""Reassignment plans in the JSON format of Kafka's tool, and their throttles."""

import json
import re

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
        ("{", "Invalid JSON: EOF while parsing an object at line 1 column 1"),
        ("[" * 100_000, "Invalid JSON: recursion limit exceeded at line 1 column 202"),
        ("[]", "Input should be an object"),
        ("{}", "partitions: Field required"),
        (text(row(), version=2), "version: Input should be 1, not 2"),
        (text(), "partitions: List should have at least 1 item after validation, not 0"),
        (
            text(row(), row(replicas=[3])),
            "partitions[1]: partition 0 of 't' comes more than once",
        ),
        (text({"topic": "t"}), "partitions[0].partition: Field required"),
        (
            text(row(partition="0")),
            "partitions[0].partition: Input should be a valid integer, not '0'",
        ),
        (
            text(row(), row(partition=True)),
            "partitions[1].partition: Input should be a valid integer, not True",
        ),
        (
            text(row(partition=-1)),
            "partitions[0].partition: Input should be greater than or equal to 0, not -1",
        ),
        (
            text(row(replicas=[])),
            "partitions[0].replicas: List should have at least 1 item after validation, not 0",
        ),
        (
            text(row(replicas=[1, 1])),
            "partitions[0].replicas: a broker cannot have two replicas, not [1, 1]",
        ),
        (
            text(row(replicas=[1, "2"])),
            "partitions[0].replicas[1]: Input should be a valid integer, not '2'",
        ),
        (
            text(row(replicas=[1 << 31])),
            "partitions[0].replicas[0]: Input should be less than 2147483648, not 2147483648",
        ),
        (
            text(row(log_dirs=["/data", "any"])),
            "partitions[0].log_dirs[0]: only \"any\" is possible here, not '/data'",
        ),
    ],
)
def test_invalid_plan_is_refused_with_a_place_and_a_reason(plan: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^not a plan: {re.escape(reason)}$"):
        parse_plan(plan)


KEYS = ("version", "partitions", "topic", "partition", "replicas", "log_dirs")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner),
)
ROWS = st.fixed_dictionaries(
    {"topic": st.text() | VALUES, "partition": st.integers(-1, 9) | VALUES},
    optional={"replicas": st.lists(st.integers(-1, 9)) | VALUES, "log_dirs": VALUES},
)
FILES = st.fixed_dictionaries(
    {"partitions": st.lists(ROWS | VALUES)}, optional={"version": st.just(1) | VALUES}
)


@given((FILES | VALUES).map(json.dumps) | st.text() | st.binary())
def test_any_file_is_a_plan_or_refused_in_one_line(file: str | bytes) -> None:
    try:
        plan = parse_plan(file)
    except ValueError as error:
        told = str(error)
    else:
        assert parse_plan(plan_text(plan)) == plan
        return
    assert told.startswith("not a plan: ")
    assert told.splitlines() == [told]


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


@pytest.mark.parametrize(
    ("now", "factor", "only", "then"),
    [
        # Those on other brokers go first, though they are in sync, or lead.
        (placed(1, 3, 5), 2, [3, 5], (3, 5)),
        (placed(1, 3, 5, leader=1), 1, [2, 5], (5,)),
        (placed(1, 3, 5, lost=frozenset({3})), 2, [1, 3], (1, 3)),
        (placed(1, 2, 3, 5, leader=2), 2, [1, 2, 3], (1, 2)),
        # New ones go there alone; the racks of the others count.
        (placed(1), 2, [2, 3], (1, 3)),
        (placed(3), 2, [4, 2], (3, 2)),
    ],
)
def test_plan_of_a_factor_honours_brokers(
    now: Placement, factor: int, only: list[int], then: tuple[int, ...]
) -> None:
    assert plan_factor({T0: now}, factor, RACKS, {}, only) == {T0: then}


@pytest.mark.parametrize(
    ("now", "factor", "only", "reason"),
    [
        (placed(1), 3, [2], "only brokers 1, 2 have one or may get one"),
        (placed(1), 6, [], "only brokers 1, 2, 3, 4, 5 have one or may get one"),
        (
            placed(1, 3, 5),
            2,
            [1, 2],
            "it has replicas on 1, 3, 5, of which 1 may stay, and with fewer replicas none moves",
        ),
        (
            placed(1, 3),
            1,
            [2],
            "it has replicas on 1, 3, of which none may stay, and with fewer replicas none moves",
        ),
    ],
)
def test_plan_of_a_factor_names_the_brokers_that_are_too_few(
    now: Placement, factor: int, only: list[int], reason: str
) -> None:
    told = f"there are too few brokers for {factor} replicas of t-0: {reason}"
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        plan_factor({T0: now}, factor, RACKS, {}, only)


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
