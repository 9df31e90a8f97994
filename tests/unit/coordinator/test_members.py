"""Members of a group: assignments, sessions, leaving, and static members that come back."""

import asyncio

import pytest

from barnabas.coordinator.decision import IllegalTransition
from barnabas.coordinator.group.states import TRANSITIONS, GroupState, check_transition
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.harness import Groups, code_of, subscription


@pytest.fixture
async def groups() -> Groups:
    return await Groups().load()


async def error_of(answer: asyncio.Future[object]) -> str:
    with pytest.raises(KafkaError) as refused:
        await answer
    return refused.value.code.name


# -- syncing -----------------------------------------------------------------------------------


async def test_each_member_gets_assignment_of_leader(groups: Groups) -> None:
    leader, follower = groups.join(), groups.join()
    groups.time.pass_ms(6_000)
    one, two = (await leader).member_id, (await follower).member_id
    waiting = groups.sync(two, 1)
    assert not waiting.done()
    assert groups.sync(one, 1, client_1="for one", client_2="for two").assignment == b"for one"
    assert (await waiting).assignment == b"for two"
    assert groups.sync(two, 1).assignment == b"for two"


async def test_member_without_assignment_gets_empty_one(groups: Groups) -> None:
    leader, follower = groups.join(), groups.join()
    groups.time.pass_ms(6_000)
    waiting = groups.sync((await follower).member_id, 1)
    groups.sync((await leader).member_id, 1, client_1="all")
    assert (await waiting).assignment == b""


async def test_assignments_wait_until_they_are_committed(groups: Groups) -> None:
    first = groups.join()
    groups.time.pass_ms(3_000)
    member_id = (await first).member_id
    groups.log.held = True
    waiting = groups.sync(member_id, 1, client_1="a")
    assert not waiting.done()
    assert groups.state == "CompletingRebalance"
    assert groups.heartbeat(member_id, 1) == ErrorCode.NONE
    groups.log.release()
    assert (await waiting).assignment == b"a"
    assert groups.state == "Stable"


async def test_refused_assignment_restarts_rebalance(
    groups: Groups,
) -> None:
    first = groups.join()
    groups.time.pass_ms(3_000)
    member_id = (await first).member_id
    groups.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code_of(lambda: groups.sync(member_id, 1)) == "COORDINATOR_NOT_AVAILABLE"
    assert groups.state == "PreparingRebalance"


async def test_sync_refuses_the_wrong_generation_member_and_protocol(groups: Groups) -> None:
    (leader,) = await groups.stable()
    assert code_of(lambda: groups.sync(leader, 2)) == "ILLEGAL_GENERATION"
    assert code_of(lambda: groups.sync("stranger", 1)) == "UNKNOWN_MEMBER_ID"
    groups.join()
    assert code_of(lambda: groups.sync(leader, 1)) == "REBALANCE_IN_PROGRESS"


async def test_join_during_sync_makes_members_rejoin(groups: Groups) -> None:
    leader, follower = groups.join(), groups.join()
    groups.time.pass_ms(6_000)
    waiting = groups.sync((await follower).member_id, 1)
    groups.join()
    assert await error_of(waiting) == "REBALANCE_IN_PROGRESS"
    assert groups.state == "PreparingRebalance"
    assert (await leader).generation_id == 1


async def test_members_that_never_sync_are_removed(groups: Groups) -> None:
    leader, follower = groups.join(session_ms=300_000), groups.join(session_ms=300_000)
    groups.time.pass_ms(6_000)
    silent = (await follower).member_id
    groups.sync((await leader).member_id, 1, client_1="a")
    assert groups.state == "Stable"
    groups.time.pass_ms(60_000)
    assert groups.state == "PreparingRebalance"
    assert silent not in groups.group.members


# -- sessions ----------------------------------------------------------------------------------


async def test_member_expires_without_heartbeats_only(groups: Groups) -> None:
    alive, silent = await groups.stable(2, session_ms=10_000)
    for _ in range(3):
        groups.time.pass_ms(4_000)
        groups.heartbeat(alive, 1)
    assert silent not in groups.group.members
    assert alive in groups.group.members
    assert groups.state == "PreparingRebalance"


async def test_heartbeat_starts_no_timer(groups: Groups) -> None:
    (member,) = await groups.stable()
    running = groups.time.running
    for _ in range(100):
        assert groups.heartbeat(member, 1) == ErrorCode.NONE
    assert groups.time.running == running


async def test_member_whose_join_waits_does_not_expire(groups: Groups) -> None:
    leader, _ = await groups.stable(2, session_ms=10_000, rebalance_ms=60_000)
    rejoined = groups.join(leader, session_ms=10_000, rebalance_ms=60_000)
    groups.time.pass_ms(9_000)
    assert not rejoined.done()
    groups.time.pass_ms(2_000)
    assert (await rejoined).generation_id == 2


async def test_member_whose_join_outlasted_its_session_can_expire_later(groups: Groups) -> None:
    leader, _ = await groups.stable(2, session_ms=10_000, rebalance_ms=60_000)
    (follower,) = set(groups.group.members) - {leader}
    rejoined = groups.join(leader, session_ms=10_000, rebalance_ms=60_000)
    for _ in range(3):
        groups.time.pass_ms(5_000)
        groups.heartbeat(follower, 1)
    again = groups.join(follower, session_ms=10_000, rebalance_ms=60_000)
    assert again.generation_id == (await rejoined).generation_id == 2
    # The first who expires starts a rebalance, which gives the other a session more.
    groups.time.pass_ms(20_000)
    assert groups.state == "Empty"


async def test_group_is_empty_after_its_last_member(groups: Groups) -> None:
    (member,) = await groups.stable()
    groups.time.pass_ms(10_000)
    assert groups.state == "Empty"
    assert groups.group.generation == 2
    assert code_of(lambda: groups.heartbeat(member, 1)) == "UNKNOWN_MEMBER_ID"
    assert groups.group.leader_id is None


async def test_heartbeats_of_another_generation_are_refused(groups: Groups) -> None:
    (member,) = await groups.stable()
    assert code_of(lambda: groups.heartbeat(member, 7)) == "ILLEGAL_GENERATION"


# -- leaving -----------------------------------------------------------------------------------


async def test_one_leave_request_removes_several_members(groups: Groups) -> None:
    one, two = await groups.stable(2)
    codes = groups.leave(one, "stranger", two)
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert groups.state == "Empty"


async def test_leave_removes_member_id_that_has_not_joined(groups: Groups) -> None:
    given = groups.join(version=4)
    assert groups.leave(given.member_id) == [ErrorCode.NONE]
    assert not groups.group.pending_joins


async def test_a_static_member_is_removed_by_its_instance(groups: Groups) -> None:
    await groups.stable(instance="i")
    assert groups.leave("", instance="i") == [ErrorCode.NONE]
    assert groups.state == "Empty"
    assert groups.leave("", instance="i") == [ErrorCode.UNKNOWN_MEMBER_ID]


# -- static members ----------------------------------------------------------------------------


async def test_a_static_member_comes_back_without_a_rebalance(groups: Groups) -> None:
    (old,) = await groups.stable(instance="i", protocols=(("range", subscription("t")),))
    back = groups.join(version=9, instance="i", protocols=(("range", subscription("t")),))
    assert groups.state == "Stable"
    assert (back.generation_id, back.skip_assignment) == (1, True)
    assert back.member_id == back.leader != old
    assert groups.sync(back.member_id, 1).assignment == old.encode()
    assert code_of(lambda: groups.heartbeat(old, 1, "i")) == "FENCED_INSTANCE_ID"


async def test_returning_static_leader_with_older_client_is_not_named_leader(
    groups: Groups,
) -> None:
    (old,) = await groups.stable(instance="i")
    back = groups.join(version=8, instance="i")
    assert (back.leader, back.members, back.skip_assignment) == (old, [], False)


async def test_static_takeover_counts_once_committed(groups: Groups) -> None:
    (old,) = await groups.stable(instance="i")
    groups.log.held = True
    back = groups.join(instance="i")
    assert list(groups.group.members) == [old]
    groups.log.release()
    assert list(groups.group.members) == [(await back).member_id]


async def test_refused_static_takeover_changes_nothing(groups: Groups) -> None:
    (old,) = await groups.stable(instance="i")
    groups.log.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert code_of(lambda: groups.join(instance="i")) == "NOT_COORDINATOR"
    groups.log.refusal = None
    assert list(groups.group.members) == [old]
    assert groups.heartbeat(old, 1, "i") == ErrorCode.NONE


async def test_a_static_member_with_another_protocol_starts_a_rebalance(groups: Groups) -> None:
    both = (("range", b""), ("sticky", b""))
    await groups.stable(instance="i", protocols=both)
    back = groups.join(instance="i", protocols=tuple(reversed(both)))
    assert (back.generation_id, back.protocol_name) == (2, "sticky")


async def test_a_static_member_that_comes_back_during_a_rebalance_fences_the_old_one(
    groups: Groups,
) -> None:
    old = groups.join(instance="i")
    new = groups.join(instance="i")
    assert await error_of(old) == "FENCED_INSTANCE_ID"
    groups.time.pass_ms(6_000)
    assert len((await new).members) == 1


async def test_a_static_member_survives_a_rebalance_until_its_session_ends(groups: Groups) -> None:
    (static,) = await groups.stable(instance="i", session_ms=100_000, rebalance_ms=20_000)
    newcomer = groups.join(session_ms=100_000, rebalance_ms=20_000)
    groups.time.pass_ms(20_000)
    assert (await newcomer).generation_id == 2
    assert static in groups.group.members


# -- the table ---------------------------------------------------------------------------------


def test_transition_outside_table_raises() -> None:
    for source in GroupState:
        for target in GroupState:
            if target in TRANSITIONS[source]:
                check_transition(source, target)
            else:
                with pytest.raises(IllegalTransition):
                    check_transition(source, target)


def test_every_state_is_reachable_and_only_dead_is_final() -> None:
    reachable = {target for targets in TRANSITIONS.values() for target in targets}
    assert reachable == set(GroupState)
    assert [state for state, targets in TRANSITIONS.items() if not targets] == [GroupState.DEAD]
