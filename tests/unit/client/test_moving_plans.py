"""Plans that drain a broker, give it leaders back, and balance a cluster."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.balance_plan import loads, plan_balance
from barnabas.client.drain_plan import (
    leaders_away,
    leaders_back,
    losses,
    replicas_away,
)
from barnabas.client.reassignment_plan import Placement, Placements, Plan
from barnabas.protocol.topic_partition import TopicPartition

RACKS: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
BROKER = 1


@st.composite
def placements(draw: st.DrawFn) -> dict[TopicPartition, Placement]:
    found = {}
    for index in range(draw(st.integers(0, 8))):
        replicas = draw(st.lists(st.sampled_from(list(RACKS)), min_size=1, unique=True))
        in_sync = draw(st.sets(st.sampled_from(replicas)))
        leader = draw(st.sampled_from([-1, *in_sync]))
        found[TopicPartition("t", index)] = Placement(tuple(replicas), frozenset(in_sync), leader)
    return found


def after(current: Placements, plan: Plan) -> dict[TopicPartition, Placement]:
    """Return the placements after a plan with all replicas in sync again, led by the first."""
    return {
        key: Placement(ids := plan.get(key, placed.replicas), frozenset(ids), ids[0])
        for key, placed in current.items()
    }


@given(placements())
def test_drained_broker_leads_nothing_that_another_could_lead(
    current: dict[TopicPartition, Placement],
) -> None:
    plan = leaders_away(current, BROKER)
    for key, placed in current.items():
        replicas = plan.get(key, placed.replicas)
        assert sorted(replicas) == sorted(placed.replicas)
        able = placed.in_sync - {BROKER}
        if key in plan:
            assert replicas[0] in able
            assert replicas[-1] == BROKER
        else:
            assert not able or BROKER not in (placed.leader, placed.replicas[0])
    done = {
        key: each._replace(in_sync=current[key].in_sync)
        for key, each in after(current, plan).items()
    }
    assert {key for key, each in leaders_away(done, BROKER).items() if key in plan} == set()


@given(placements())
def test_replicas_leave_a_broker_wherever_another_has_none_yet(
    current: dict[TopicPartition, Placement],
) -> None:
    plan = replicas_away(current, BROKER, RACKS)
    for key, placed in current.items():
        nowhere = len(placed.replicas) == len(RACKS) or placed.leader not in RACKS
        if BROKER not in placed.replicas or nowhere:
            assert key not in plan
        else:
            replicas = plan[key]
            assert len(set(replicas)) == len(placed.replicas)
            assert BROKER not in replicas
            kept = set(placed.replicas) - {BROKER}
            assert kept <= set(replicas)
            racks = Counter(RACKS[each] for each in kept)
            (added,) = set(replicas) - kept
            free = {RACKS[each] for each in RACKS.keys() - kept - {BROKER}}
            assert racks[RACKS[added]] == min(racks[each] for each in free)
    assert replicas_away(after(current, plan), BROKER, RACKS).keys().isdisjoint(plan)


@given(placements())
def test_losses_are_the_partitions_that_would_refuse_a_write(
    current: dict[TopicPartition, Placement],
) -> None:
    found = {each.partition for each in losses(current, BROKER, {"t": 2})}
    for key, placed in current.items():
        left = placed.in_sync - {BROKER}
        refuses = len(left) < min(2, len(placed.replicas))
        assert (key in found) == (BROKER in placed.in_sync and refuses)


@given(placements())
def test_broker_gets_its_share_back_and_no_more(
    current: dict[TopicPartition, Placement],
) -> None:
    drained = after(current, leaders_away(after(current, {}), BROKER))
    done = after(drained, plan := leaders_back(drained, BROKER))
    assert all(sorted(plan[key]) == sorted(drained[key].replicas) for key in plan)
    here = [placed for placed in drained.values() if BROKER in placed.replicas]
    share = round(sum(1 / len(placed.replicas) for placed in here))
    alone = sum(len(placed.replicas) == 1 for placed in here)
    led = Counter(placed.replicas[0] for placed in done.values())
    assert led[BROKER] <= max(share, alone)
    if led[BROKER] < share:
        others = {placed.replicas[0] for placed in here} - {BROKER}
        assert all(led[each] <= led[BROKER] + 1 for each in others)
    assert leaders_back(done, BROKER) == {}


@given(placements(), st.lists(st.integers(0, 1000), min_size=8, max_size=8))
def test_balance_takes_from_the_fullest_and_keeps_factors_and_racks(
    current: dict[TopicPartition, Placement], sizes: list[int]
) -> None:
    of = {key: sizes[key.partition] for key in current}
    plan = plan_balance(current, of, RACKS)
    for key, replicas in plan.items():
        before = current[key].replicas
        assert len(set(replicas)) == len(replicas) == len(before)
        assert len({RACKS[each] for each in replicas}) >= len({RACKS[each] for each in before})
    assert plan_balance(after(current, plan), of, RACKS) == {}

    def extremes(replicas: Plan) -> tuple[float, int]:
        found = loads(replicas, of, RACKS).values()
        count = sum(each.replicas for each in found)
        mean = sum(each.size_bytes for each in found) / count if count else 0
        weights = [each.size_bytes + each.replicas * (mean or 1) for each in found]
        return max(weights), max(each.leaders for each in found)

    now = {key: placed.replicas for key, placed in current.items()}
    assert extremes(now | plan)[0] <= extremes(now)[0] * (1 + 1e-9)


def test_balance_fills_a_new_broker() -> None:
    current = {
        TopicPartition("t", index): Placement((1 + index % 2,), frozenset([1 + index % 2]), 1)
        for index in range(30)
    }
    racks = dict.fromkeys((1, 2, 3), None)
    now = {key: placed.replicas for key, placed in current.items()}
    found = loads(now | plan_balance(current, dict.fromkeys(current, 100), racks), {}, racks)
    assert {each.replicas for each in found.values()} == {10}
    assert {each.leaders for each in found.values()} == {10}
