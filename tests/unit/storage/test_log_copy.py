"""The copy of a log agrees with its original after any history of either."""

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import iter_headers
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_copy import (
    append_step,
    covers,
    divergence,
    follow_truncation,
    furthest,
)
from tests.unit.storage.log_bench import NOW, disk, load, put

EPOCHS = 5
Written = list[tuple[int, int]]
"""Leader epochs, and how many batches each wrote."""

histories = st.lists(st.tuples(st.integers(0, EPOCHS), st.integers(1, 4)), max_size=4).map(sorted)


def make(common: Written, own: Written, shift: int) -> Log:
    """Return a log with the common batches, followed by batches of its own epochs."""
    log = load(disk())
    first = common[-1][0] + 1 if common else 0
    for epoch, count in [*common, *((first + 2 * epoch + shift, count) for epoch, count in own)]:
        for _ in range(count):
            put(log, b"%d" % epoch * 30, epoch=epoch)
    return log


def batches(log: Log) -> list[tuple[int, int]]:
    found = log.read(log.log_start_offset, 1 << 30, limit=log.log_end_offset).read_bytes()
    return [(h.base_offset, h.partition_leader_epoch) for _, h in iter_headers(found)]


@settings(max_examples=60)
@given(histories, histories, histories, st.integers(0, 5))
def test_records_only_in_the_copy_are_truncated_and_the_rest_is_copied(
    common: Written, of_original: Written, of_copy: Written, deleted: int
) -> None:
    original, copy = make(common, of_original, 0), make(common, of_copy, 1)
    original.delete_records_before(min(deleted, original.high_watermark))
    for _ in range(2 * EPOCHS):
        if not follow_truncation(copy, original, now_ms=NOW):
            break
    assert divergence(copy, original) is None
    kept = batches(copy)
    assert set(kept) <= {*batches(original), *((o, e) for o, e in kept if o < deleted)}
    shared = sum(count for _, count in common)
    assert copy.log_end_offset >= min(shared, original.log_end_offset)
    found = original.read(copy.log_end_offset, 1 << 30, limit=original.log_end_offset)
    rest = memoryview(found.read_bytes())
    while rest:
        rest = rest[append_step(copy, rest, now_ms=NOW) :]
    assert [each for each in batches(copy) if each[0] >= original.log_start_offset] == batches(
        original
    )
    assert covers(original, copy)


@settings(max_examples=60)
@given(histories, histories, histories)
def test_log_that_was_written_last_is_used(
    common: Written, of_one: Written, of_other: Written
) -> None:
    one, other = make(common, of_one, 0), make(common, of_other, 1)
    newer, older = furthest(one, other)
    last = max([*of_one, (-1, 0)])[0] * 2, max([*of_other, (-1, 0)])[0] * 2 + 1
    if of_one or of_other:
        assert (newer is one) == (bool(of_one) and (not of_other or last[0] > last[1]))
    assert covers(newer, older) == (not (of_one if older is one else of_other))


def test_copy_drops_only_the_epoch_that_the_original_lost() -> None:
    original, copy = make([(0, 6)], [], 0), make([(0, 6)], [(1, 3)], 0)
    assert divergence(copy, original) == 6
    assert follow_truncation(copy, original, now_ms=NOW)
    assert (copy.log_start_offset, copy.log_end_offset) == (0, 6)


def test_copy_that_ends_before_the_originals_start_starts_again() -> None:
    original, copy = make([(0, 9)], [], 0), make([(0, 3)], [], 0)
    original.delete_records_before(5)
    assert follow_truncation(copy, original, now_ms=NOW)
    assert (copy.log_start_offset, copy.log_end_offset) == (5, 5)
