"""What a broker of a cluster that starts has from the beginning."""

from barnabas.testing.standing import Call, Standing

CUT = Call("cut", {"ports": [1], "sending": True, "receiving": True})
PULL = Call("pull", {"number": 7, "api": 26, "hold": True})


def test_a_cut_holds_for_its_broker_until_all_is_healed() -> None:
    standing = Standing()
    for _ in range(2):
        standing.cut(1, CUT)
    assert (standing.of(1), standing.of(2)) == ([CUT], [])
    standing.heal()
    assert standing.of(1) == []


def test_a_lever_holds_for_its_brokers_until_it_is_taken_away() -> None:
    standing = Standing()
    standing.pull(7, [1, 2], PULL)
    standing.heal()
    assert (standing.of(2), standing.of(3)) == ([PULL], [])
    assert standing.brokers_with(7) == [1, 2]
    for _ in range(2):
        standing.remove(7)
    assert standing.of(2) == []
    assert standing.brokers_with(7) == []


def test_jumps_of_the_clock_add_up() -> None:
    standing = Standing()
    for _ in range(2):
        standing.jump(30.5)
    assert standing.of(3) == [Call("jump", {"seconds": 61.0})]
