"""The checks of timers in consumer groups, and of the removal of members, each with a test that
misses it.

The tests take no fixtures, because they run again without each check.
"""

import gc

import pytest

from barnabas.coordinator.group.consumer import leaving, sessions
from barnabas.coordinator.group.consumer.advancing import (
    _after_steps,
    _joined,
    _take_memory,
    take_step,
)
from barnabas.coordinator.group.consumer.heartbeat import _leave, steady
from barnabas.coordinator.group.consumer.records import (
    CURRENT,
    EXPRESSION,
    MEMBER,
    TARGET,
)
from barnabas.coordinator.group.consumer.records import (
    GROUP as GROUP_EPOCH,
)
from barnabas.coordinator.group.consumer.states import ConsumerGroupState
from barnabas.coordinator.group.consumer.timers import REBALANCE, timers_of
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.leave_group import MemberIdentity
from tests.support.coordinator.consumers import (
    JOINS,
    Consumers,
    Member,
    check_group,
    consumers,
    end,
    joined,
    kinds,
    resolved,
    static,
    written,
)
from tests.support.coordinator.harness import GROUP
from tests.support.mutants import cases, finds, hunt

# -- time ------------------------------------------------------------------------------------------


def revocations(host: Consumers) -> list[str]:
    """Return the members that have a time to give partitions up."""
    return [key[-1] for key in host.timers if key[0] == REBALANCE]


@finds(take_step, "sessions.end_revocation(draft, group.group_id, member.member_id)", "pass")
@finds(sessions.end_revocation, "draft.cancel((REBALANCE, group_id, member_id))", "pass")
async def test_time_to_give_up_ends_when_the_member_has_given_up() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    Member(host, "b").join()
    one.beat()
    assert revocations(host) == ["a"]
    one.tell()
    assert revocations(host) == []


@finds(
    take_step,
    "sessions.await_revocation(draft, group.group_id, member)",
    "sessions.await_revocation(draft, group.group_id, before)",
)
async def test_kafka_14462_time_to_give_up_is_the_one_that_the_same_request_tells() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    Member(host, "b").join()
    one.beat(rebalance_timeout_ms=5_000)
    host.time.pass_ms(4_000)
    assert "a" in host.group.members
    host.time.pass_ms(2_000)
    assert "a" not in host.group.members


@finds(timers_of, "SESSION, REBALANCE,", "SESSION,", "leave")
@finds(timers_of, "SESSION, REBALANCE,", "REBALANCE,", "leave")
@finds(sessions._fence, "end_session(draft, group, member_id)", "pass", "wait")
@finds(sessions.leave_consumers, "end_session(draft, group, member.member_id)", "pass", "remove")
@finds(_leave, "sessions.end_session(draft, group, member.member_id)", "pass", "leave")
@pytest.mark.parametrize("how", ["leave", "wait", "remove"])
async def test_removed_member_leaves_no_timer(how: str) -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    Member(host, "b").join()
    one.beat()
    if how == "leave":
        one.leave()
    elif how == "remove":
        host.coordinator.leave(GROUP, [MemberIdentity(member_id="a")])
    else:
        host.time.pass_ms(31_000)
    assert set(host.group.members) == set(host.group.sessions) == {"b"}
    assert {key[-1] for key in host.timers} == {"b"}


@finds(sessions._resume, "if member.state is MemberState.UNREVOKED_PARTITIONS and", "if False and")
async def test_loaded_coordinator_waits_for_partitions_to_be_given_up() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    two = Member(host, "b")
    two.join()
    one.beat()
    host.time.forget()
    await host.load()
    assert revocations(host) == ["a"]
    for _ in range(31):
        host.time.pass_ms(1_000)
        one.beat()
        two.beat()
    assert set(host.group.members) == {"b"}


@finds(sessions._revocation_over, "and member.epoch == epoch", "")
async def test_static_member_that_leaves_for_a_while_has_its_session_to_come_back() -> None:
    host = await consumers()
    one, two = static(host, "a"), Member(host, "b")
    one.join()
    two.join()
    one.beat()
    assert revocations(host) == ["a"]
    one.leave(-2)
    host.time.pass_ms(31_000)
    assert "a" in host.group.members


@finds(sessions._session_over, "_start_session(draft, group_id, member_id, session)", "pass")
@finds(sessions._session_over, "if now.monotonic_ms < session.deadline_ms:", "if False:")
@finds(sessions.extend_session, "= now_ms + timeout_ms", "= session.deadline_ms or 45_000")
async def test_session_lasts_from_the_last_heartbeat() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    host.time.pass_ms(40_000)
    one.beat()
    host.time.pass_ms(44_000)
    assert set(host.group.members) == {"a"}
    host.time.pass_ms(2_000)
    assert not host.group.members


@finds(sessions.extend_session, "or session.deadline_ms < session.timer_ms", "")
async def test_shorter_session_holds_from_the_next_heartbeat() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    host.consumer_settings = host.consumer_settings._replace(session_timeout_ms=5_000)
    one.beat()
    host.time.pass_ms(6_000)
    assert not host.group.members


@finds(sessions.extend_session, "session.timer_ms is None or", "True or")
async def test_heartbeat_costs_no_timer() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    before = len(host.time._timers)
    for _ in range(5):
        host.time.pass_ms(1)
        one.beat()
    assert len(host.time._timers) == before


@finds(_after_steps, "() if error is not None else", "")
async def test_refused_step_of_a_large_group_starts_no_timer() -> None:
    host = await consumers(partitions=300, assignment_interval_ms=1_000)
    many = [Member(host, f"m{number}") for number in range(100)]
    for each in many:
        each.join()
    host.time.pass_ms(1_000)
    host.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(KafkaError):
        await host.beat("m0", 2)
    assert revocations(host) == []


@finds(_joined, "error is None and group is not None and member is not None", "group")
async def test_member_whose_join_was_refused_has_no_session() -> None:
    host = await consumers()
    joined(host, "a")
    used = host.memory.used
    host.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(KafkaError):
        host.beat("b", 0, **JOINS)
    # The error has the frames in which it was raised.
    host.log.refusal = None
    assert set(host.group.sessions) == {"a"}
    gc.collect()
    assert host.memory.used == used


@finds(sessions._removed, "_resume(draft, group, group.members[member_id])", "pass")
@pytest.mark.parametrize("leaves", [True, False])
async def test_member_whose_removal_was_refused_is_removed_later(leaves: bool) -> None:
    host = await consumers()
    one, two = joined(host, "a", "b")
    host.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    if leaves:
        two.leave()
    else:
        host.time.pass_ms(44_000)
        one.beat()
        host.time.pass_ms(2_000)
    host.log.refusal = None
    assert set(host.group.members) == {"a", "b"}
    for _ in range(10):
        host.time.pass_ms(5_000)
        one.beat()
    assert set(host.group.members) == {"a"}
    assert one.partitions == 3


@finds(sessions._resume, "await_revocation(draft, group.group_id, member)", "pass")
async def test_member_that_gives_nothing_up_is_removed_although_that_was_refused_once() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    Member(host, "b").join()
    one.beat()
    host.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    host.time.pass_ms(30_000)
    host.log.refusal = None
    assert "a" in host.group.members
    for _ in range(6):
        one.beat()
        host.time.pass_ms(5_000)
    assert "a" not in host.group.members


@finds(_take_memory, "if session is None else session.memory", "")
async def test_member_has_the_memory_of_its_subscription() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    before = host.memory.used
    one.beat(subscribed_topic_names=["t", "u" * 100])
    grown = host.memory.used
    assert grown > before + 100
    one.beat(subscribed_topic_names=["t"])
    gc.collect()
    assert host.memory.used == before


# -- removal ---------------------------------------------------------------------------------------


@finds(leaving.forget, "records.CURRENT, records.TARGET,", "records.TARGET,")
@finds(leaving.forget, "records.CURRENT, records.TARGET,", "records.CURRENT,")
@finds(leaving.fence, "forget(draft, group.group_id, member.member_id)", "pass")
@finds(leaving.fence, "group.epoch + 1", "group.epoch")
@finds(leaving.fence, "if not kept:", "if True:")
async def test_member_that_leaves_has_no_records_and_makes_an_epoch() -> None:
    host = await consumers()
    one, two = joined(host, "a", "b")
    epoch, before = host.group.epoch, end(host)
    two.leave()
    assert [(each.kind, each.name) for each in written(host, before)] == [
        (CURRENT, "b"),
        (TARGET, "b"),
        (MEMBER, "b"),
        (GROUP_EPOCH, ""),
    ]
    assert set(host.group.targets) == {"a"}
    assert host.group.epoch == epoch + 1
    one.beat()
    assert one.partitions == 3


@finds(leaving.fence, "if not kept:", "if False:", "leave")
@finds(leaving.fence, "if not kept:", "if False:", "wait")
@pytest.mark.parametrize("how", ["leave", "wait"])
async def test_kafka_20442_empty_group_has_its_assignment(how: str) -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    one.leave() if how == "leave" else host.time.pass_ms(46_000)
    assert host.group.epoch == host.group.assignment_epoch == 3
    assert host.group.state.value == "Empty"


@finds(leaving.away, "revoking=NO_PARTITIONS,", "")
@finds(leaving.away, "epoch=LEAVE_STATIC,", "")
async def test_kafka_20641_static_member_that_leaves_while_it_gives_up_has_given_up() -> None:
    host = await consumers()
    one, two = static(host, "a"), Member(host, "b")
    one.join()
    two.join()
    one.beat()
    two.beat()
    assert two.partitions == 0
    one.leave(-2)
    two.beat()
    assert two.partitions == 1
    again = static(host, "c")
    again.join()
    assert (again.partitions, host.group.state.value) == (2, "Stable")
    check_group(host.group)


@finds(leaving.fence, "and member.expression not in used", "", 2, 2)
@finds(leaving.fence, "used.add(member.expression)", "pass", 2, 2)
@finds(leaving.fence, "and member.expression not in used", "", 2, 1)
@finds(leaving.fence, "member.expression in group.expressions and", "", 1, 0)
@pytest.mark.parametrize(("count", "gone"), [(2, 2), (2, 1), (1, 0)])
async def test_kafka_18116_expression_of_removed_members_is_forgotten_once(
    count: int, gone: int
) -> None:
    host = await consumers()
    names = ["a", "b"][:count]
    await resolved(host, *names)
    # Its expression is not resolved yet.
    Member(host, "c", (), expression="x").join()
    before = end(host)
    removed = [MemberIdentity(member_id=each) for each in [*names[:gone], "c"]]
    assert set(host.coordinator.leave(GROUP, removed)) == {ErrorCode.NONE}
    forgotten = [each.name for each in written(host, before) if each.kind == EXPRESSION]
    assert forgotten == ["t"] * (gone == count)


@finds(sessions.leave_consumers, "and member not in gone", "")
async def test_member_that_is_removed_twice_in_one_request_is_removed_once() -> None:
    host = await consumers()
    joined(host, "a", "b")
    before = end(host)
    host.coordinator.leave(GROUP, [MemberIdentity(member_id="a")] * 2)
    assert kinds(host, before)[MEMBER] == 1


@finds(sessions.leave_consumers, "if gone:", "if True:")
async def test_removal_of_nobody_is_no_epoch() -> None:
    host = await consumers()
    joined(host, "a")
    before = end(host)
    host.coordinator.leave(GROUP, [MemberIdentity(member_id="none")])
    assert end(host) == before


@cases(
    "member_id, instance_id, expected",
    ("", "i", "NONE", 'member_id = known or ""', "pass"),
    ("a", "i", "NONE"),
    ("b", "i", "FENCED_INSTANCE_ID", "if known is not None and", "if False and"),
    ("a", "j", "UNKNOWN_MEMBER_ID", 'member_id = known or ""', "pass"),
    ("a", None, "NONE"),
    of=sessions._leaving,
)  # fmt: skip
@finds(sessions._leaving, 'member_id not in ("", known)', "member_id != known", *("", "i", "NONE"))
async def test_static_member_is_removed_by_its_instance_id(
    member_id: str, instance_id: str | None, expected: str
) -> None:
    host = await consumers()
    static(host, "a").join()
    Member(host, "b").join()
    removed = [MemberIdentity(member_id=member_id, group_instance_id=instance_id)]
    assert host.coordinator.leave(GROUP, removed) == [ErrorCode[expected]]
    assert ("a" in host.group.members) is (expected != "NONE")
    assert "b" in host.group.members


# -- writes on their way ---------------------------------------------------------------------------


@finds(GroupCoordinator.consumer_heartbeat, "if answer is not None:", "if False:")
@finds(steady, "or not (steps or member.is_at(group.assignment_epoch))")
async def test_member_without_news_waits_for_no_write_and_one_with_a_step_does() -> None:
    host = await consumers()
    joined(host, "a", "b")
    Member(host, "c").join()
    host.beat("b", 3)
    host.log.held = True
    told = host.beat("c", 4, rack_id="r")
    assert host.beat("b", 4).assignment is None
    step = host.beat("a", 3)
    assert not any(each.done() for each in (told, step))
    host.log.release()
    assert (await told).member_epoch == 4
    assert (await step).assignment is not None


@finds(steady, "is_due(table, group, group.epoch, now)", "group.epoch != group.assignment_epoch")
async def test_member_without_news_waits_for_no_write_while_an_assignment_is_not_due() -> None:
    host = await consumers(assignment_interval_ms=1_000)
    joined(host, "a")
    Member(host, "b").join()
    assert host.group.state is ConsumerGroupState.ASSIGNING
    host.log.held = True
    told = host.beat("b", 2, rack_id="r")
    assert host.beat("a", 2).assignment is None
    host.time.pass_ms(1_000)
    due = host.beat("a", 2)
    assert not any(each.done() for each in (told, due))
    host.log.release()
    assert (await told).member_epoch == 2
    assert (await due).assignment is not None


test_missing_check_is_found = hunt(globals())
