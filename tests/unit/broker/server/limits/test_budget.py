"""The memory for requests is limited, granted in order, and no connection waits for ever."""

from barnabas.broker.server.limits.budget import (
    PARKED,
    PATIENCE,
    STANDING,
    RequestMemory,
    UnreadAnswers,
)


class Receiver:
    """A connection that receives a request."""

    def __init__(self, announced: int = 0) -> None:
        self.granted = 0
        self.receiving: int | None = 1
        self.announced = announced
        self.oldest: object | None = None
        self.aborted = False

    def memory_granted(self) -> None:
        self.granted += 1

    def abort(self) -> None:
        self.aborted = True


def test_memory_is_granted_to_the_smallest_request_first_and_in_order_to_equal_ones() -> None:
    memory, one = RequestMemory(100), Receiver()
    large, small, later = Receiver(500), Receiver(50), Receiver(50)
    assert memory.resize(one, 80)
    for each in (large, small, later):
        assert not memory.resize(each, 50)
    assert memory.used == 80
    memory.resize(one, 45)
    assert [each.granted for each in (large, small, later)] == [0, 1, 0]
    memory.resize(one, 0)
    assert [each.granted for each in (large, small, later)] == [0, 1, 1]
    memory.leave(small)
    assert large.granted == 1
    assert memory.used == 100


def test_request_above_limit_is_served_alone() -> None:
    memory, one, large = RequestMemory(100), Receiver(), Receiver()
    assert memory.resize(one, 1)
    assert not memory.resize(large, 500)
    memory.resize(one, 0)
    assert large.granted == 1
    assert not memory.resize(one, 1)


def test_closed_connection_does_not_wait_for_memory() -> None:
    memory, one, gone = RequestMemory(100), Receiver(), Receiver()
    memory.resize(one, 100)
    memory.resize(gone, 10)
    memory.leave(gone)
    memory.leave(one)
    assert gone.granted == 0
    assert memory.used == 0


def test_incomplete_requests_that_fill_the_limit_do_not_deadlock() -> None:
    memory, some = RequestMemory(100), [Receiver() for _ in range(4)]
    for one in some:
        assert memory.resize(one, 25)
    for one in some:
        assert not memory.resize(one, 80)
    assert [one.granted for one in some] == [1, 0, 0, 0], "one at a time exceeds the bound"
    assert not memory.resize(some[0], 100) or memory.used == 175
    memory.resize(some[0], 0)
    assert [one.granted for one in some] == [1, 1, 0, 0]


def test_requests_that_are_answered_do_not_exceed_the_limit_though_all_holders_wait() -> None:
    memory, busy, other = RequestMemory(100), Receiver(), Receiver()
    busy.oldest = object()
    assert memory.resize(busy, 90)
    assert not memory.resize(busy, 120)
    assert not memory.resize(other, 50)
    assert memory.used == 90
    assert memory.resize(busy, 40)
    assert other.granted == 1


def test_one_request_exceeds_the_limit_until_it_is_done() -> None:
    """Else each of many that stand would be given its first bytes beyond it."""
    memory, some = RequestMemory(100), [Receiver(1000 - n) for n in range(8)]
    assert memory.resize(some[0], 100)
    for each in some:
        memory.resize(each, 150)
    excess = memory.used
    for each in some:
        memory.resize(each, 200)
    assert memory.used <= excess + 50


def slow_and_others(limit: int, *others: Receiver) -> tuple[RequestMemory, Receiver]:
    """Return memory that `others` hold in equal parts, and a small request that waits for it."""
    memory, waiting = RequestMemory(limit), Receiver(limit // 4)
    for each in others:
        assert memory.resize(each, limit // len(others))
    for _ in range(2 * PARKED):
        assert memory.cut_slow() == 0, "no connection waits"
    assert not memory.resize(waiting, limit // 4)
    return memory, waiting


def rounds(memory: RequestMemory, number: int, **brought: Receiver) -> int:
    """Let rounds pass; `brought` are receivers that bring STANDING bytes in each."""
    cut = 0
    for _ in range(number):
        for each in brought.values():
            each.receiving = (each.receiving or 0) + STANDING
        cut += memory.cut_slow()
    return cut


def test_standing_peer_that_makes_others_wait_is_closed_after_a_second() -> None:
    standing, quick, answered = (Receiver(10) for _ in range(3))
    answered.oldest, answered.receiving = object(), None
    memory, waiting = slow_and_others(90, standing, quick, answered)
    assert rounds(memory, PATIENCE - 1, quick=quick) == 0
    assert rounds(memory, 1, quick=quick) == 1
    assert [each.aborted for each in (standing, quick, answered)] == [True, False, False]
    memory.leave(standing)
    assert waiting.granted == 1


def test_large_slow_request_makes_way_for_a_smaller_one_and_not_for_a_larger() -> None:
    limit = 100 * STANDING
    slow, pacing = Receiver(2 * limit), Receiver(2 * limit)
    memory, waiting = slow_and_others(limit, slow, pacing)
    waiting.announced = 4 * limit
    memory.resize(waiting, limit)
    assert rounds(memory, PATIENCE, slow=slow, pacing=pacing) == 0, "none stands"
    waiting.announced = limit // 4
    memory.resize(waiting, limit // 4)
    assert slow.receiving is not None
    for _ in range(8):
        pacing.receiving = (pacing.receiving or 0) + 7 * STANDING
        slow.receiving += STANDING
        if memory.cut_slow():
            break
    assert [slow.aborted, pacing.aborted] == [True, False]


def test_parked_request_that_makes_others_wait_is_closed_after_ten_seconds() -> None:
    parked, busy = Receiver(), Receiver()
    parked.receiving = busy.receiving = None
    parked.oldest = object()
    memory, _ = slow_and_others(100, parked, busy)
    for _ in range(PARKED):
        busy.oldest = object()
        assert memory.cut_slow() == 0
    busy.oldest = object()
    assert memory.cut_slow() == 1
    assert [parked.aborted, busy.aborted] == [True, False]


class Silent:
    """A connection whose peer does not read."""

    def __init__(self, active_at: float, unread: int) -> None:
        self.active_at = active_at
        self.unread = unread
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_unread_answers_that_stand_longest_are_dropped_beyond_the_limit() -> None:
    answers = UnreadAnswers(100)
    late, early, reading = Silent(2.0, 40), Silent(1.0, 40), Silent(0.0, 20)
    for each in (late, early, reading):
        answers.add(each)
    assert answers.total == 100
    reading.unread = 1
    newest = Silent(3.0, 50)
    answers.add(newest)
    assert [each.aborted for each in (late, early, reading, newest)] == [False, True, True, False]
    for each in (late, newest):
        answers.remove(each)
    assert answers.total == 0
