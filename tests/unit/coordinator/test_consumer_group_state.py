"""The checks of the partitions of members in consumer groups, of what follows from members, and of
the requests about them, each with a test that misses it: a partition in use has one owner.

The tests take no fixtures, because they run again without each check.
"""

from typing import Any

import pytest

from barnabas.coordinator.group import admin
from barnabas.coordinator.group.consumer import describe as describing
from barnabas.coordinator.group.consumer import replay
from barnabas.coordinator.group.consumer.advancing import take_step
from barnabas.coordinator.group.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    ResolvedExpression,
)
from barnabas.coordinator.group.consumer.offsets import _had, check_commit, check_fetch
from barnabas.coordinator.group.consumer.reconciliation import (
    _towards,
    _unsubscribed,
    _uses,
    reconciled,
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
    CurrentTopicPartitions,
)
from barnabas.protocol.internal.group_metadata import GroupMetadataValue
from tests.support.coordinator.consumers import (
    Consumers,
    Member,
    check_group,
    consumers,
    joined,
    listed,
    outcome,
    resolved,
)
from tests.support.coordinator.harness import GROUP, delete
from tests.support.mutants import cases, finds, hunt
from tests.support.steps import all_taken

A, B = bytes(15) + b"\1", bytes(15) + b"\2"
USED: Any = ConsumerMember.used.fget  # type: ignore[attr-defined]


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
     (_towards, "epoch=member.epoch, previous_epoch=member.epoch,",
      "epoch=target_epoch, previous_epoch=member.epoch,")),
    (at(2, {A: [0, 1]}), {A: [0, 2]}, {A: [1]}, (), (2, "UNREVOKED", {A: [0]}, {A: [1]}),
     (_towards, "owned is None or _uses(owned, revoked)", "owned is None")),
    (at(2, {A: [0], B: [0]}), {A: [0]}, None, (), (2, "UNREVOKED", {A: [0]}, {B: [0]}),
     (_towards, "(*target, *member.assigned)", "target")),
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
    after = reconciled(member, target, 3, told, lambda *each: each not in taken, lambda _: True)
    assert shown(after) == expected
    assert all(
        epoch == (2 if index in member.assigned.get(topic, {}) else 3) or member.epoch == 3
        for topic, indexes in after.assigned.items()
        for index, epoch in indexes.items()
    )


LOSES = "return _unsubscribed(member, owned, subscribed) if has_changed else member"
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
     (_towards, "if subscribed(topic_id) else _NONE", "")),
)  # fmt: skip
def test_step_of_a_member_that_no_longer_subscribes(
    member: ConsumerMember, owned: Any, expected: Any
) -> None:
    told = None if owned is None else listed(owned)
    target = {A: frozenset([0]), B: frozenset([0])}
    subscribed = A.__eq__
    after = reconciled(member, target, 3, told, lambda *_: True, subscribed, has_changed=True)
    assert shown(after) == expected
    assert after == member if shown(member) == expected else after.previous_epoch == member.epoch


@finds(take_step, "group.is_free", "lambda *_: True")
@finds(ConsumerGroup.is_free, "partition not in self.owners.get(topic_id, ())", "True")
@finds(ConsumerGroup._own, "(member.assigned, member.revoking)", "(member.assigned,)")
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


# -- what follows from members ---------------------------------------------------------------------


def holder(name: str, *indexes: int, instance: str | None = "i") -> ConsumerMember:
    return ConsumerMember(name, instance_id=instance, assigned={A: dict.fromkeys(indexes, 2)})


@finds(ConsumerGroup._unlink, "and self.static_ids.get(instance_id) == member_id", "")
@finds(ConsumerGroup._disown, "if owners.get(index) == member.member_id:", "if index in owners:")
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
@finds(ConsumerGroup._disown, "if not owners: self.owners.pop(topic_id, None)", "pass")
@finds(ConsumerGroup._unlink, "_subtract(self.assignor_votes, (member.assignor,))", "pass")
@finds(ConsumerGroup._unlink, "_subtract(self.expression_users, (member.expression,))", "pass")
@finds(ConsumerGroup._unlink, "_subtract(self.subscribers, member.topics)", "pass")
@finds(ConsumerGroup._disown, "(member.assigned, member.revoking)", "(member.assigned,)")
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
@finds(replay._forget, "elif kind == CURRENT and name in group.members:", "elif False:")
async def test_deletion_of_an_assignment_is_its_beginning() -> None:
    host = await consumers()
    joined(host, "a")
    replayed(host, tombstone(CURRENT, GROUP, "a"), tombstone(TARGET_EPOCH, GROUP))
    assert (host.group.assignment_epoch, host.group.assigned_at_ms) == (1, 0)
    assert (host.group.members["a"].epoch, host.group.owners) == (0, {})


@finds(replay.replay, "if kind == TOPICS: return", "")
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


@finds(deletion, "for text in group.expressions", "for text in ()")
@finds(deletion, "for kind in (CURRENT, TARGET):", "for kind in (CURRENT,):")
@finds(
    deletion,
    "yield from (tombstone(MEMBER, group_id, member_id) for member_id in group.members)",
    "pass",
)
def test_deletion_of_a_group_has_its_members_and_expressions() -> None:
    group = ConsumerGroup(GROUP, expressions={"x": ResolvedExpression(frozenset(), 1, 1)})
    group.put(ConsumerMember("a"))
    assert [(each.kind, each.name) for each in deletion(group)] == [
        (CURRENT, "a"),
        (TARGET, "a"),
        (TARGET_EPOCH, ""),
        (MEMBER, "a"),
        (EXPRESSION, "x"),
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
VERSION = "not knows_epochs and not in_transaction and"
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
     (check_commit, VERSION, "False and")),
    ("", -1, 0, IN_TRANSACTION, "NONE", (check_commit, OUTSIDE, "if False:")),
    ("a", -1, 0, IN_TRANSACTION, "STALE_MEMBER_EPOCH", (check_commit, "and not member_id", "")),
    ("", 5, 0, IN_TRANSACTION, "UNKNOWN_MEMBER_ID",
     (check_commit, "in_transaction and epoch < 0 and", "in_transaction and")),
    ("", -1, 0, IN_TRANSACTION | {"has_instance": True}, "UNKNOWN_MEMBER_ID",
     (check_commit, "and not has_instance", "")),
    ("a", 5, 0, IN_TRANSACTION | {"knows_epochs": False}, "NONE",
     (check_commit, VERSION, "not knows_epochs and")),
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
    ("a", 4, "STALE_MEMBER_EPOCH", "if epoch != member.epoch:", "if epoch > member.epoch:"),
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


@finds(USED, "used.setdefault(topic_id, {}).update(indexes)", "pass")
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
