"""The replica placement of new partitions: spread over brokers, and over racks first."""

from collections import Counter
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.controller.rules import placement
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.steps import all_taken

SEEDS = st.integers(0, 1000)
RACKS = st.dictionaries(
    st.integers(1, 9), st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=9
)


def place(*given: Any, first: int = 0) -> dict[int, tuple[int, ...]]:
    placed: dict[int, tuple[int, ...]] = all_taken(placement.place(*given, first=first))
    return placed


@given(racks=RACKS, count=st.integers(1, 30), first=st.integers(0, 20), seed=SEEDS, data=st.data())
def test_every_placement_obeys_the_rules(
    racks: dict[int, str | None], count: int, first: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(racks, count, factor, Random(seed), first=first)
    assert list(placed) == list(range(first, first + count))
    for replicas in placed.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(racks)
    led = Counter(replicas[0] for replicas in placed.values())
    assert max(led[each] for each in racks) - min(led[each] for each in racks) <= 1


@given(racks=RACKS, count=st.integers(1, 30), seed=SEEDS, data=st.data())
def test_racks_differ_by_one_replica_at_most_where_possible(
    racks: dict[int, str | None], count: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    sizes = Counter(racks.values())
    for replicas in place(racks, count, factor, Random(seed)).values():
        used = Counter(racks[each] for each in replicas)
        for one, other in combinations(sizes, 2):
            fewer, more = sorted((one, other), key=lambda rack: used[rack])
            assert used[more] - used[fewer] <= 1 or used[fewer] == sizes[fewer]


@given(
    names=st.sampled_from([(None,), ("a",), ("a", "b"), ("a", "b", "c"), (None, "a", "b")]),
    size=st.integers(1, 3),
    rounds=st.integers(1, 3),
    seed=SEEDS,
    data=st.data(),
)
def test_racks_of_one_size_share_whole_rounds_evenly(
    names: tuple[str | None, ...], size: int, rounds: int, seed: int, data: st.DataObject
) -> None:
    racks = {
        len(names) * index + at: name for index in range(size) for at, name in enumerate(names)
    }
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(racks, rounds * len(racks), factor, Random(seed))
    stored = Counter(each for replicas in placed.values() for each in replicas)
    assert set(stored.values()) == {rounds * factor}


def test_second_round_has_other_neighbours() -> None:
    """Otherwise the failure of one broker would always double the load of the same other one."""
    placed = place(dict.fromkeys(range(5)), 10, 2, Random(1))
    pairs = {tuple(replicas) for replicas in placed.values()}
    assert len(pairs) == 10


def test_brokers_without_a_rack_form_one_rack() -> None:
    racks = {1: "a", 2: "b", 3: None, 4: None}
    for replicas in place(racks, 20, 3, Random(1)).values():
        assert len({racks[each] for each in replicas}) == 3


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        place({1: None, 2: None}, 1, 3, Random(1))
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_placement_continues_at_the_given_first_partition() -> None:
    grown = place(dict.fromkeys(range(3)), 2, 1, Random(1), first=4)
    assert list(grown) == [4, 5]
