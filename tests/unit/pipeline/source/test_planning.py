"""The end of a batch and the ranges of its tasks, for any offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipeline.source.planning import (
    Delay,
    Range,
    available,
    check_partitions,
    clamp,
    limit,
    plan,
    split,
)
from barnabas.protocol.topic_partition import TopicPartition

A, B, C = (TopicPartition("t", index) for index in range(3))
MANY = [TopicPartition("t", index) for index in range(6)]

spans = st.tuples(st.integers(0, 2**62), st.integers(0, 5_000))
logs = st.dictionaries(st.sampled_from(MANY), spans, max_size=6)
counts = st.none() | st.integers(1, 60)


def ranges_of(log: dict[TopicPartition, tuple[int, int]]) -> list[Range]:
    return [Range(partition, first, first + size) for partition, (first, size) in log.items()]


@given(logs, counts, st.none() | st.integers(20, 6_000))
def test_pieces_cover_each_range_exactly(log, min_partitions, max_records):
    ranges = ranges_of(log)
    pieces = split(ranges, min_partitions, max_records)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        position = whole.start
        for piece in mine:
            assert piece.start == position
            assert piece.size > 0
            position = piece.end
        assert position == whole.end
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)


@given(logs, st.integers(1, 60))
def test_about_as_many_pieces_as_wanted(log, min_partitions):
    ranges = [each for each in ranges_of(log) if each.size > 0]
    pieces = split(ranges, min_partitions, None)
    total = sum(each.size for each in ranges)
    # Each range is rounded by half a piece at most, and no piece is smaller than one offset.
    assert len(pieces) >= min(min_partitions, total) - len(ranges)
    assert len(pieces) <= max(min_partitions, len(ranges)) + len(ranges)
    if len(ranges) >= min_partitions:
        assert pieces == ranges


def test_a_large_partition_is_cut_and_small_ones_are_not():
    pieces = split([Range(A, 0, 100), Range(B, 0, 1), Range(C, 5, 5)], 5, None)
    assert pieces == [*(Range(A, at, at + 25) for at in (0, 25, 50, 75)), Range(B, 0, 1)]


def test_max_records_cuts_before_min_partitions():
    assert len(split([Range(A, 0, 100)], 2, 30)) == 4
    assert len(split([Range(A, 0, 100)], 10, 30)) >= 8


@given(logs, st.integers(1, 20_000), st.sets(st.sampled_from(MANY)))
def test_a_limited_end_is_within_the_log_and_always_moves(log, most, new):
    latest = {partition: first + size for partition, (first, size) in log.items()}
    begin = {partition: first for partition, (first, _) in log.items()}
    start = {each: offset for each, offset in begin.items() if each not in new}
    end = limit(start, latest, begin, most)
    assert end.keys() == latest.keys()
    taken = {each: end[each] - begin[each] for each in end}
    assert all(0 <= taken[each] <= log[each][1] for each in taken)
    assert all(taken[each] > 0 for each in taken if log[each][1] > 0)
    assert sum(taken.values()) <= most + len(MANY)
    if available(start, latest, begin) <= most:
        assert end == latest


@given(logs, st.integers(1, 20_000))
def test_limited_batches_reach_the_end(log, most):
    latest = {partition: first + size for partition, (first, size) in log.items()}
    position = {partition: first for partition, (first, _) in log.items()}
    for _ in range(sum(size for _, size in log.values()) + 1):
        if position == latest:
            break
        position = limit(position, latest, {}, most)
    assert position == latest


def test_offsets_are_shared_by_what_is_left():
    end = limit({A: 0, B: 0, C: 7}, {A: 900, B: 100, C: 7}, {}, 100)
    assert end == {A: 90, B: 10, C: 7}


def test_a_small_partition_is_not_starved():
    assert limit({A: 0, B: 0}, {A: 10_000, B: 1}, {}, 10) == {A: 9, B: 1}


def test_a_partition_that_moved_back_takes_nothing_from_the_limit():
    assert limit({A: 50, B: 0}, {A: 10, B: 100}, {}, 10) == {A: 10, B: 10}


def test_a_plan_has_one_range_for_each_partition_with_offsets():
    found = plan({A: 5, B: 7}, {A: 9, B: 7}, {})
    assert found.ranges == [Range(A, 5, 9)]
    assert found.losses == []


def test_a_new_partition_begins_at_its_first_offset():
    found = plan({A: 5}, {A: 5, B: 3}, {B: 0})
    assert (found.ranges, found.losses) == ([Range(B, 0, 3)], [])


@pytest.mark.parametrize(
    ("start", "end", "earliest", "ranges", "text"),
    [
        ({A: 5, B: 1}, {A: 6}, {}, [Range(A, 5, 6)], "t-1: the partitions are gone"),
        ({A: 5}, {A: 3}, {}, [], "t-0: the end moved back, from 5 to 3"),
        ({}, {A: 9}, {A: 4}, [Range(A, 4, 9)], "t-0: the new partition starts at offset 4"),
        ({}, {A: 9}, {}, [], "t-0: the new partition is gone"),
    ],
)
def test_losses_are_told(start, end, earliest, ranges, text):
    found = plan(start, end, earliest)
    assert found.ranges == ranges
    assert found.losses == [text]


def test_a_trigger_waits_for_enough_offsets_but_not_for_ever():
    delay = Delay(60)
    assert not delay.must_wait(0, 10, 1_000), "the first trigger of a process runs at once"
    assert delay.must_wait(9, 10, 1_059)
    assert not delay.must_wait(9, 10, 1_060)
    assert delay.must_wait(9, 10, 1_061)
    assert not delay.must_wait(10, 10, 1_062)
    assert delay.must_wait(9, 10, 1_100)


def test_options_name_exactly_the_partitions_that_are_read():
    check_partitions("startingOffsets", [A, B], [B, A])
    with pytest.raises(ValueError, match="startingOffsets names t-2, which the query does not"):
        check_partitions("startingOffsets", [A, B, C], [A, B])
    with pytest.raises(ValueError, match="startingOffsets lacks t-1: add them"):
        check_partitions("startingOffsets", [A], [A, B])


def test_offsets_that_the_log_does_not_have_are_told():
    found, losses = clamp(
        "startingOffsets", {A: 3, B: 5, C: 9}, {A: 4, B: 4, C: 4}, {A: 8, B: 8, C: 8}
    )
    assert found == {A: 4, B: 5, C: 8}
    assert losses == [
        "t-0: startingOffsets is 3, the log has 4 to 8",
        "t-2: startingOffsets is 9, the log has 4 to 8",
    ]
