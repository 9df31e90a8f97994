"""Room for requests: bounded, first come first served, and nobody is refused for ever."""

from barnabas.broker.server.budget import RequestMemory


def test_room_is_given_in_order_as_it_comes_back() -> None:
    memory, granted = RequestMemory(100), []
    assert memory.acquire(80, lambda: granted.append("first"))
    assert not memory.acquire(50, lambda: granted.append("second"))
    assert not memory.acquire(10, lambda: granted.append("third"))
    assert memory.used == 80
    memory.release(80)
    assert granted == ["second", "third"]
    assert memory.used == 60


def test_a_request_above_the_bound_is_served_alone() -> None:
    memory, granted = RequestMemory(100), []
    assert memory.acquire(1, granted.clear)
    assert not memory.acquire(500, lambda: granted.append("large"))
    memory.release(1)
    assert granted == ["large"]
    assert not memory.acquire(1, granted.clear)


def test_who_leaves_waits_no_more() -> None:
    memory, granted = RequestMemory(100), []

    def wanted() -> None:
        granted.append("gone")

    memory.acquire(100, granted.clear)
    memory.acquire(10, wanted)
    memory.abandon(wanted)
    memory.release(100)
    assert granted == []
    assert memory.used == 0
