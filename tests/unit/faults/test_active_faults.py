"""The faults that a starting broker has from the beginning."""

from barnabas.faults.active_faults import ActiveFaults, NodeCall

CUT = NodeCall("cut", {"ports": [1], "sending": True, "receiving": True})
PULL = NodeCall("add_lever", {"number": 7, "api": 26, "hold": True})


def test_a_cut_holds_for_its_broker_until_all_is_healed() -> None:
    faults = ActiveFaults()
    for _ in range(2):
        faults.add_cut(1, CUT)
    assert (faults.calls_before_start(1), faults.calls_before_start(2)) == ([CUT], [])
    faults.remove_cuts()
    assert faults.calls_before_start(1) == []


def test_a_lever_holds_for_its_brokers_until_it_is_taken_away() -> None:
    faults = ActiveFaults()
    faults.add_lever(7, [1, 2], PULL)
    faults.remove_cuts()
    assert (faults.calls_before_start(2), faults.calls_before_start(3)) == ([PULL], [])
    assert faults.brokers_with_lever(7) == [1, 2]
    for _ in range(2):
        faults.remove_lever(7)
    assert faults.calls_before_start(2) == []
    assert faults.brokers_with_lever(7) == []


def test_jumps_of_the_clock_add_up() -> None:
    faults = ActiveFaults()
    for _ in range(2):
        faults.advance_clock(30.5)
    assert faults.calls_before_start(3) == [NodeCall("jump", {"seconds": 61.0})]
