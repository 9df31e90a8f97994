"""The high watermark: never back, never past an in-sync replica, never below min.insync."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replication.isr import committed_end, effective_min_isr

OFFSETS = st.integers(0, 1000)
COUNTS = st.integers(1, 5)


@given(current=OFFSETS, end=OFFSETS, in_sync=COUNTS, min_isr=COUNTS)
def test_the_high_watermark_obeys_its_three_rules(
    current: int, end: int, in_sync: int, min_isr: int
) -> None:
    moved = committed_end(current, end, in_sync, min_isr)
    assert moved >= current
    if moved > current:
        assert in_sync >= min_isr
        assert moved == end


def test_a_set_that_is_too_small_commits_nothing() -> None:
    assert committed_end(5, 9, 1, 2) == 5
    assert committed_end(5, 7, 2, 2) == 7


def test_min_insync_is_capped_by_the_number_of_replicas() -> None:
    assert effective_min_isr(2, 1) == 1
    assert effective_min_isr(2, 3) == 2
