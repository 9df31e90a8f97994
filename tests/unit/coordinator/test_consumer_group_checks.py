"""The checks of what members of consumer groups tell, of their epochs, of static members and of the
group's epochs, each with a test that misses it.

The tests take no fixtures, because they run again without each check.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group.consumer import leaving
from barnabas.coordinator.group.consumer.advancing import (
    _replace,
    _step,
    advance,
    successor,
    take_step,
)
from barnabas.coordinator.group.consumer.assignment import Assigning, is_due
from barnabas.coordinator.group.consumer.expressions import _resolved, refresh_is_due
from barnabas.coordinator.group.consumer.group import (
    ConsumerGroup,
    elected,
)
from barnabas.coordinator.group.consumer.heartbeat import (
    _fill,
    _leave,
    _require_epoch,
    _static,
    _told,
    _updated,
    _validate,
    _validate_join,
    heartbeat,
    steady,
    tells_about_itself,
)
from barnabas.coordinator.group.consumer.reconciliation import (
    _towards,
    is_subset,
    require_known_state,
)
from barnabas.coordinator.group.consumer.records import (
    CURRENT,
    EXPRESSION,
    TARGET,
    TARGET_EPOCH,
    ConsumerGroupRecord,
)
from barnabas.coordinator.group.consumer.records import (
    GROUP as GROUP_EPOCH,
)
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.coordinator.group.consumer.topics import hash_of_topics
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.internal.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tests.support.coordinator.consumers import (
    JOINS,
    Consumers,
    Member,
    check_group,
    consumers,
    end,
    joined,
    kinds,
    listed,
    outcome,
    resolved,
    static,
    written,
)
from tests.support.coordinator.harness import GROUP
from tests.support.mutants import cases, finds, hunt

A, B = bytes(15) + b"\1", bytes(15) + b"\2"
FENCED = [ErrorCode.FENCED_MEMBER_EPOCH]


# -- what a member tells ---------------------------------------------------------------------------


TWICE = ("subscribed_topic_names", ["u", "u"], "topics", ("u",))


@finds(heartbeat, "if not tells_about_itself(request):", "if True:", "rack_id", "r", "rack_id", "r")
@finds(
    _updated,
    "member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms",
    "member.rebalance_timeout_ms",
    *("rebalance_timeout_ms", 7, "rebalance_timeout_ms", 7),
)
@cases(
    "field, value, attribute, expected",
    ("rack_id", "r", "rack_id", "r", "request.rack_id is not None or"),
    (*("rebalance_timeout_ms", 7) * 2, "or request.rebalance_timeout_ms != -1"),
    (*TWICE, "or request.subscribed_topic_names is not None"),
    ("subscribed_topic_regex", "x", "expression", "x",
     "or request.subscribed_topic_regex is not None"),
    ("server_assignor", "range", "assignor", "range", "or request.server_assignor is not None"),
    of=tells_about_itself,
)  # fmt: skip
@finds(_told, "known if new is None else new", "new", "rack_id", "r", "rack_id", "r")
@finds(_updated, "sorted(set(names))", "sorted(names)", *TWICE)
async def test_what_a_member_tells_is_recorded(
    field: str, value: Any, attribute: str, expected: Any
) -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    before = end(host)
    one.beat()
    assert end(host) == before
    one.beat(**{field: value})
    assert getattr(host.group.members["a"], attribute) == expected
    one.beat(rebalance_timeout_ms=7)
    assert getattr(host.group.members["a"], attribute) == expected
    check_group(host.group)


@finds(_updated, "member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms", "timeout_ms")
async def test_what_a_member_does_not_tell_is_kept() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    one.beat(rack_id="r")
    member = host.group.members["a"]
    assert (member.rebalance_timeout_ms, member.topics) == (30_000, ("t",))


@finds(steady, "or client.client_id != member.client_id", "", {"client_id": "other"})
@finds(steady, "or client.client_host != member.client_host", "", {"client_host": "/other"})
@finds(_updated, "and client.client_id == member.client_id", "", {"client_id": "other"})
@finds(_updated, "and client.client_host == member.client_host", "", {"client_host": "/other"})
@pytest.mark.parametrize("change", [{"client_id": "other"}, {"client_host": "/other"}])
async def test_member_from_another_client_is_recorded(change: dict[str, str]) -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    host.client = host.client._replace(**change)
    one.beat()
    member = host.group.members["a"]
    assert (member.client_id, member.client_host) == (
        host.client.client_id,
        host.client.client_host,
    )


@finds(take_step, "if member != updated: draft.records.append", "if True: draft.records.append")
@finds(
    advance,
    "if updated != member or (updated.member_id not in group.members and replaced is None):",
    "if True:",
)
@finds(is_due, "epoch > group.assignment_epoch and", "")
async def test_member_that_has_to_give_up_and_repeats_itself_writes_nothing() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    Member(host, "b").join()
    one.beat()
    assert host.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    before = end(host)
    one.beat()
    one.beat(rebalance_timeout_ms=30_000)
    assert end(host) == before


@finds(_fill, "or before.assigned != member.assigned")
@finds(steady, "if after.assigned != member.assigned:", "if False:")
@pytest.mark.parametrize("told", [{}, {"rack_id": "r"}])
async def test_member_that_has_to_give_up_is_told_what_it_keeps(told: dict[str, str]) -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    Member(host, "b").join()
    one.beat(**told)
    assert one.partitions == 2


@finds(_fill, "is_full or request.member_epoch == JOIN or", "request.member_epoch == JOIN or")
async def test_member_that_tells_everything_is_told_its_assignment() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    one.lost = True
    response = one.tell()
    assert response is not None
    assert response.assignment is not None


ANY_NAME = "if value is not None and not value.strip():"
ID = "if not (member_id.strip() if version >= _OWN_IDS_SINCE else member_id or epoch == JOIN):"
NAMES = "if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:"
PARTITIONS = "if request.topic_partitions is None or request.topic_partitions:"


@cases(
    "member_id, epoch, change",
    ("a", 0, {"rebalance_timeout_ms": -1},
     (_validate_join, "if request.rebalance_timeout_ms == -1:", "if False:")),
    ("a", 0, {"topic_partitions": None},
     (_validate_join, PARTITIONS, "if request.topic_partitions:")),
    ("a", 0, {"topic_partitions": listed({A: [0]})},
     (_validate_join, PARTITIONS, "if request.topic_partitions is None:")),
    ("a", 0, {"subscribed_topic_names": None}, (_validate_join, NAMES, "if False:")),
    ("a", 0, {"instance_id": " "}, (_validate, ANY_NAME, "if False:")),
    ("a", 0, {"rack_id": ""}, (_validate, ANY_NAME, "if False:")),
    ("a", 0, {"group_id": ""}, (_validate, ANY_NAME, "if False:")),
    (" ", 0, {}, (_validate, ID, "if False:")),
    ("", 2, {"version": 0}, (_validate, ID, "if False:")),
    ("a", -2, {}, (_validate, "epoch == LEAVE_STATIC and request.instance_id is None", "False")),
    ("a", -3, {}, (_validate, "elif epoch < LEAVE_STATIC:", "elif False:")),
)  # fmt: skip
async def test_request_with_one_fault_is_invalid(
    member_id: str, epoch: int, change: dict[str, Any]
) -> None:
    host = await consumers()
    joined(host, "a")
    assert outcome(host.beat, member_id, epoch, **JOINS | change) == "INVALID_REQUEST"


async def test_member_of_the_first_version_gets_its_id() -> None:
    host = await consumers()
    assert host.beat("", 0, version=0, **JOINS).member_id == "id-0"


async def test_request_to_no_group_finds_none() -> None:
    host = await consumers()
    assert outcome(host.beat, "a", 3) == "GROUP_ID_NOT_FOUND"
    assert outcome(host.beat, "a", -1) == "GROUP_ID_NOT_FOUND"
    assert not host.table.consumers


# -- epochs ----------------------------------------------------------------------------------------


@finds(steady, "or member.epoch != request.member_epoch", "", 1)
@finds(steady, "or member.epoch != request.member_epoch", "", 9)
@finds(_require_epoch, "epoch == member.previous_epoch and", "", 2)
@pytest.mark.parametrize("epoch", [1, 2, 3, 4, 9])
async def test_epoch_that_is_neither_the_last_nor_the_one_before_is_fenced(epoch: int) -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    for partitions in (4, 5, 6):
        host.topics.create("t", partitions)
        one.tell()
    one.beat()
    assert (one.epoch, host.group.members["a"].previous_epoch) == (5, 4)
    assert outcome(host.beat, "a", epoch) == "FENCED_MEMBER_EPOCH"
    if epoch == 4:
        return
    assert outcome(host.beat, "a", epoch, topic_partitions=one.told()) == "FENCED_MEMBER_EPOCH"
    assert outcome(host.beat, "a", 5) == "NONE"


@finds(_require_epoch, "and is_subset(request.topic_partitions, member.assigned)", "", None)
@finds(is_subset, "owned is not None and", "owned is None or", None)
@finds(is_subset, ">= set(each.partitions)", "<= set(each.partitions)", {A: [0, 1, 2, 3, 4]})
@pytest.mark.parametrize("owned", [None, {A: [0, 1, 2, 3, 4]}, {A: [0], B: [0]}])
async def test_previous_epoch_of_a_member_that_may_use_more_is_fenced(
    owned: dict[bytes, list[int]] | None,
) -> None:
    host = await consumers()
    joined(host, "a")
    host.topics.create("t", 4)
    assert host.beat("a", 2).member_epoch == 3
    told = None if owned is None else listed(owned)
    assert outcome(host.beat, "a", 2, topic_partitions=told) == "FENCED_MEMBER_EPOCH"


@finds(
    _towards,
    "previous_epoch=member.epoch, epoch=target_epoch,",
    "previous_epoch=member.previous_epoch, epoch=target_epoch,",
)
@finds(_require_epoch, "epoch == member.previous_epoch and", "False and")
@finds(is_subset, "owned is not None and", "owned is not None and False and")
async def test_member_that_lost_the_answer_with_its_epoch_is_not_fenced() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    host.topics.create("t", 4)
    host.topics.create("t", 5)
    assert host.beat("a", 2).member_epoch == 3
    one.tell()
    assert (one.fences, one.epoch) == ([], 3)


@finds(_require_epoch, "(JOIN, member.epoch)", "(member.epoch,)", MemberState.STABLE)
@finds(_require_epoch, "(JOIN, member.epoch)", "(member.epoch,)", MemberState.UNREVOKED_PARTITIONS)
@finds(_require_epoch, "(JOIN, member.epoch)", "(member.epoch,)", MemberState.UNRELEASED_PARTITIONS)
@pytest.mark.parametrize(
    "state",
    [MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS],
)
async def test_kafka_19233_known_member_may_join_again_in_every_state(state: MemberState) -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    two = Member(host, "b")
    host.topics.create("t", 4)
    one.beat()
    if state is not MemberState.STABLE:
        two.join()
        host.topics.create("t", 5)
        two.beat()
        one.beat()
    again = two if state is MemberState.UNRELEASED_PARTITIONS else one
    assert host.group.members[again.member_id].state is state
    assert again.join() is not None
    for _ in range(3):
        for each in (one, two):
            each.tell() if each.epoch else each.join()
    assert host.group.state.value == "Stable"
    assert (one.fences, two.fences, one.partitions + two.partitions) == (
        [],
        [],
        5 - (state is MemberState.STABLE),
    )


def unknown_state() -> ConsumerGroupRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=0,
        state=77,
        assigned_partitions=[],
        partitions_pending_revocation=[],
    )
    return ConsumerGroupRecord(CURRENT, GROUP, "a", value)


@finds(advance, "require_known_state(updated, owned)", "pass", {A: [0]}, {"rack_id": "r"})
@finds(steady, "require_known_state(member, owned)", "pass", {A: [0]}, {})
@finds(require_known_state, "(owned is None or owned)", "owned", None, {})
@finds(require_known_state, "(owned is None or owned)", "owned is None", {A: [0]}, {})
@finds(require_known_state, "and (owned is None or owned)", "", {}, {})
@finds(require_known_state, "member.state is MemberState.UNKNOWN and", "False and", None, {})
@pytest.mark.parametrize("told", [{}, {"rack_id": "r"}])
@pytest.mark.parametrize("owned", [None, {A: [0]}, {}])
async def test_member_in_a_state_of_a_newer_broker_has_to_use_nothing(
    owned: dict[bytes, list[int]] | None, told: dict[str, str]
) -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    host.shard.replay(unknown_state(), -1)
    one.beat(topic_partitions=None if owned is None else listed(owned), **told)
    assert one.fences == ([] if owned == {} else FENCED)
    assert owned != {} or one.partitions == 3


# -- static members --------------------------------------------------------------------------------


@finds(steady, "or request.instance_id != member.instance_id", "")
@finds(ConsumerGroup.require_static, "if known is None:", "if False:")
async def test_instance_id_that_nobody_has_is_unknown() -> None:
    host = await consumers()
    joined(host, "a")
    assert outcome(host.beat, "a", 2, instance_id="i") == "UNKNOWN_MEMBER_ID"


@finds(_static, "_require_epoch(member, request)", "pass")
async def test_static_member_is_fenced_by_its_epoch_too() -> None:
    host = await consumers()
    static(host, "a").join()
    assert outcome(host.beat, "a", 7, instance_id="i") == "FENCED_MEMBER_EPOCH"


@finds(ConsumerGroup.require_static, "if known != member_id:", "if False:")
@finds(
    _leave,
    "group.require_static(request.instance_id, request.member_id)",
    "group.require(request.member_id)",
)
async def test_member_does_not_leave_for_another_one_with_its_instance_id() -> None:
    host = await consumers()
    one, two = static(host, "a"), Member(host, "b")
    one.join()
    two.join()
    for epoch in (-1, -2):
        assert outcome(host.beat, "b", epoch, instance_id="i") == "FENCED_INSTANCE_ID"
    assert set(host.group.members) == {"a", "b"}


@finds(_require_epoch, "epoch == member.previous_epoch and epoch < member.epoch", "True")
@finds(_require_epoch, "and epoch < member.epoch", "")
async def test_static_member_that_is_away_has_to_join() -> None:
    """By its instance id, or, as in Kafka, by its member id alone."""
    host = await consumers()
    one = static(host, "a")
    one.join()
    host.topics.create("t", 4)
    one.beat()
    one.leave(-2)
    assert host.group.members["a"].previous_epoch == 2
    for epoch in (2, 3):
        found = outcome(host.beat, "a", epoch, topic_partitions=[])
        assert found == "FENCED_MEMBER_EPOCH"
    assert host.beat("a", 0, **JOINS).member_epoch == 3
    check_group(host.group)


@finds(_static, "if known.epoch != LEAVE_STATIC and known.classic is None:", "if False:")
async def test_instance_id_in_use_is_not_taken_over() -> None:
    host = await consumers()
    one = static(host, "a")
    one.join()
    assert outcome(host.beat, "b", 0, **JOINS | {"instance_id": "i"}) == "UNRELEASED_INSTANCE_ID"
    one.beat()
    assert one.fences == []


@finds(successor, ", epoch=JOIN, previous_epoch=0)", ")")
@finds(successor, "epoch=JOIN, previous_epoch=0", "epoch=JOIN")
@finds(_replace, "forget(draft, group_id, old.member_id)", "pass")
@finds(_replace, "draft.records.append(records.target(group_id, member_id, target))", "pass")
@finds(leaving.away, "_without_epochs(member.assigned)", "member.assigned")
@finds(leaving.away, "_without_epochs(member.assigned)", "NO_PARTITIONS")
async def test_new_id_of_a_static_member_takes_the_whole_place_of_the_old_one() -> None:
    host = await consumers()
    one = static(host, "a")
    one.join()
    host.topics.create("t", 4)
    one.beat()
    one.leave(-2)
    assert dict(host.group.members["a"].assigned) == {A: dict.fromkeys(range(4), 0)}
    before = end(host)
    static(host, "b").join()
    assert set(host.group.members) == set(host.group.targets) == {"b"}
    assert kinds(host, before)[GROUP_EPOCH] == 0
    currents = [each.value for each in written(host, before) if each.kind == CURRENT and each.value]
    assert [(each.member_epoch, each.previous_member_epoch) for each in currents] == [
        (0, 0),
        (3, 0),
    ]
    check_group(host.group)


@cases(
    "topics, partitions",
    (("u",), {B: [0, 1]},
     (Assigning._subscribed, "self._replaced or self._member", "self._member")),
    (("t", "u"), {A: [0, 1, 2], B: [0, 1]},
     (Assigning._members, "self._replaced or self._member", "self._member")),
)  # fmt: skip
async def test_static_member_comes_back_with_another_subscription(
    topics: tuple[str, ...], partitions: dict[bytes, list[int]]
) -> None:
    host = await consumers()
    host.topics.create("u", 2)
    one = static(host, "a")
    one.join()
    one.leave(-2)
    again = static(host, "b", topics=topics)
    again.join()
    assert set(host.group.targets) == {"b"}
    assert host.group.metadata_hash == hash_of_topics(host.table.topics, topics)
    assert {topic: sorted(each) for topic, each in again.owned.items()} == partitions


@finds(Assigning._known_target, "member is self._updated:", "False:")
async def test_static_member_keeps_its_target_under_another_id() -> None:
    host = await consumers(partitions=4)
    one, two = static(host, "b"), static(host, "c", "j")
    for each in (one, two):
        each.join()
    for _ in range(3):
        one.tell()
        two.tell()
    kept = host.group.targets["c"][A]
    two.leave(-2)
    host.topics.create("t", 6)
    static(host, "a", "j").join()
    assert host.group.targets["a"][A] >= kept


@finds(Assigning._assignor, "if self._member.assignor is not None:", "if False:", "a", "a")
@finds(Assigning._assignor, "if self._updated.assignor is not None:", "if False:", "a", "a")
@pytest.mark.parametrize(("before", "after"), [("a", "a"), ("a", "b")])
async def test_changed_vote_for_an_assignor_counts_once(before: str, after: str) -> None:
    """Also of a static member that comes back under another id."""
    host = await consumers()
    one = static(host, before)
    one.join(server_assignor="uniform")
    if before == after:
        one.beat(server_assignor="range")
    else:
        one.leave(-2)
        static(host, after).join(server_assignor="range")
    assert host.group.epoch == 3
    assert host.group.assignor(("uniform", "range")) == "range"


@finds(
    Assigning.advance,
    "or self._assignor(assignors) != group.assignor(assignors)",
    "or True",
)
@finds(elected, "max(assignors, key=lambda name: votes.get(name, 0))", "assignors[0]")
async def test_assignor_that_most_members_choose_is_used() -> None:
    host = await consumers()
    one, two = joined(host, "a", "b")
    epoch = host.group.epoch
    one.beat(server_assignor="uniform")
    assert host.group.epoch == epoch, "it was the assignor of the group before"
    two.beat(server_assignor="range")
    assert host.group.epoch == epoch, "uniform has as many, and comes first"
    one.beat(server_assignor="range")
    assert (host.group.epoch, host.group.assignor(("uniform", "range"))) == (epoch + 1, "range")


# -- epochs of the group ---------------------------------------------------------------------------


@finds(Assigning._subscribed, "count > (name in gone.topics)", "True")
@finds(advance, "updated.topics != member.topics or resolved", "resolved")
async def test_group_has_the_hash_of_the_topics_that_are_left() -> None:
    host = await consumers()
    host.topics.create("u", 2)
    (one,) = joined(host, "a", topics=("t", "u"))
    one.beat(subscribed_topic_names=["u"])
    assert host.group.metadata_hash == hash_of_topics(host.table.topics, ["u"])


@finds(Assigning._subscribed, "count > (text == gone.expression)", "True")
@finds(advance, "or (expression_changed and not updated.expression)", "")
@finds(advance, "if expression_changed: assigning.forget_unused(member.expression)", "pass")
@finds(_step, "or updated.expression != before.expression", "")
async def test_kafka_19899_subscription_by_expression_that_ends_is_a_new_epoch() -> None:
    host = await consumers(assignment_interval_ms=1_000)
    host.topics.create("u", 2)
    one = Member(host, "a", (), expression="t|u")
    one.join()
    host.time.pass_ms(1_000)
    one.beat()
    assert one.partitions == 5
    epoch = host.group.epoch
    one.expression = ""
    one.beat(subscribed_topic_regex="")
    assert (host.group.epoch, one.partitions) == (epoch + 1, 0)
    assert host.group.metadata_hash == 0
    assert not host.group.expressions
    check_group(host.group)


@finds(advance, "updated.topics != member.topics or resolved", "updated.topics != member.topics")
@finds(Assigning._subscribed, "names |= group.expressions[text].topics", "pass")
async def test_expression_that_is_resolved_already_counts_at_once() -> None:
    host = await consumers()
    host.topics.create("u", 1)
    await resolved(host, "a")
    two = Member(host, "b", ("u",))
    two.join()
    assert host.group.metadata_hash == hash_of_topics(host.table.topics, ["t", "u"])
    epoch = host.group.epoch
    two.beat(subscribed_topic_regex="t")
    assert host.group.epoch == epoch + 1


@finds(Assigning.forget_unused, "== 1", ">= 1")
@finds(Assigning.forget_unused, "expression in group.expressions and", "")
async def test_expression_is_forgotten_with_its_last_user_alone() -> None:
    host = await consumers()
    one, two = await resolved(host, "a", "b")
    one.beat(subscribed_topic_regex="")
    assert set(host.group.expressions) == {"t"}
    two.beat(subscribed_topic_regex="x")
    assert not host.group.expressions
    before = end(host)
    two.beat(subscribed_topic_regex="")
    assert EXPRESSION not in kinds(host, before), "x was not resolved yet"


@finds(refresh_is_due, "not 0 <= wall_ms - last_ms < _AT_LEAST_MS", "True")
async def test_expressions_are_resolved_every_10_seconds_at_most() -> None:
    host = await consumers()
    (one,) = await resolved(host, "a")
    before = end(host)
    for count in range(9):
        host.topics.create(f"u{count}", 1)
        host.time.pass_ms(1_000)
        one.beat()
    assert EXPRESSION not in kinds(host, before)


@finds(_resolved, "if may_describe(name):", "if True:")
async def test_expression_matches_no_topics_that_the_member_may_not_know() -> None:
    host = await consumers()
    host.topics.create("tt", 1)
    host.client = host.client._replace(may_describe=lambda name: name != "tt")
    (one,) = await resolved(host, "a", expression="t.*")
    assert one.partitions == 3


async def test_kafka_18916_topic_that_an_expression_matched_is_deleted() -> None:
    host = await consumers()
    host.topics.create("tt", 1)
    (one,) = await resolved(host, "a", expression="t.*")
    epoch = host.group.epoch
    assert one.partitions == 4
    host.topics.delete("tt")
    one.beat()
    assert (host.group.epoch, one.partitions) == (epoch + 1, 3)
    assert host.group.metadata_hash == hash_of_topics(host.table.topics, ["t"])


@finds(is_due, "0 <= waited_ms <", "waited_ms <")
async def test_clock_that_was_set_back_does_not_delay_an_assignment() -> None:
    host = await consumers(assignment_interval_ms=1_000)
    (one,) = joined(host, "a")
    later = host.time.now_ms() + 3_600_000
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=2, assignment_timestamp=later
    )
    host.shard.replay(ConsumerGroupRecord(TARGET_EPOCH, GROUP, "", value), -1)
    host.topics.create("t", 4)
    one.beat()
    assert one.partitions == 4


@finds(Assigning.assign, "if new != known:", "if True:")
async def test_target_that_stays_is_not_written_again() -> None:
    host = await consumers()
    host.topics.create("u", 1)
    joined(host, "a")
    before = end(host)
    Member(host, "b", ("u",)).join()
    assert [each.name for each in written(host, before) if each.kind == TARGET] == ["b"]


async def test_kafka_20292_members_that_go_while_an_assignment_is_computed_elsewhere() -> None:
    """They wait: an assignment is never of other members than those of its epoch."""
    host = Consumers(assignment_interval_ms=1_000)
    host.topics.create("t", 300)
    computed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    works: list[Callable[[], Any]] = []
    host.offload = lambda work: (works.append(work), computed)[1]  # type: ignore[method-assign]
    await host.load()
    many = [Member(host, f"m{number}") for number in range(100)]
    one = static(host, "s")
    for each in (*many, one):
        each.join()
    host.time.pass_ms(1_000)
    beating = host.beat("m0", 2)
    gone = host.beat("m5", -1), host.beat("s", -2, instance_id="i")
    back = host.beat("s2", 0, **JOINS | {"instance_id": "i"})
    assert not any(each.done() for each in (beating, *gone, back))
    computed.set_result(works[0]())
    for each in (beating, *gone, back):
        await each
    names = {f"m{number}" for number in range(100)} - {"m5"} | {"s2"}
    assert set(host.group.members) == set(host.group.targets) == names
    check_group(host.group)


test_missing_check_is_found = hunt(globals())
