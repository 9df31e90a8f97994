"""JoinGroup: members that are admitted, that wait, and that are refused."""

import gc
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any

import pytest

from barnabas.coordinator.group.group import GROUP_BYTES
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.harness import Groups, code_of


@pytest.fixture
async def groups() -> Groups:
    return await Groups().load()


async def loaded(**settings: int) -> Groups:
    return await Groups(**settings).load()


# -- joining -----------------------------------------------------------------------------------


async def test_first_member_waits_for_others_and_becomes_leader(groups: Groups) -> None:
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


async def test_only_leader_receives_list_of_members(groups: Groups) -> None:
    leader, follower = groups.join(), groups.join()
    groups.time.pass_ms(6_000)
    assert len((await leader).members) == 2
    assert (await follower).members == []
    assert (await follower).leader == (await leader).member_id


async def test_join_from_version_4_returns_member_id_before_membership(groups: Groups) -> None:
    answer = groups.join(version=4)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.protocol_name == ""
    assert groups.group.pending_joins.keys() == {answer.member_id}
    joined = groups.join(answer.member_id, version=4)
    groups.time.pass_ms(3_000)
    assert (await joined).member_id == answer.member_id


async def test_unused_member_id_expires(groups: Groups) -> None:
    given = groups.join(version=4, session_ms=10_000)
    groups.time.pass_ms(10_000)
    assert groups.group.pending_joins.keys() == set()
    assert code_of(lambda: groups.join(given.member_id)) == "UNKNOWN_MEMBER_ID"


async def test_rebalance_waits_for_member_id_that_has_not_joined(groups: Groups) -> None:
    (leader,) = await groups.stable()
    given = groups.join(version=4)
    rejoin = groups.join(leader)
    assert not rejoin.done()
    groups.join(given.member_id, version=4)
    assert len((await rejoin).members) == 2


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
async def test_session_timeout_out_of_range_is_refused(groups: Groups, session_ms: int) -> None:
    code = code_of(lambda: groups.join(session_ms=session_ms))
    assert code == "INVALID_SESSION_TIMEOUT"


async def test_empty_group_id_is_refused(groups: Groups) -> None:
    assert code_of(lambda: groups.join(group_id="")) == "INVALID_GROUP_ID"


async def test_join_of_unknown_group_with_own_member_id_is_refused(groups: Groups) -> None:
    assert code_of(lambda: groups.join("made-up")) == "UNKNOWN_MEMBER_ID"
    assert not groups.table.groups


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_type": ""},
        {"protocols": ()},
    ],
)
async def test_first_member_without_protocols_is_refused(
    groups: Groups, options: dict[str, object]
) -> None:
    assert code_of(lambda: groups.join(**options)) == "INCONSISTENT_GROUP_PROTOCOL"
    assert not groups.table.groups


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_type": "connect"},
        {"protocols": (("sticky", b""),)},
    ],
)
async def test_member_without_common_protocol_is_refused(
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


async def test_full_group_refuses_new_members() -> None:
    groups = await loaded(max_size=2)
    await groups.stable(2)
    assert code_of(groups.join) == "GROUP_MAX_SIZE_REACHED"


async def test_rebalance_of_oversized_group_refuses_slowest_members() -> None:
    groups = await loaded(max_size=2)
    leader, _ = await groups.stable(2)
    # The group has both members still, but one place is open until the other has rejoined.
    groups.join(leader)
    groups.group.remove(next(reversed(groups.group.members)))
    groups.join()
    assert code_of(groups.join) == "GROUP_MAX_SIZE_REACHED"


# -- rejoining ---------------------------------------------------------------------------------


async def test_new_member_makes_all_members_rejoin(groups: Groups) -> None:
    (leader,) = await groups.stable()
    newcomer = groups.join()
    assert groups.state == "PreparingRebalance"
    assert groups.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = groups.join(leader)
    assert rejoined.generation_id == (await newcomer).generation_id == 2
    assert rejoined.leader == leader


async def test_unchanged_follower_that_rejoins_gets_current_generation(groups: Groups) -> None:
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


async def test_members_that_do_not_rejoin_in_time_are_removed(groups: Groups) -> None:
    leader, lost = await groups.stable(2, session_ms=300_000, rebalance_ms=30_000)
    rejoined = groups.join(leader, session_ms=300_000, rebalance_ms=30_000)
    groups.time.pass_ms(29_999)
    assert not rejoined.done()
    groups.time.pass_ms(1)
    assert [each.member_id for each in (await rejoined).members] == [leader]
    assert groups.heartbeat(leader, 2) == ErrorCode.NONE
    assert code_of(lambda: groups.heartbeat(lost, 2)) == "UNKNOWN_MEMBER_ID"


async def test_removed_leader_is_replaced_by_member_that_rejoined(groups: Groups) -> None:
    _, follower = await groups.stable(2)
    rejoined = groups.join(follower, protocols=(("range", b"new"),))
    groups.time.pass_ms(60_000)
    assert (await rejoined).leader == follower


async def test_memory_of_all_members_is_bounded_and_comes_free_with_them(groups: Groups) -> None:
    """Members' metadata, of up to 100 MB each, had no limit but the number of members."""
    groups.memory.limit = 20_000
    large = (("range", bytes(10_000)),)
    first = groups.join(protocols=large)
    refused = "COORDINATOR_NOT_AVAILABLE"
    assert code_of(lambda: groups.join(protocols=large)) == refused
    groups.time.pass_ms(3_000)
    member_id = (await first).member_id
    larger = (("range", bytes(18_500)),)
    assert code_of(lambda: groups.join(member_id, protocols=larger)) == refused
    assert groups.memory.used < 20_000
    with suppress(KafkaError):
        for _ in range(20):
            groups.join(version=4)
    assert 1 < len(groups.group.pending_joins) < 10
    assert code_of(lambda: groups.join(version=4)) == refused
    groups.time.pass_ms(10_000)
    gc.collect()
    assert groups.memory.used == GROUP_BYTES


async def test_assignments_count_against_the_memory_of_members(groups: Groups) -> None:
    """They were kept beside it, up to a megabyte for each group."""
    joined = groups.join()
    groups.time.pass_ms(3_000)
    member = await joined
    assignments = {member.member_id.replace("-", "_"): "a" * 20_000}
    groups.memory.limit = groups.memory.used + 10_000
    sync = partial(groups.sync, member.member_id, member.generation_id, **assignments)
    assert code_of(sync) == "COORDINATOR_NOT_AVAILABLE"
    groups.memory.limit += 20_000
    before = groups.memory.used
    answer: Any = sync()
    assert len((await answer if isawaitable(answer) else answer).assignment) == 20_000
    assert groups.memory.used == before + 20_000
