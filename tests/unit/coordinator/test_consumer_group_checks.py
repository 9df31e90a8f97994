"""The checks of consumer groups, each with a test that misses it: what members tell, epochs, static
members, revocation before assignment, time, removal, what follows from members, and offsets.

The tests take no fixtures, because they run again without each check.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group import admin
from barnabas.coordinator.group.consumer import describe as describing
from barnabas.coordinator.group.consumer import leaving, replay, sessions
from barnabas.coordinator.group.consumer.assignment import Assigning
from barnabas.coordinator.group.consumer.expressions import _resolved, refresh_is_due
from barnabas.coordinator.group.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    ResolvedExpression,
    elected,
)
from barnabas.coordinator.group.consumer.heartbeat import (
    _after_steps,
    _fill,
    _joined,
    _leave,
    _replace,
    _require_epoch,
    _static,
    _take_memory,
    _take_step,
    _tells_something,
    _updated,
    _validate,
    _validate_join,
    heartbeat,
    steady,
)
from barnabas.coordinator.group.consumer.offsets import _had, check_commit, check_fetch
from barnabas.coordinator.group.consumer.reconciliation import (
    _towards,
    _unsubscribed,
    _uses,
    is_subset,
    reconciled,
    require_known_state,
)
from barnabas.coordinator.group.consumer.records import (
    CURRENT,
    EXPRESSION,
    MEMBER,
    TARGET,
    TARGET_EPOCH,
    TOPICS,
    ConsumerGroupRecord,
    deletion,
    group_epoch,
    partitions_of,
    tombstone,
)
from barnabas.coordinator.group.consumer.records import (
    GROUP as GROUP_EPOCH,
)
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.coordinator.group.coordinator import GroupShard
from barnabas.coordinator.group.records import GroupRecord
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.internal.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
)
from barnabas.protocol.internal.group_metadata import GroupMetadataValue
from barnabas.protocol.messages.consumer_group_heartbeat import TopicPartitions
from barnabas.protocol.messages.leave_group import MemberIdentity
from tests.support.coordinator.consumers import Consumers, Member, check_group
from tests.support.coordinator.harness import GROUP, delete
from tests.support.mutants import cases, finds, hunt
from tests.support.steps import all_taken

A, B = bytes(15) + b"\1", bytes(15) + b"\2"
FENCED = [ErrorCode.FENCED_MEMBER_EPOCH]


async def consumers(partitions: int = 3, **settings: Any) -> Consumers:
    """Return a coordinator with the topic t; it computes assignments at once."""
    host = Consumers(**{"assignment_interval_ms": 0} | settings)
    host.topics.create("t", partitions)
    await host.load()
    return host


def joined(host: Consumers, *names: str, **fields: Any) -> list[Member]:
    """Let members join that have their parts in the end."""
    found = [Member(host, name, **fields) for name in names]
    for each in found:
        assert each.join() is not None
    for _ in range(4):
        for each in found:
            each.tell()
    assert host.group.state.value == "Stable"
    return found


def static(host: Consumers, name: str, instance: str = "i", **fields: Any) -> Member:
    """Return a static member."""
    return Member(host, name, instance_id=instance, **fields)


def written(host: Consumers, since: int = 0) -> list[ConsumerGroupRecord]:
    """Return the records of consumer groups in the log."""
    found = []
    for key, value in host.log.records[since:]:
        assert key is not None
        record = host.shard.decode(key, value)
        if isinstance(record, ConsumerGroupRecord):
            found.append(record)
    return found


def kinds(host: Consumers, since: int = 0) -> Counter[int]:
    """Return how many records of each kind there are."""
    return Counter(each.kind for each in written(host, since))


def end(host: Consumers) -> int:
    return len(host.log.records)


def listed(owned: dict[bytes, list[int]]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=each, partitions=owned[each]) for each in owned]


def outcome(call: Callable[..., Any], *args: Any, **fields: Any) -> str:
    """Return the name of the error of a call."""
    try:
        call(*args, **fields)
    except KafkaError as error:
        return error.code.name
    return "NONE"


# -- what a member tells ---------------------------------------------------------------------------


TWICE = ("subscribed_topic_names", ["u", "u"], "topics", ("u",))


@finds(steady, "or _tells_something(request)", "", "rack_id", "r", "rack_id", "r")
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
    of=_tells_something,
)  # fmt: skip
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
    one.beat()
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


@finds(_take_step, "if member != updated: draft.records.append", "if True: draft.records.append")
@finds(
    heartbeat,
    "if updated != member or (member_id not in group.members and replaced is None):",
    "if True:",
)
@finds(Assigning._is_due, "self.epoch > self.assignment_epoch and", "")
async def test_member_that_has_to_give_up_and_repeats_itself_writes_nothing() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    Member(host, "b").join()
    one.beat()
    assert host.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    before = end(host)
    one.beat()
    assert end(host) == before


@finds(_fill, "is_full or request.member_epoch == JOIN or", "request.member_epoch == JOIN or")
async def test_member_that_tells_everything_is_told_its_assignment() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    one.lost = True
    response = one.tell()
    assert response is not None
    assert response.assignment is not None


JOINS: dict[str, Any] = {
    "rebalance_timeout_ms": 1,
    "topic_partitions": [],
    "subscribed_topic_names": ["t"],
    "instance_id": None,
}
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


@finds(_towards, "previous_epoch=member.epoch, epoch=target_epoch,", "epoch=target_epoch,")
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


@finds(_require_epoch, "epoch == JOIN or", "", MemberState.STABLE)
@finds(_require_epoch, "epoch == JOIN or", "", MemberState.UNREVOKED_PARTITIONS)
@finds(_require_epoch, "epoch == JOIN or", "", MemberState.UNRELEASED_PARTITIONS)
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


@finds(heartbeat, "require_known_state(updated, request.topic_partitions)", "pass", {A: [0]})
@finds(require_known_state, "(owned is None or owned)", "owned", None)
@finds(require_known_state, "(owned is None or owned)", "owned is None", {A: [0]})
@finds(require_known_state, "and (owned is None or owned)", "", {})
@finds(require_known_state, "member.state is MemberState.UNKNOWN and", "False and", None)
@pytest.mark.parametrize("owned", [None, {A: [0]}, {}])
async def test_member_in_a_state_of_a_newer_broker_has_to_use_nothing(
    owned: dict[bytes, list[int]] | None,
) -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    host.shard.replay(unknown_state(), -1)
    one.beat(topic_partitions=None if owned is None else listed(owned))
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


@finds(_static, "if known.epoch != LEAVE_STATIC:", "if False:")
async def test_instance_id_in_use_is_not_taken_over() -> None:
    host = await consumers()
    one = static(host, "a")
    one.join()
    assert outcome(host.beat, "b", 0, **JOINS | {"instance_id": "i"}) == "UNRELEASED_INSTANCE_ID"
    one.beat()
    assert one.fences == []


@finds(_static, ", epoch=JOIN, previous_epoch=0)", ")")
@finds(_static, "epoch=JOIN, previous_epoch=0", "epoch=JOIN")
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
    assert host.group.metadata_hash == host.table.hashes.of_group(topics)
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
    "and self._assignor(assignors) != group.assignor(assignors)",
    "",
)
@finds(elected, "max(assignors, key=votes.__getitem__)", "assignors[0]")
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
@finds(heartbeat, "updated.topics != member.topics or resolved", "resolved")
async def test_group_has_the_hash_of_the_topics_that_are_left() -> None:
    host = await consumers()
    host.topics.create("u", 2)
    (one,) = joined(host, "a", topics=("t", "u"))
    one.beat(subscribed_topic_names=["u"])
    assert host.group.metadata_hash == host.table.hashes.of_group(["u"])


@finds(Assigning._subscribed, "count > (text == gone.expression)", "True")
@finds(heartbeat, "or (expression_changed and not updated.expression)", "")
@finds(heartbeat, "if expression_changed: assigning.forget_unused(member.expression)", "pass")
@finds(
    heartbeat,
    "expression_changed or updated.topics != member.topics",
    "updated.topics != member.topics",
)
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


async def resolved(host: Consumers, *names: str, expression: str = "t") -> list[Member]:
    """Let members join whose expression is resolved."""
    found = [Member(host, name, (), expression=expression) for name in names]
    for each in found:
        each.join()
    host.time.pass_ms(1)
    assert set(host.group.expressions) == {expression}
    for _ in range(3):
        for each in found:
            each.tell()
    return found


@finds(heartbeat, "updated.topics != member.topics or resolved", "updated.topics != member.topics")
@finds(Assigning._subscribed, "names |= group.expressions[text].topics", "pass")
async def test_expression_that_is_resolved_already_counts_at_once() -> None:
    host = await consumers()
    host.topics.create("u", 1)
    await resolved(host, "a")
    two = Member(host, "b", ("u",))
    two.join()
    assert host.group.metadata_hash == host.table.hashes.of_group(["t", "u"])
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
    assert host.group.metadata_hash == host.table.hashes.of_group(["t"])


@finds(Assigning._is_due, "0 <= waited_ms < interval_ms", "waited_ms < interval_ms")
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


@finds(Assigning._assign, "if new != known:", "if True:")
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


# -- revocation before assignment ------------------------------------------------------------------


def at(epoch: int, assigned: Any, revoking: Any = None) -> ConsumerMember:
    """Return a member with partitions, given as indexes by topic id."""
    return ConsumerMember(
        "a",
        epoch=epoch,
        previous_epoch=epoch - 1,
        state=MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE,
        assigned={topic: dict.fromkeys(indexes, epoch) for topic, indexes in assigned.items()},
        revoking={
            topic: dict.fromkeys(indexes, epoch) for topic, indexes in (revoking or {}).items()
        },
    )


def shown(member: ConsumerMember) -> tuple[Any, ...]:
    return (
        member.epoch,
        member.state.name.split("_")[0],
        *(
            {topic: sorted(indexes) for topic, indexes in each.items()}
            for each in (member.assigned, member.revoking)
        ),
    )


GIVES_UP = "if revoked and (owned is None or _uses(owned, revoked)):"
STILL = "if owned is None or _uses(owned, member.revoking):"


@cases(
    "member, target, owned, taken, expected",
    # It has to give up what it uses, or what it may use, before it gets anything.
    (at(2, {A: [0, 1]}), {A: [0, 2]}, None, (), (2, "UNREVOKED", {A: [0]}, {A: [1]}),
     (_towards, GIVES_UP, "if False:"), (_towards, "owned is None or", "owned is not None and"),
     (_towards, "revoking=revoked", "revoking=NO_PARTITIONS"),
     (_towards, "state=MemberState.UNREVOKED_PARTITIONS, previous_epoch=member.epoch,",
      "state=MemberState.UNREVOKED_PARTITIONS, previous_epoch=member.epoch, epoch=target_epoch,")),
    (at(2, {A: [0, 1]}), {A: [0, 2]}, {A: [1]}, (), (2, "UNREVOKED", {A: [0]}, {A: [1]}),
     (_towards, "owned is None or _uses(owned, revoked)", "owned is None")),
    (at(2, {A: [0], B: [0]}), {A: [0]}, None, (), (2, "UNREVOKED", {A: [0]}, {B: [0]}),
     (_towards, "[*target, *member.assigned]", "target")),
    # What it does not use goes at once.
    (at(2, {A: [0, 1]}), {A: [0, 2]}, {A: [0]}, (), (3, "STABLE", {A: [0, 2]}, {}),
     (_towards, GIVES_UP, "if revoked:")),
    # Until it says that it has given up, it has.
    (at(2, {A: [0]}, {A: [1]}), {A: [0]}, None, (), (2, "UNREVOKED", {A: [0]}, {A: [1]}),
     (reconciled, "owned is None or _uses(owned, member.revoking)",
      "owned is not None and _uses(owned, member.revoking)")),
    (at(2, {A: [0]}, {A: [1]}), {A: [0]}, {B: [0], A: [1]}, (),
     (2, "UNREVOKED", {A: [0]}, {A: [1]}),
     (reconciled, STILL, "if owned is None:"), (_uses, "if each.topic_id in partitions", "")),
    (at(2, {A: [0]}, {A: [1]}), {A: [0]}, {A: [0]}, (), (3, "STABLE", {A: [0]}, {})),
    # KAFKA-16147: a partition that comes back to it while it gives it up.
    (at(2, {A: [0]}, {A: [1]}), {A: [0, 1]}, {A: [0]}, [(A, 1)],
     (3, "UNRELEASED", {A: [0]}, {}),
     (_towards, "if is_free(topic_id, index):", "if True:"),
     (_towards, "unreleased = True", "pass")),
    # What others have is not given to it, what it has is not taken.
    (at(2, {A: [0]}), {A: [0, 1]}, None, [(A, 0), (A, 1)], (3, "UNRELEASED", {A: [0]}, {}),
     (_towards, "if is_free(topic_id, index):", "if True:")),
    (at(2, {A: [0]}), {A: [0]}, None, [(A, 0)], (3, "STABLE", {A: [0]}, {}),
     (_towards, "if index not in has:", "if True:")),
    (at(3, {A: [0]}), {A: [0, 1]}, None, (), (3, "STABLE", {A: [0]}, {})),
)  # fmt: skip
def test_step_of_a_member_towards_its_target(
    member: ConsumerMember, target: Any, owned: Any, taken: Any, expected: Any
) -> None:
    target = {topic: frozenset(indexes) for topic, indexes in target.items()}
    told = None if owned is None else listed(owned)
    after = reconciled(member, target, 3, told, lambda *each: each not in taken)
    assert shown(after) == expected
    assert all(
        epoch == (2 if index in member.assigned.get(topic, {}) else 3) or member.epoch == 3
        for topic, indexes in after.assigned.items()
        for index, epoch in indexes.items()
    )


LOSES = "return member if subscribed is None else _unsubscribed(member, owned, subscribed)"
IS_THERE = "elif member.is_at(target_epoch):"
LOST = "if owned is None or _uses(owned, lost):"


@cases(
    "member, owned, expected",
    # The subscription to B has ended, and there is no target yet for that.
    (at(3, {A: [0], B: [0]}), None, (3, "UNREVOKED", {A: [0]}, {B: [0]}),
     (_unsubscribed, LOST, "if False:"), (_unsubscribed, "if not revoking:", "if True:"),
     (reconciled, f"{IS_THERE} {LOSES}", f"{IS_THERE} return member")),
    (at(3, {A: [0], B: [0]}), {B: [0]}, (3, "UNREVOKED", {A: [0]}, {B: [0]}),
     (_unsubscribed, LOST, "if owned is None:")),
    (at(3, {A: [0], B: [0]}), {A: [0]}, (3, "STABLE", {A: [0]}, {}),
     (_unsubscribed, LOST, "if True:")),
    (at(3, {A: [0]}), None, (3, "STABLE", {A: [0]}, {}),
     (_unsubscribed, "if not lost: return member", "")),
    # It loses more while it gives up.
    (at(3, {A: [0], B: [0]}, {A: [1]}), None, (3, "UNREVOKED", {A: [0]}, {A: [1], B: [0]}),
     (reconciled, f"{STILL} {LOSES}", f"{STILL} return member"),
     (_unsubscribed, "for topic_id, epochs in member.revoking.items()", "for topic_id in ()")),
    # The target has B still.
    (at(2, {A: [0], B: [0]}), None, (2, "UNREVOKED", {A: [0]}, {B: [0]}),
     (_towards, "if subscribed is not None and not subscribed(topic_id):", "if False:")),
)  # fmt: skip
def test_step_of_a_member_that_no_longer_subscribes(
    member: ConsumerMember, owned: Any, expected: Any
) -> None:
    told = None if owned is None else listed(owned)
    target = {A: frozenset([0]), B: frozenset([0])}
    after = reconciled(member, target, 3, told, lambda *_: True, lambda topic: topic == A)
    assert shown(after) == expected
    assert after == member if shown(member) == expected else after.previous_epoch == member.epoch


@finds(_take_step, "group.is_free", "lambda *_: True")
@finds(ConsumerGroup.is_free, "partition not in self.owners.get(topic_id, ())", "True")
@finds(ConsumerGroup.put, "(member.assigned, member.revoking)", "(member.assigned,)")
async def test_partition_in_use_is_given_to_nobody_else() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    two = Member(host, "b")
    two.join()
    used = one.told()
    for _ in range(3):
        one.beat(topic_partitions=used)
        two.beat()
        assert (one.epoch, one.partitions, two.partitions) == (2, 2, 0)
        check_group(host.group)
    one.tell()
    two.beat()
    assert two.partitions == 1


# -- time ------------------------------------------------------------------------------------------


def revocations(host: Consumers) -> list[str]:
    """Return the members that have a time to give partitions up."""
    return [key[-1] for key in host.timers if key[0] == sessions._REBALANCE]


@finds(_take_step, "sessions.end_revocation(draft, group.group_id, member.member_id)", "pass")
@finds(sessions.end_revocation, "draft.cancel((_REBALANCE, group_id, member_id))", "pass")
async def test_time_to_give_up_ends_when_the_member_has_given_up() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    Member(host, "b").join()
    one.beat()
    assert revocations(host) == ["a"]
    one.tell()
    assert revocations(host) == []


@finds(
    _take_step,
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


@finds(sessions.end_session, "end_revocation(draft, group.group_id, member_id)", "pass", "leave")
@finds(sessions.end_session, "draft.cancel((_SESSION, group.group_id, member_id))", "pass", "leave")
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


@finds(sessions.resume, "if member.state is MemberState.UNREVOKED_PARTITIONS:", "if False:")
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


@finds(_joined, "error is None and group is not None and member_id in group.members", "group")
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


# -- what follows from members ---------------------------------------------------------------------


def holder(name: str, *indexes: int, instance: str | None = "i") -> ConsumerMember:
    return ConsumerMember(name, instance_id=instance, assigned={A: dict.fromkeys(indexes, 2)})


@finds(ConsumerGroup._unlink, "and self.static_ids.get(instance_id) == member_id", "")
@finds(ConsumerGroup._unlink, "if owners.get(index) == member_id:", "if index in owners:")
def test_kafka_19862_record_of_a_former_owner_takes_nothing_from_the_present_one() -> None:
    """While the log is compacted, a load may find the new owner before the former one ends."""
    group = ConsumerGroup(GROUP)
    group.put(holder("a", 0, 1))
    group.put(holder("b", 0))
    group.remove("a")
    assert group.static_ids == {"i": "b"}
    assert group.owners == {A: {0: "b"}}
    check_group(group)


@finds(ConsumerGroup.remove, "self._unlink(member)", "pass")
@finds(ConsumerGroup._unlink, "if not owners: self.owners.pop(topic_id, None)", "pass")
@finds(ConsumerGroup._unlink, "_subtract(self.assignor_votes, (member.assignor,))", "pass")
@finds(ConsumerGroup._unlink, "_subtract(self.expression_users, (member.expression,))", "pass")
@finds(ConsumerGroup._unlink, "_subtract(self.subscribers, member.topics)", "pass")
@finds(ConsumerGroup._unlink, "(member.assigned, member.revoking)", "(member.assigned,)")
@finds(ConsumerGroup.put, "if before is not None: self._unlink(before)", "pass")
def test_member_that_goes_leaves_nothing_behind() -> None:
    group = ConsumerGroup(GROUP)
    for indexes in ([0, 1], [1]):
        group.put(
            ConsumerMember(
                "a",
                topics=("t",),
                expression="x",
                assignor="range",
                assigned={A: dict.fromkeys(indexes, 2)},
                revoking={B: {0: 2}},
            )
        )
        check_group(group)
    group.remove("a")
    group.remove("a")
    assert group == ConsumerGroup(GROUP)


def replayed(host: Consumers, *found: ConsumerGroupRecord) -> Consumers:
    for each in found:
        host.shard.replay(each, -1)
    return host


@finds(replay.replay, "if group is not None: _forget", "_forget")
@finds(replay._forget, "and name in group.members", "")
@finds(replay._forget, "group.targets.pop(name, None)", "group.targets.pop(name)")
@finds(replay._forget, "group.expressions.pop(name, None)", "group.expressions.pop(name)")
async def test_kafka_17306_deletion_of_what_is_not_there_is_read() -> None:
    """The records that it deletes may be compacted away."""
    host = await consumers()
    gone = [tombstone(kind, GROUP, "x") for kind in (CURRENT, TARGET, MEMBER, EXPRESSION)]
    whole = [tombstone(kind, GROUP) for kind in (TARGET_EPOCH, TOPICS, GROUP_EPOCH)]
    replayed(host, *gone, *whole)
    assert not host.table.consumers
    joined(host, "a")
    replayed(host, *gone)
    check_group(host.group)


@finds(replay._forget, "group.assignment_epoch, group.assigned_at_ms = FIRST_EPOCH, 0", "pass")
@finds(replay._forget, "elif kind == records.CURRENT and name in group.members:", "elif False:")
async def test_deletion_of_an_assignment_is_its_beginning() -> None:
    host = await consumers()
    joined(host, "a")
    replayed(host, tombstone(CURRENT, GROUP, "a"), tombstone(TARGET_EPOCH, GROUP))
    assert (host.group.assignment_epoch, host.group.assigned_at_ms) == (1, 0)
    assert (host.group.members["a"].epoch, host.group.owners) == (0, {})


@finds(replay.replay, "if kind == records.TOPICS: return", "")
async def test_topics_in_the_log_of_an_older_kafka_make_no_group() -> None:
    host = replayed(await consumers(), ConsumerGroupRecord(TOPICS, GROUP, "", object()))
    assert not host.table.consumers


def current(epochs: list[int] | None, partitions: list[int]) -> CurrentTopicPartitions:
    return CurrentTopicPartitions(topic_id=A, partitions=partitions, assignment_epochs=epochs)


@cases(
    "epochs, member_epoch, expected",
    ([4, 5], 6, [4, 5]),
    (None, 6, [6, 6]),
    ([], 6, [6, 6]),
    # A broken record.
    ([4], 6, [6, 6], "if not epochs or len(epochs) != len(each.partitions):", "if not epochs:"),
    # A static member that is away.
    (None, -2, [0, 0], "max(member_epoch, 0)", "member_epoch"),
    of=partitions_of,
)
def test_kafka_20066_partitions_have_the_epochs_of_their_record(
    epochs: list[int] | None, member_epoch: int, expected: list[int]
) -> None:
    found = partitions_of([current(epochs, [0, 1])], member_epoch)
    assert found == {A: dict(zip([0, 1], expected, strict=True))}


EMPTY = GroupMetadataValue(
    protocol_type="",
    generation=1,
    protocol=None,
    leader=None,
    current_state_timestamp=1,
    members=[],
)


@finds(GroupShard._replay_group, "self.state.consumers.pop(group_id, None)", "pass")
def test_kafka_21117_classic_group_takes_the_place_of_a_consumer_group_in_a_load() -> None:
    """While the log is compacted, a load may miss the deletions between the two."""
    shard = Consumers().new_shard()
    shard.replay(group_epoch(GROUP, 3, 0), -1)
    shard.replay(GroupRecord(GROUP, EMPTY), -1)
    assert set(shard.state.groups) == {GROUP}
    assert not shard.state.consumers
    shard.replay(tombstone(GROUP_EPOCH, GROUP), -1)
    assert set(shard.state.groups) == {GROUP}
    shard.replay(group_epoch(GROUP, 4, 0), -1)
    assert not shard.state.groups
    assert set(shard.state.consumers) == {GROUP}


@finds(deletion, "for text in group.expressions:", "for text in ():")
def test_deletion_of_a_group_has_its_expressions() -> None:
    group = ConsumerGroup(GROUP, expressions={"x": ResolvedExpression(frozenset(), 1, 1)})
    assert [(each.kind, each.name) for each in deletion(group)] == [
        (EXPRESSION, "x"),
        (TARGET_EPOCH, ""),
        (TOPICS, ""),
        (GROUP_EPOCH, ""),
    ]


# -- offsets ---------------------------------------------------------------------------------------


def owner() -> ConsumerGroup:
    """Return a group of one member in epoch 5: it got A-0 in epoch 3, and gives A-1 up."""
    group = ConsumerGroup(GROUP)
    group.put(ConsumerMember("a", epoch=5, assigned={A: {0: 3}}, revoking={A: {1: 4}}))
    return group


OUTSIDE = "if in_transaction and epoch < 0 and not member_id and not has_instance:"
VERSION = "if not knows_epochs and not in_transaction:"
IN_TRANSACTION = {"in_transaction": True}


@cases(
    "member_id, epoch, index, change, expected",
    ("a", 5, 9, {}, "NONE"),
    ("a", 6, 0, {}, "STALE_MEMBER_EPOCH", (check_commit, "epoch > member.epoch or", "")),
    ("a", 3, 0, {}, "NONE"),
    ("a", 2, 0, {}, "STALE_MEMBER_EPOCH", (_had, "and epoch >= since", "")),
    ("a", 4, 1, {}, "NONE", (_had, "member.revoking.get(topic_id, {})", "{}")),
    ("a", 4, 2, {}, "STALE_MEMBER_EPOCH", (_had, "since is not None and", "since is None or")),
    ("b", 5, 0, {}, "UNKNOWN_MEMBER_ID"),
    ("", -1, 0, {}, "UNKNOWN_MEMBER_ID",
     (check_commit, "epoch < 0 and not group.members", "epoch < 0"),
     (check_commit, "in_transaction and epoch < 0 and", "epoch < 0 and")),
    ("a", 5, 0, {"knows_epochs": False}, "UNSUPPORTED_VERSION",
     (check_commit, VERSION, "if False:")),
    ("", -1, 0, IN_TRANSACTION, "NONE", (check_commit, OUTSIDE, "if False:")),
    ("a", -1, 0, IN_TRANSACTION, "STALE_MEMBER_EPOCH", (check_commit, "and not member_id", "")),
    ("", 5, 0, IN_TRANSACTION, "UNKNOWN_MEMBER_ID",
     (check_commit, "in_transaction and epoch < 0 and", "in_transaction and")),
    ("", -1, 0, IN_TRANSACTION | {"has_instance": True}, "UNKNOWN_MEMBER_ID",
     (check_commit, "and not has_instance", "")),
    ("a", 5, 0, IN_TRANSACTION | {"knows_epochs": False}, "NONE",
     (check_commit, VERSION, "if not knows_epochs:")),
    ("a", 2, 0, IN_TRANSACTION | {"knows_epochs": False}, "ILLEGAL_GENERATION",
     (check_commit, "if knows_epochs else ErrorCode.ILLEGAL_GENERATION", "")),
)  # fmt: skip
def test_commit_of_a_member(
    member_id: str, epoch: int, index: int, change: dict[str, bool], expected: str
) -> None:
    flags = {"has_instance": False, "in_transaction": False, "knows_epochs": True} | change
    assert outcome(check_commit, owner(), member_id, epoch, [(A, index)], **flags) == expected


@finds(check_commit, "epoch < 0 and not group.members", "not group.members")
def test_commit_of_a_former_member_to_an_empty_group_is_refused() -> None:
    flags = {"has_instance": False, "in_transaction": False, "knows_epochs": True}
    check_commit(ConsumerGroup(GROUP), "", -1, [(A, 0)], **flags)
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        check_commit(ConsumerGroup(GROUP), "a", 3, [(A, 0)], **flags)


@cases(
    "member_id, epoch, expected",
    (None, -1, "NONE"),
    ("a", 5, "NONE"),
    ("a", 4, "STALE_MEMBER_EPOCH", "if epoch != group.require", "if epoch > group.require"),
    ("a", -1, "STALE_MEMBER_EPOCH", "member_id is None and epoch < 0", "epoch < 0"),
    ("b", 5, "UNKNOWN_MEMBER_ID"),
    of=check_fetch,
)
def test_fetch_of_a_member(member_id: str | None, epoch: int, expected: str) -> None:
    assert outcome(check_fetch, owner(), member_id, epoch) == expected


# -- administrators --------------------------------------------------------------------------------


@finds(admin._is_empty, "return not group.members", "return True")
@finds(admin.expire, "_is_empty(group) and", "")
async def test_group_with_members_does_not_expire() -> None:
    host = await consumers()
    joined(host, "a")
    await host.coordinator.expire()
    assert set(host.group.members) == {"a"}


@finds(admin._is_empty, "return not group.members", "return False")
@finds(admin.expire, "and not kept", "")
async def test_empty_group_expires_with_its_last_offset() -> None:
    host = await consumers()
    (one,) = joined(host, "a")
    one.leave()
    assert host.commit(5) == [ErrorCode.NONE]
    await host.coordinator.expire()
    assert GROUP in host.table.consumers
    host.time.pass_ms(8 * 24 * 3_600_000)
    await host.coordinator.expire()
    assert not host.table.consumers


@cases(
    "expression, expected",
    ("", "GROUP_SUBSCRIBED_TO_TOPIC",
     (admin.delete_offsets, "frozenset(filter(group.is_subscribed, topics))", "frozenset()"),
     (admin.delete_offsets, "table.consumers.get(group_id) or", ""),
     (ConsumerGroup.is_subscribed, "topic in self.subscribers or", "")),
    ("t", "GROUP_SUBSCRIBED_TO_TOPIC",
     (ConsumerGroup.is_subscribed, "topic in self.expressions[each].topics", "False")),
    ("u", "NONE"),
)  # fmt: skip
async def test_offsets_of_a_subscribed_topic_are_not_deleted(
    expression: str, expected: str
) -> None:
    host = await consumers()
    assert host.commit(5) == [ErrorCode.NONE]
    host.topics.create("u", 1)
    if expression:
        await resolved(host, "a", expression=expression)
    else:
        joined(host, "a")
    assert delete(host).name == expected


@finds(describing.describe, "if not group_id:", "if False:", "", "INVALID_GROUP_ID")
@finds(describing.describe, "if group is None:", "if False:", "none", "GROUP_ID_NOT_FOUND")
@pytest.mark.parametrize(
    ("group_id", "expected"), [("", "INVALID_GROUP_ID"), ("none", "GROUP_ID_NOT_FOUND")]
)
async def test_group_that_is_not_there_is_not_described(group_id: str, expected: str) -> None:
    host = await consumers()
    found = outcome(lambda: all_taken(host.coordinator.describe_consumers(group_id)))
    assert found == expected


@finds(describing._used, "used.setdefault(topic_id, {}).update(indexes)", "pass")
@finds(describing._assignment, "if name is not None:", "if True:")
async def test_description_has_what_is_still_in_use_of_topics_that_exist() -> None:
    host = await consumers()
    host.topics.create("u", 1)
    (one,) = joined(host, "a", topics=("t", "u"))
    Member(host, "b", ("t",)).join()
    one.beat()
    assert host.group.members["a"].revoking
    host.topics.delete("u")
    described = all_taken(host.coordinator.describe_consumers(GROUP)).members[0]
    (used,) = described.assignment.topic_partitions
    assert (used.topic_name, used.partitions) == ("t", [0, 1, 2])


test_missing_check_is_found = hunt(globals())
