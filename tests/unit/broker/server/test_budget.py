"""Room for requests: bounded, first come first served, and nobody waits for ever."""

from barnabas.broker.server.budget import LEAST_PER_ROUND, RequestMemory


class Receiver:
    """Somebody who receives a request."""

    def __init__(self) -> None:
        self.granted = 0
        self.receiving: int | None = 0
        self.aborted = False

    def memory_granted(self) -> None:
        self.granted += 1

    def abort(self) -> None:
        self.aborted = True


def test_room_is_given_in_order_as_it_comes_back() -> None:
    memory, one, two, three = RequestMemory(100), Receiver(), Receiver(), Receiver()
    assert memory.resize(one, 80)
    assert not memory.resize(two, 50)
    assert not memory.resize(three, 10)
    assert memory.used == 80
    memory.resize(one, 45)
    assert [two.granted, three.granted] == [1, 0]
    memory.resize(one, 0)
    assert [two.granted, three.granted] == [1, 1]
    assert memory.used == 60


def test_a_request_above_the_bound_is_served_alone() -> None:
    memory, one, large = RequestMemory(100), Receiver(), Receiver()
    assert memory.resize(one, 1)
    assert not memory.resize(large, 500)
    memory.resize(one, 0)
    assert large.granted == 1
    assert not memory.resize(one, 1)


def test_who_leaves_waits_no_more() -> None:
    memory, one, gone = RequestMemory(100), Receiver(), Receiver()
    memory.resize(one, 100)
    memory.resize(gone, 10)
    memory.leave(gone)
    memory.leave(one)
    assert gone.granted == 0
    assert memory.used == 0


def test_half_received_requests_that_fill_the_bound_do_not_wait_for_each_other() -> None:
    memory, some = RequestMemory(100), [Receiver() for _ in range(4)]
    for one in some:
        assert memory.resize(one, 25)
    for one in some:
        assert not memory.resize(one, 80)
    assert [one.granted for one in some] == [1, 0, 0, 0], "one at a time exceeds the bound"
    assert not memory.resize(some[0], 100) or memory.used == 175
    memory.resize(some[0], 0)
    assert [one.granted for one in some] == [1, 1, 0, 0]


def test_who_makes_others_wait_and_brings_little_is_cut() -> None:
    memory, slow, quick, served, other = (
        RequestMemory(100),
        *(Receiver() for _ in range(4)),
    )
    served.receiving = None
    for one in (slow, quick, served):
        memory.resize(one, 30)
    assert memory.cut_slow() == 0, "nobody waits"
    assert not memory.resize(other, 30)
    assert memory.cut_slow() == 0, "a whole round is everybody's"
    slow.receiving, quick.receiving = LEAST_PER_ROUND - 1, LEAST_PER_ROUND
    assert memory.cut_slow() == 1
    assert [one.aborted for one in (slow, quick, served, other)] == [True, False, False, False]
