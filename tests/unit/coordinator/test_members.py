"""The classic protocol: who joins, waits, leaves, expires or is turned away, and what it hears."""

import asyncio

import pytest

from barnabas.coordinator.group.states import (
    TRANSITIONS,
    GroupState,
    IllegalTransition,
    check_transition,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.coordinator.harness import Groups, code_of, subscription


@pytest.fixture
async def groups() -> Groups:
    return await Groups().load()


async def loaded(**settings: int) -> Groups:
    return await Groups(**settings).load()


async def error_of(answer: asyncio.Future[object]) -> str:
    with pytest.raises(KafkaError) as refused:
        await answer
    return refused.value.code.name


# -- joining -----------------------------------------------------------------------------------


async def test_the_first_member_waits_for_others_and_leads(groups: Groups) -> None:
    first = groups.join()
    groups.time.pass_ms(2_999)
    assert not first.done()
    groups.time.pass_ms(1)
    answer = await first
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    assert answer.leader == answer.member_id == "client-1"
    assert [each.member_id for each in answer.members] == ["client-1"]
    assert groups.state == "CompletingRebalance"


async def test_newcomers_extend_the_initial_delay_up_to_the_rebalance_timeout() -> None:
    groups = await loaded(initial_rebalance_delay_ms=3_000)
    first = groups.join(rebalance_ms=7_000)
    for _ in range(2):
        groups.time.pass_ms(2_000)
        groups.join(rebalance_ms=7_000)
    groups.time.pass_ms(2_999)
    assert not first.done()
    groups.time.pass_ms(1)
    assert first.done()
    assert len((await first).members) == 3


async def test_only_the_leader_hears_who_the_members_are(groups: Groups) -> None:
    leader, follower = groups.join(), groups.join()
    groups.time.pass_ms(6_000)
    assert len((await leader).members) == 2
    assert (await follower).members == []
    assert (await follower).leader == (await leader).member_id


async def test_from_version_4_a_member_id_is_given_out_before_the_join(groups: Groups) -> None:
    answer = groups.join(version=4)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.protocol_name == ""
    assert groups.group.pending_joins == {answer.member_id}
    joined = groups.join(answer.member_id, version=4)
    groups.time.pass_ms(3_000)
    assert (await joined).member_id == answer.member_id


async def test_a_member_id_that_is_not_used_expires(groups: Groups) -> None:
    given = groups.join(version=4, session_ms=10_000)
    groups.time.pass_ms(10_000)
    assert groups.group.pending_joins == set()
    assert code_of(lambda: groups.join(given.member_id)) == "UNKNOWN_MEMBER_ID"


async def test_a_rebalance_waits_for_an_id_that_was_given_out(groups: Groups) -> None:
    (leader,) = await groups.stable()
    given = groups.join(version=4)
    rejoin = groups.join(leader)
    assert not rejoin.done()
    groups.join(given.member_id, version=4)
    assert len((await rejoin).members) == 2


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
async def test_session_timeouts_have_limits(groups: Groups, session_ms: int) -> None:
    code = code_of(lambda: groups.join(session_ms=session_ms))
    assert code == "INVALID_SESSION_TIMEOUT"


async def test_a_group_needs_a_name(groups: Groups) -> None:
    assert code_of(lambda: groups.join(group_id="")) == "INVALID_GROUP_ID"


async def test_nobody_joins_a_group_that_does_not_exist_by_an_id_of_its_own(groups: Groups) -> None:
    assert code_of(lambda: groups.join("made-up")) == "UNKNOWN_MEMBER_ID"
    assert not groups.shard.groups


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_type": ""},
        {"protocols": ()},
    ],
)
async def test_the_first_member_needs_protocols(groups: Groups, options: dict[str, object]) -> None:
    assert code_of(lambda: groups.join(**options)) == "INCONSISTENT_GROUP_PROTOCOL"
    assert not groups.shard.groups


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_type": "connect"},
        {"protocols": (("sticky", b""),)},
    ],
)
async def test_a_member_must_have_a_protocol_in_common(
    groups: Groups, options: dict[str, object]
) -> None:
    await groups.stable()
    assert code_of(lambda: groups.join(**options)) == "INCONSISTENT_GROUP_PROTOCOL"


async def test_the_protocol_with_the_most_votes_wins(groups: Groups) -> None:
    protocols = {name: (name, name.encode()) for name in ("range", "sticky", "own")}
    joins = [
        groups.join(protocols=tuple(protocols[name] for name in order))
        for order in (("own", "range", "sticky"), ("sticky", "range"), ("sticky", "range"))
    ]
    groups.time.pass_ms(20_000)
    answer = await joins[0]
    assert answer.protocol_name == "sticky"
    assert {each.metadata for each in answer.members} == {b"sticky"}


async def test_a_full_group_turns_newcomers_away() -> None:
    groups = await loaded(max_size=2)
    await groups.stable(2)
    assert code_of(groups.join) == "GROUP_MAX_SIZE_REACHED"


async def test_while_a_group_gathers_the_slowest_of_too_many_are_turned_away() -> None:
    groups = await loaded(max_size=2)
    leader, _ = await groups.stable(2)
    # The group has both members still, but one place is open until the other has rejoined.
    groups.join(leader)
    groups.group.members.pop(next(reversed(groups.group.members)))
    groups.join()
    assert code_of(groups.join) == "GROUP_MAX_SIZE_REACHED"


# -- rejoining ---------------------------------------------------------------------------------


async def test_a_new_member_makes_everybody_rejoin(groups: Groups) -> None:
    (leader,) = await groups.stable()
    newcomer = groups.join()
    assert groups.state == "PreparingRebalance"
    assert groups.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = groups.join(leader)
    assert rejoined.generation_id == (await newcomer).generation_id == 2
    assert rejoined.leader == leader


async def test_a_follower_that_rejoins_unchanged_is_told_the_generation(groups: Groups) -> None:
    _, follower = await groups.stable(2)
    answer = groups.join(follower)
    assert (answer.generation_id, answer.members) == (1, [])
    assert groups.state == "Stable"


async def test_a_follower_with_new_metadata_starts_a_rebalance(groups: Groups) -> None:
    _, follower = await groups.stable(2)
    groups.join(follower, protocols=(("range", b"other topics"),))
    assert groups.state == "PreparingRebalance"


async def test_a_leader_that_rejoins_starts_a_rebalance(groups: Groups) -> None:
    leader, _ = await groups.stable(2)
    groups.join(leader)
    assert groups.state == "PreparingRebalance"


async def test_a_member_that_lost_its_answer_gets_it_again(groups: Groups) -> None:
    first = groups.join()
    groups.time.pass_ms(3_000)
    member_id = (await first).member_id
    again = groups.join(member_id)
    assert again.generation_id == 1
    assert len(again.members) == 1


async def test_members_that_do_not_rejoin_in_time_are_left_behind(groups: Groups) -> None:
    leader, lost = await groups.stable(2, session_ms=300_000, rebalance_ms=30_000)
    rejoined = groups.join(leader, session_ms=300_000, rebalance_ms=30_000)
    groups.time.pass_ms(29_999)
    assert not rejoined.done()
    groups.time.pass_ms(1)
    assert [each.member_id for each in (await rejoined).members] == [leader]
    assert groups.heartbeat(leader, 2) == ErrorCode.NONE
    assert code_of(lambda: groups.heartbeat(lost, 2)) == "UNKNOWN_MEMBER_ID"


async def test_a_leader_that_is_left_behind_is_followed_by_one_who_rejoined(groups: Groups) -> None:
    _, follower = await groups.stable(2)
    rejoined = groups.join(follower, protocols=(("range", b"new"),))
    groups.time.pass_ms(60_000)
    assert (await rejoined).leader == follower


# -- syncing -----------------------------------------------------------------------------------


async def test_everybody_gets_what_the_leader_assigned(groups: Groups) -> None:
    leader, follower = groups.join(), groups.join()
    groups.time.pass_ms(6_000)
    one, two = (await leader).member_id, (await follower).member_id
    waiting = groups.sync(two, 1)
    assert not waiting.done()
    assert groups.sync(one, 1, client_1="for one", client_2="for two").assignment == b"for one"
    assert (await waiting).assignment == b"for two"
    assert groups.sync(two, 1).assignment == b"for two"


async def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(groups: Groups) -> None:
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


async def test_an_assignment_that_cannot_be_logged_starts_the_rebalance_anew(
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
    assert code_of(lambda: groups.sync("nobody", 1)) == "UNKNOWN_MEMBER_ID"
    groups.join()
    assert code_of(lambda: groups.sync(leader, 1)) == "REBALANCE_IN_PROGRESS"


async def test_a_join_while_others_sync_sends_them_back(groups: Groups) -> None:
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


async def test_a_silent_member_expires_and_heartbeats_prevent_it(groups: Groups) -> None:
    alive, silent = await groups.stable(2, session_ms=10_000)
    for _ in range(3):
        groups.time.pass_ms(4_000)
        groups.heartbeat(alive, 1)
    assert silent not in groups.group.members
    assert alive in groups.group.members
    assert groups.state == "PreparingRebalance"


async def test_a_heartbeat_costs_no_timer(groups: Groups) -> None:
    (member,) = await groups.stable()
    running = groups.time.running
    for _ in range(100):
        assert groups.heartbeat(member, 1) == ErrorCode.NONE
    assert groups.time.running == running


async def test_a_parked_member_does_not_expire(groups: Groups) -> None:
    leader, _ = await groups.stable(2, session_ms=10_000, rebalance_ms=60_000)
    rejoined = groups.join(leader, session_ms=10_000, rebalance_ms=60_000)
    groups.time.pass_ms(9_000)
    assert not rejoined.done()
    groups.time.pass_ms(2_000)
    assert (await rejoined).generation_id == 2


async def test_the_last_member_leaves_an_empty_group_behind(groups: Groups) -> None:
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


async def test_one_request_lets_several_members_go(groups: Groups) -> None:
    one, two = await groups.stable(2)
    answer = groups.leave(one, "stranger", two)
    codes = [each.error_code for each in answer.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert groups.state == "Empty"


async def test_an_id_that_was_given_out_can_be_given_back(groups: Groups) -> None:
    given = groups.join(version=4)
    answer = groups.leave(given.member_id)
    assert answer.members[0].error_code == ErrorCode.NONE
    assert not groups.group.pending_joins


async def test_a_static_member_is_removed_by_its_instance(groups: Groups) -> None:
    await groups.stable(instance="i")
    answer = groups.leave("", instance="i")
    assert answer.members[0].error_code == ErrorCode.NONE
    assert groups.state == "Empty"
    assert groups.leave("", instance="i").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


# -- static members ----------------------------------------------------------------------------


async def test_a_static_member_comes_back_without_a_rebalance(groups: Groups) -> None:
    (old,) = await groups.stable(instance="i", protocols=(("range", subscription("t")),))
    back = groups.join(version=9, instance="i", protocols=(("range", subscription("t")),))
    assert groups.state == "Stable"
    assert (back.generation_id, back.skip_assignment) == (1, True)
    assert back.member_id == back.leader != old
    assert groups.sync(back.member_id, 1).assignment == old.encode()
    assert code_of(lambda: groups.heartbeat(old, 1, "i")) == "FENCED_INSTANCE_ID"


async def test_an_older_leader_that_comes_back_is_not_told_that_it_leads(groups: Groups) -> None:
    (old,) = await groups.stable(instance="i")
    back = groups.join(version=8, instance="i")
    assert (back.leader, back.members, back.skip_assignment) == (old, [], False)


async def test_a_takeover_counts_when_it_is_committed(groups: Groups) -> None:
    (old,) = await groups.stable(instance="i")
    groups.log.held = True
    back = groups.join(instance="i")
    assert list(groups.group.members) == [old]
    groups.log.release()
    assert list(groups.group.members) == [(await back).member_id]


async def test_a_takeover_that_cannot_be_logged_changes_nothing(groups: Groups) -> None:
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


def test_only_the_ways_of_the_table_are_open() -> None:
    for source in GroupState:
        for target in GroupState:
            if target in TRANSITIONS[source]:
                check_transition(source, target)
            else:
                with pytest.raises(IllegalTransition):
                    check_transition(source, target)


def test_every_state_can_be_reached_and_left_but_dead() -> None:
    reachable = {target for targets in TRANSITIONS.values() for target in targets}
    assert reachable == set(GroupState)
    assert [state for state, targets in TRANSITIONS.items() if not targets] == [GroupState.DEAD]
