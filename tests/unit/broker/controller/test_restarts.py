"""The leaders after brokers ended without a clean shutdown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.cluster.znodes import LeaderAndIsr, Restart
from barnabas.broker.controller.rules.leader_election import (
    CLEAN_ONLY,
    ElectionInputs,
    ElectionPolicy,
    decide,
)
from barnabas.broker.controller.rules.preferred_leaders import elect_preferred
from barnabas.protocol.errors import ErrorCode, KafkaError

CLEAN, KILLED, REBOOTED, EMPTY = Restart
EPOCH = 7


def state(leader: int, *isr: int, doubtful: tuple[int, ...] = ()) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 3, isr, 1, doubtful=doubtful)


def after(
    before: LeaderAndIsr,
    restarted: dict[int, Restart],
    *,
    online: set[int],
    replicas: tuple[int, ...] = (1, 2, 3),
    policy: ElectionPolicy = CLEAN_ONLY,
) -> LeaderAndIsr:
    election_inputs = ElectionInputs(online, (), restarted, policy)
    return decide(replicas, before, election_inputs, EPOCH) or before


@pytest.mark.parametrize("how", [KILLED, REBOOTED, EMPTY])
def test_crashed_follower_leaves_the_isr_and_the_leader_stays(how: Restart) -> None:
    decided = after(state(1, 1, 2, 3), {2: how}, online={1, 2, 3})
    assert (decided.leader, decided.leader_epoch, decided.isr) == (1, 3, (1, 3))


def test_crashed_leader_does_not_lead_if_another_replica_is_in_sync() -> None:
    decided = after(state(1, 1, 2, 3), {1: KILLED}, online={1, 2, 3})
    assert (decided.leader, decided.leader_epoch, decided.isr) == (2, 4, (2, 3))


def test_crashed_leader_waits_for_an_in_sync_replica_that_is_down() -> None:
    decided = after(state(1, 1, 2), {1: KILLED}, online={1})
    assert (decided.leader, decided.isr) == (-1, (2,))


def test_cleanly_restarted_leader_leads_again_in_a_new_epoch() -> None:
    decided = after(state(1, 1, 2), {1: CLEAN}, online={1, 2})
    assert (decided.leader, decided.leader_epoch, decided.isr) == (1, 4, (1, 2))


def test_sole_replica_that_was_closed_cleanly_leads_on_in_its_epoch() -> None:
    sole = ElectionInputs({1}, (), {1: CLEAN}, keeps_epoch=True)
    assert decide((1,), state(1, 1), sole, EPOCH) is None
    for how in (KILLED, REBOOTED, EMPTY):
        decided = decide((1,), state(1, 1), sole._replace(restarted={1: how}), EPOCH)
        assert decided == LeaderAndIsr(1, 4, (1,), EPOCH)
    # It may have served nothing since a controller took its leadership away.
    assert decide((1,), state(-1, 1), sole, EPOCH) == LeaderAndIsr(1, 4, (1,), EPOCH)


def test_log_of_a_coordinator_gets_a_new_epoch_with_each_run() -> None:
    """Markers and replies of the earlier run are fenced by it."""
    sole = ElectionInputs({1}, (), {1: CLEAN})
    assert decide((1,), state(1, 1), sole, EPOCH) == LeaderAndIsr(1, 4, (1,), EPOCH)
    assert decide((1,), state(1, 1), sole._replace(restarted={}), EPOCH) is None


@pytest.mark.parametrize("replicas", [(1, 2), (2, 1)])
def test_sole_in_sync_replica_of_several_gets_a_new_epoch(replicas: tuple[int, ...]) -> None:
    """The other one may have fetched in this epoch."""
    now = ElectionInputs({1}, (), {1: CLEAN}, keeps_epoch=True)
    decided = decide(replicas, state(1, 1), now, EPOCH)
    assert decided == LeaderAndIsr(1, 4, (1,), EPOCH)


def test_cleanly_restarted_leader_leads_again_although_another_is_preferred() -> None:
    """The preferred replica may be online only because it is expected back."""
    decided = after(state(2, 1, 2), {2: CLEAN}, online={1, 2})
    assert (decided.leader, decided.leader_epoch, decided.isr) == (2, 4, (1, 2))


def test_expected_broker_gets_no_leadership() -> None:
    expected = ElectionInputs({1, 2, 3}, missing={1})
    crashed = expected._replace(restarted={2: KILLED})
    decided = decide((1, 2, 3), state(2, 1, 2, 3), crashed, EPOCH)
    assert decided is not None
    assert (decided.leader, decided.isr) == (3, (1, 3))
    decided = decide((1, 2, 3), None, expected, EPOCH)
    assert decided is not None
    assert (decided.leader, decided.isr) == (2, (2, 3))
    assert decide((1,), None, expected, EPOCH) is None
    at_any_price = expected._replace(policy=ElectionPolicy(unclean=True))
    decided = decide((1, 2), state(-1, 1, doubtful=(1,)), at_any_price, EPOCH)
    assert decided is not None
    assert (decided.leader, decided.isr) == (2, (2,))
    with pytest.raises(KafkaError) as caught:
        elect_preferred((1, 2), state(2, 1, 2), expected, EPOCH)
    assert caught.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_expected_broker_keeps_its_leaderships() -> None:
    assert decide((1, 2), state(1, 1, 2), ElectionInputs({1, 2}, missing={1}), EPOCH) is None


def test_stopping_broker_gives_no_leadership_to_an_expected_one() -> None:
    leaving = ElectionInputs({1, 2}, {2}, missing={1})
    assert decide((1, 2), state(2, 1, 2), leaving, EPOCH) is None


def test_last_killed_replica_leads_again() -> None:
    decided = after(state(-1, 2), {2: KILLED}, online={2})
    assert (decided.leader, decided.isr) == (2, (2,))


def test_last_rebooted_replica_leads_only_if_it_flushed_first() -> None:
    """All replicas may have lost acknowledged records (KIP-966)."""
    decided = after(state(-1, 2), {2: REBOOTED}, online={1, 2, 3})
    assert (decided.leader, decided.isr, decided.doubtful) == (-1, (2,), (2,))
    # The same holds later, when the restart is no longer known.
    assert after(decided, {}, online={1, 2, 3}) == decided
    assert after(decided, {2: CLEAN}, online={1, 2, 3}) == decided
    flushing = ElectionPolicy(flushes_first=True)
    assert after(state(-1, 2), {2: REBOOTED}, online={2}, policy=flushing).leader == 2


def test_replica_with_a_lost_disk_does_not_lead_by_flushing_first() -> None:
    flushing = ElectionPolicy(flushes_first=True)
    decided = after(state(-1, 2), {2: EMPTY}, online={1, 2, 3}, policy=flushing)
    assert (decided.leader, decided.isr, decided.doubtful) == (-1, (2,), (2,))


def test_unclean_election_prefers_the_last_isr() -> None:
    decided = after(
        state(-1, 2, doubtful=(2,)), {}, online={1, 2, 3}, policy=ElectionPolicy(unclean=True)
    )
    assert (decided.leader, decided.isr, decided.doubtful) == (2, (2,), ())


def test_sole_replica_always_leads_again() -> None:
    decided = after(state(-1, 1), {1: REBOOTED}, online={1}, replicas=(1,))
    assert (decided.leader, decided.doubtful) == (1, ())


def test_best_of_all_crashed_replicas_stays() -> None:
    everyone = {1: REBOOTED, 2: KILLED, 3: REBOOTED}
    decided = after(state(1, 1, 2, 3), everyone, online={1, 2, 3})
    assert (decided.leader, decided.isr) == (2, (2,))
    killed = dict.fromkeys((1, 2, 3), KILLED)
    assert after(state(3, 1, 2, 3), killed, online={1, 2, 3}).isr == (3,)
    disks = {1: EMPTY, 2: EMPTY, 3: REBOOTED}
    assert after(state(1, 1, 2, 3), disks, online={1, 2, 3}).doubtful == (3,)


def test_stopping_broker_gives_its_leaderships_away() -> None:
    leaving = ElectionInputs({1, 2, 3}, {1}, {}, ElectionPolicy())
    decided = decide((1, 2, 3), state(1, 1, 2, 3), leaving, EPOCH)
    assert decided is not None
    assert (decided.leader, decided.leader_epoch, decided.isr) == (2, 4, (2, 3))
    # A follower only leaves the ISR.
    decided = decide((1, 2, 3), state(2, 1, 2, 3), leaving, EPOCH)
    assert decided is not None
    assert (decided.leader, decided.leader_epoch, decided.isr) == (2, 3, (2, 3))


def test_stopping_broker_keeps_leaderships_without_another_candidate() -> None:
    leaving = ElectionInputs({1, 2, 3}, {1}, {}, ElectionPolicy())
    assert decide((1, 2, 3), state(1, 1), leaving, EPOCH) is None
    everyone = ElectionInputs({1, 2, 3}, {1, 2, 3}, {}, ElectionPolicy())
    assert decide((1, 2, 3), state(1, 1, 2, 3), everyone, EPOCH) is None


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], LeaderAndIsr, ElectionInputs]:
    replicas = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    doubtful = isr if len(isr) == 1 and len(replicas) > 1 and draw(st.booleans()) else ()
    leader = -1 if doubtful else draw(st.sampled_from((*isr, -1)))
    online = draw(st.sets(st.sampled_from(replicas)))
    election_inputs = ElectionInputs(
        online,
        draw(st.sets(st.sampled_from(replicas))),
        draw(st.dictionaries(st.sampled_from(replicas), st.sampled_from(Restart))),
        draw(st.builds(ElectionPolicy, st.booleans(), st.booleans())),
        keeps_epoch=draw(st.booleans()),
    )
    return replicas, LeaderAndIsr(leader, 3, isr, 1, doubtful=doubtful), election_inputs


@given(cases())
def test_no_restart_breaks_an_invariant(
    case: tuple[tuple[int, ...], LeaderAndIsr, ElectionInputs],
) -> None:
    replicas, before, now = case
    decided = decide(replicas, before, now, EPOCH)
    if decided is None:
        return
    assert decided != before
    assert decided.isr
    assert set(decided.isr) <= set(replicas)
    assert decided.leader_epoch - before.leader_epoch in (0, 1)
    crashed = {each for each, how in now.restarted.items() if how is not CLEAN}
    if decided.leader_epoch == before.leader_epoch:
        assert decided.leader == before.leader
        keeps = now.keeps_epoch and len(replicas) == 1
        assert decided.leader not in now.restarted or decided.leader == -1 or keeps
        assert decided.leader not in crashed
    if decided.leader == -1:
        assert not now.policy.unclean or not now.online
        return
    assert decided.leader in decided.isr
    assert set(decided.isr) <= now.online
    clean = decided.leader in before.isr and decided.leader not in before.doubtful
    if decided.leader in crashed & set(before.isr):
        kept = {KILLED, REBOOTED} if now.policy.flushes_first else {KILLED}
        clean &= set(before.isr) <= crashed
        clean &= now.restarted[decided.leader] in kept or len(replicas) == 1
    assert clean or now.policy.unclean
    if len(decided.isr) > 1:
        assert not crashed & set(decided.isr)
