"""The judgement of answers while values change."""

import time

import pytest

from tests.chaos.judging import HOLDS_S, Judge, Timeline


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test sets."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def heard(judge: Judge, timeline: Timeline[int], asked: float, said: int, broker: int = 1) -> bool:
    """Return whether an answer passes."""
    before = judge.wrongs
    judge.hear(timeline, broker, asked, lambda value: value == said, str(said))
    return judge.wrongs == before


def changed(timeline: Timeline[int], value: int, clock: list[float], took: float) -> None:
    change = timeline.ask(value)
    clock[0] += took
    change.done = clock[0]


def test_old_value_passes_until_change_holds_and_new_value_from_its_request_on(
    clock: list[float],
) -> None:
    judge, timeline = Judge(), Timeline("t", 0)
    assert not heard(judge, timeline, 99, 1)
    change = timeline.ask(1)
    assert heard(judge, timeline, 99, 1)
    assert heard(judge, timeline, 99, 0)
    change.done = clock[0] = 105.0
    assert heard(judge, timeline, 105, 0)
    clock[0] = 107.0
    assert heard(judge, timeline, 105 + HOLDS_S, 0), "it was asked in time"
    assert not heard(judge, timeline, 106.1, 0)
    assert heard(judge, timeline, 106.1, 1)
    assert judge.judged == 3
    assert not heard(judge, timeline, 106.1, 2)


def test_unacknowledged_change_leaves_both_values_possible(clock: list[float]) -> None:
    judge, timeline = Judge(), Timeline("t", 0)
    timeline.ask(1)
    clock[0] += 1000
    assert heard(judge, timeline, clock[0], 0)
    assert heard(judge, timeline, clock[0], 1)
    assert not judge.judged


def test_value_from_before_the_store_was_away_stays_in_force(clock: list[float]) -> None:
    judge, timeline = Judge(), Timeline("t", 0)
    changed(timeline, 1, clock, 1)
    clock[0] += 10
    away = judge.away(1, 2)
    judge.faults = 1
    clock[0] += 10
    assert not heard(judge, timeline, clock[0], 0)
    assert heard(judge, timeline, clock[0], 1)
    assert judge.judged_in_faults == 2
    away.until = clock[0]


def test_change_holds_after_broker_reaches_the_store_again(clock: list[float]) -> None:
    judge, timeline = Judge(), Timeline("t", 0)
    away = judge.away(1)
    changed(timeline, 1, clock, 1)
    clock[0] += 10
    assert heard(judge, timeline, clock[0], 0)
    assert not heard(judge, timeline, clock[0], 0, broker=2)
    away.until = clock[0]
    clock[0] += HOLDS_S + 0.1
    assert not heard(judge, timeline, clock[0], 0)


def test_change_that_the_fault_overtakes_holds_after_it(clock: list[float]) -> None:
    judge, timeline = Judge(), Timeline("t", 0)
    changed(timeline, 1, clock, 1)
    clock[0] += HOLDS_S / 2
    away = judge.away(1)
    clock[0] += 10
    assert heard(judge, timeline, clock[0], 0)
    away.until = clock[0]
    clock[0] += HOLDS_S + 0.1
    assert not heard(judge, timeline, clock[0], 0)


def test_quick_changes_leave_each_value_its_time(clock: list[float]) -> None:
    judge, timeline = Judge(), Timeline("t", 0)
    changed(timeline, 1, clock, 0.1)
    changed(timeline, 2, clock, 0.1)
    for value in range(3):
        assert heard(judge, timeline, clock[0], value)
    assert timeline.value == 2
    assert timeline.previous == 1
    clock[0] += HOLDS_S + 0.1
    assert heard(judge, timeline, clock[0], 2)
    assert not heard(judge, timeline, clock[0], 1)
