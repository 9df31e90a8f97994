"""Consumer groups (KIP-848): members, epochs, revocation before assignment, time, and offsets.

The texts of errors and the records are compared with Kafka's own in tests/referee.
"""

import asyncio
import gc
from typing import Any

import pytest

from barnabas.coordinator.group.committing import CommitOffsets, NewOffset
from barnabas.coordinator.group.consumer.advancing import (
    _keep_alive,
    _replace,
    _step,
    _subscribed,
    _take_memory,
    advance,
    require_room,
    take_step,
)
from barnabas.coordinator.group.consumer.assignment import Assigning, is_due
from barnabas.coordinator.group.consumer.expressions import (
    _resolved,
    _some_have_more,
    refresh_is_due,
)
from barnabas.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
from barnabas.coordinator.group.consumer.heartbeat import (
    _dynamic,
    _leave,
    _static,
    _told,
    _validate,
    heartbeat,
    steady,
)
from barnabas.coordinator.group.consumer.leaving import fence
from barnabas.coordinator.group.consumer.reconciliation import _towards
from barnabas.coordinator.group.consumer.records import (
    ConsumerGroupRecord,
    encode_consumer_record,
)
from barnabas.coordinator.group.consumer.sessions import (
    _resume,
    _revocation_over,
    _session_over,
    await_revocation,
    end_session,
)
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.coordinator.group.consumer.topics import Topic, hash_of_topics
from barnabas.coordinator.group.coordinator import GroupShard
from barnabas.coordinator.group.records import decode_record
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.internal.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)
from barnabas.protocol.messages.leave_group import MemberIdentity
from barnabas.protocol.xxh3 import xxh3_64
from tests.support.coordinator.consumers import Consumers, FakeTopics, Member
from tests.support.coordinator.harness import GROUP
from tests.support.mutants import finds, hunt
from tests.support.steps import all_taken


async def consumers(partitions: int = 3, **settings: Any) -> Consumers:
    host = Consumers(**{"assignment_interval_ms": 0} | settings)
    host.topics.create("t", partitions)
    await host.load()
    return host


def members(host: Consumers, count: int) -> list[Member]:
    found = [Member(host, f"m{number}") for number in range(count)]
    for each in found:
        assert each.join() is not None
    return found


def settle(found: list[Member]) -> None:
    for _ in range(4):
        for each in found:
            each.tell()


# -- epochs and assignments ------------------------------------------------------------------------


@finds(Assigning._members, "if not found:", "if False:")
@finds(advance, "if assigning.is_due:", "if False:")
@finds(Assigning.assign, "if member_id == self._updated.member_id: self._target = new", "pass")
@finds(Assigning.assign, "self.assignment_epoch = self.epoch", "pass")
@finds(
    Assigning.assign,
    "draft.records.append(records.target_epoch(group.group_id, self.epoch, draft.now.wall_ms))",
    "pass",
)
@finds(ConsumerMember.is_at, "and self.epoch == assignment_epoch")
async def test_first_member_of_a_new_group_gets_everything_in_epoch_2() -> None:
    host = await consumers()
    (one,) = members(host, 1)
    assert (one.epoch, one.partitions) == (2, 3)
    assert host.group.state.value == "Stable"


@finds(
    Assigning._look_at_topics,
    "if bumps or metadata_hash != group.metadata_hash:",
    "if metadata_hash != group.metadata_hash:",
)
@finds(
    _towards,
    "MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE",
    "MemberState.STABLE",
)
@finds(ConsumerMember.is_at, "self.state is MemberState.STABLE and")
@finds(ConsumerGroup.changed, "self._state = None", "pass")
async def test_second_member_gets_a_partition_once_the_first_has_given_it_up() -> None:
    host = await consumers()
    one, two = members(host, 2)
    assert two.partitions == 0
    assert host.group.state.value == "Reconciling"
    one.beat()
    assert (one.epoch, one.partitions) == (2, 2)
    two.beat()
    assert two.partitions == 0, "the first has not said yet that it has given it up"
    one.tell()
    assert one.epoch == 3
    two.beat()
    assert two.partitions == 1
    assert host.group.state.value == "Stable"


async def test_epochs_are_counted_as_rebalances() -> None:
    host = await consumers()
    one, two = members(host, 2)
    settle([one, two])
    assert (host.counts.consumer_rebalances, host.counts.classic_rebalances) == (2, 0)
    two.leave()
    assert host.counts.consumer_rebalances == 3


@finds(is_due, "epoch > group.assignment_epoch and", "")
async def test_equal_heartbeat_changes_and_writes_nothing() -> None:
    host = await consumers()
    (one,) = members(host, 1)
    host.time.pass_ms(10_000)
    one.beat()
    before = len(host.log.records)
    response = one.beat()
    assert response is not None
    assert response.assignment is None
    assert len(host.log.records) == before


@finds(
    ConsumerGroup._derived_state,
    "if self.epoch > self.assignment_epoch: return ConsumerGroupState.ASSIGNING",
)
async def test_assignments_of_one_group_keep_their_interval() -> None:
    host = await consumers(assignment_interval_ms=1000)
    one, two = members(host, 2)
    assert (host.group.epoch, host.group.assignment_epoch, two.epoch) == (3, 2, 2)
    assert host.group.state.value == "Assigning"
    host.time.pass_ms(1000)
    settle([one, two])
    assert (one.epoch, two.epoch) == (3, 3)
    assert (one.partitions, two.partitions) == (2, 1)


@finds(
    take_step,
    "if member != updated: sessions.await_revocation(draft, group.group_id, member)",
    "pass",
)
async def test_assignment_of_a_large_group_is_computed_outside_of_the_event_loop() -> None:
    host = await consumers(partitions=300, assignment_interval_ms=1_000)
    many = [Member(host, f"m{number}") for number in range(150)]
    for each in many:
        each.join()
    assert host.offloaded == 0
    host.time.pass_ms(1_000)
    request = many[0].consumers.beat("m0", 2)
    response = await request
    assert host.offloaded == 1
    many[0].epoch = response.member_epoch
    assert (response.member_epoch, host.group.assignment_epoch) == (2, 151)
    # It has a timer to give partitions up, as after a short decision.
    assert ("consumer rebalance", GROUP, "m0") in host.timers
    many[0].owned = {
        each.topic_id: list(each.partitions) for each in response.assignment.topic_partitions
    }
    for _ in range(3):
        for each in many:
            each.tell()
    assert {each.partitions for each in many} == {2}
    assert host.group.state.value == "Stable"


@finds(Assigning.assign, "if offloads and settings.offloads_assignment:", "if offloads:")
async def test_assignment_of_a_large_group_is_computed_on_the_event_loop_if_told_so() -> None:
    host = await consumers(partitions=300, assignment_interval_ms=1_000, offloads_assignment=False)
    for number in range(150):
        Member(host, f"m{number}").join()
    host.time.pass_ms(1_000)
    host.beat("m0", 2)
    assert (host.offloaded, host.group.assignment_epoch) == (0, 151)


@finds(steady, "or not group.has_seen(table.topics.version)")
@finds(Assigning.advance, "or not group.has_seen(version)")
@finds(Assigning._look_at_topics, "if bumps or metadata_hash != group.metadata_hash:", "if bumps:")
@finds(Assigning._subscribed, "names.union(self._topics_of(self._updated))", "names")
async def test_new_partitions_are_assigned_at_the_next_heartbeat() -> None:
    host = await consumers()
    (one,) = members(host, 1)
    host.topics.create("t", 5)
    one.beat()
    assert (one.epoch, one.partitions) == (3, 5)


@finds(Assigning._look_at_topics, "group.checked = version, metadata_hash", "pass")
async def test_change_of_another_topic_is_no_new_epoch() -> None:
    host = await consumers()
    (one,) = members(host, 1)
    host.topics.create("other", 1)
    one.beat()
    assert (one.epoch, host.group.has_seen(host.topics.version)) == (2, True)


async def test_topic_that_is_created_later_is_assigned() -> None:
    host = await consumers()
    one = Member(host, "m", ("later",))
    one.join()
    assert (one.epoch, one.partitions) == (2, 0)
    host.topics.create("later", 2)
    one.beat()
    assert (one.epoch, one.partitions) == (3, 2)


@finds(_step, "updated.topics != before.topics or", "")
async def test_partitions_of_a_topic_that_is_no_longer_subscribed_are_lost_at_once() -> None:
    host = await consumers(assignment_interval_ms=1000)
    topic = host.topics.create("u", 1)
    one = Member(host, "m", ("t", "u"))
    one.join()
    one.beat(subscribed_topic_names=["u"])
    assert (host.group.assignment_epoch, host.group.epoch) == (2, 3)
    assert set(one.owned) == {topic}


# -- fencing ---------------------------------------------------------------------------------------


@finds(
    _dynamic,
    "request.member_epoch == JOIN and member_id not in group.members",
    "member_id not in group.members",
)
@finds(ConsumerGroup.require, "if member is None:", "if False:")
async def test_unknown_member_is_refused() -> None:
    host = await consumers()
    members(host, 1)
    stranger = Member(host, "stranger", epoch=2)
    stranger.beat()
    assert stranger.fences == [ErrorCode.UNKNOWN_MEMBER_ID]


@finds(_dynamic, "_require_epoch(member, request)", "pass")
async def test_epoch_from_the_future_is_fenced() -> None:
    host = await consumers()
    (one,) = members(host, 1)
    one.send(7)
    assert one.fences == [ErrorCode.FENCED_MEMBER_EPOCH]


async def test_previous_epoch_is_taken_from_a_member_that_tells_a_part_of_what_it_has() -> None:
    host = await consumers()
    one, two = members(host, 2)
    settle([one, two])
    assert one.epoch == 3
    one.epoch = 2
    assert one.tell() is not None
    assert one.epoch == 3
    one.epoch = 2
    assert one.beat() is None
    assert one.fences == [ErrorCode.FENCED_MEMBER_EPOCH]


@finds(heartbeat, "require_room(group, request.member_id, settings.max_size)", "pass")
@finds(require_room, "and member_id not in group.members")
@finds(require_room, ">= most", "> most")
async def test_group_is_full() -> None:
    host = await consumers(max_size=1)
    one = members(host, 1)[0]
    other = Member(host, "other")
    assert other.join() is None
    assert other.fences == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert one.beat(rack_id="r") is not None


@finds(advance, "_keep_alive(draft, group, updated, memory)", "pass")
@finds(_take_memory, "share.take(member.size)", "share.keep(member.size)")
@finds(_resume, "extend_session(draft, group, member.member_id)", "pass")
async def test_members_of_all_groups_have_a_bound_of_memory() -> None:
    host = await consumers()
    host.memory.limit = 20_000
    (one,) = members(host, 1)
    used = host.memory.used
    assert used > 0
    large = [f"topic-{number}" for number in range(1000)]
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        host.beat("m0", one.epoch, subscribed_topic_names=large)
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        host.beat(
            "m1", 0, subscribed_topic_names=large, rebalance_timeout_ms=1, topic_partitions=[]
        )
    assert host.memory.used == used
    host.time.forget()
    await host.load()
    gc.collect()
    assert host.memory.used == used
    one.leave()
    gc.collect()
    assert host.memory.used == 0


@pytest.mark.parametrize(
    ("epoch", "fields"),
    [
        (0, {}),
        (0, {"rebalance_timeout_ms": 1}),
        (0, {"rebalance_timeout_ms": 1, "topic_partitions": []}),
        (0, {"rebalance_timeout_ms": 1, "topic_partitions": [], "instance_id": ""}),
        (-2, {}),
        (-3, {}),
    ],
)
async def test_request_that_contradicts_itself_is_invalid(
    epoch: int, fields: dict[str, Any]
) -> None:
    host = await consumers()
    with pytest.raises(KafkaError) as refusal:
        host.beat("m", epoch, **fields)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@finds(heartbeat, "_validate(request, client.version, settings)", "pass")
@finds(_validate, "if assignor is not None and assignor not in settings.assignors:", "if False:")
async def test_unknown_assignor_is_refused() -> None:
    host = await consumers()
    one = Member(host, "m")
    assert one.join(server_assignor="none") is None
    assert one.fences == [ErrorCode.UNSUPPORTED_ASSIGNOR]


# -- time ------------------------------------------------------------------------------------------


@finds(steady, "or is_due(table, group, group.epoch, now)")
@finds(steady, "sessions.extend_session(draft, group, member.member_id)", "pass")
@finds(_session_over, "_fence(draft, group, member_id, ", "str(")
async def test_member_without_heartbeats_is_removed() -> None:
    host = await consumers()
    one, two = members(host, 2)
    settle([one, two])
    host.time.pass_ms(44_000)
    one.beat()
    host.time.pass_ms(2_000)
    assert set(host.group.members) == {"m0"}
    one.beat()
    assert one.partitions == 3


@finds(
    take_step,
    "if member != updated: sessions.await_revocation",
    "if True: sessions.await_revocation",
)
@finds(await_revocation, "member.rebalance_timeout_ms", "10 ** 9")
@finds(_revocation_over, "_fence(draft, group, member_id, ", "str(")
async def test_member_that_gives_nothing_up_is_removed_after_its_rebalance_timeout() -> None:
    host = await consumers()
    one, two = members(host, 2)
    used = one.told()
    one.beat()
    for _ in range(31):
        one.beat(topic_partitions=used)
        two.beat()
        host.time.pass_ms(1_000)
    assert set(host.group.members) == {"m1"}
    two.beat()
    assert two.partitions == 3


@finds(_keep_alive, "sessions.extend_session(draft, group, member.member_id)", "pass")
async def test_loaded_coordinator_gives_every_member_a_whole_session() -> None:
    host = await consumers()
    one, two = members(host, 2)
    settle([one, two])
    host.time.pass_ms(40_000)
    host.time.forget()
    await host.load()
    host.time.pass_ms(40_000)
    assert len(host.group.members) == 2
    assert one.beat() is not None
    host.time.pass_ms(10_000)
    assert set(host.group.members) == {"m0"}


# -- leaving ---------------------------------------------------------------------------------------


@finds(_leave, "fence(draft, group, [member])", "pass")
@finds(fence, "if each.member_id not in gone", "if True")
async def test_last_member_leaves_an_empty_group_that_can_be_deleted() -> None:
    host = await consumers()
    (one,) = members(host, 1)
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        host.coordinator.delete(GROUP)
    one.leave()
    assert (host.group.state.value, host.group.epoch, host.group.assignment_epoch) == (
        "Empty",
        3,
        3,
    )
    assert host.coordinator.delete(GROUP) is None
    assert not host.table.consumers
    assert host.timers == set()


async def test_member_is_removed_by_leave_group() -> None:
    host = await consumers()
    members(host, 2)
    leaving = [MemberIdentity(member_id=each) for each in ("m0", "m0", "none")]
    codes = host.coordinator.leave(GROUP, leaving)
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert set(host.group.members) == {"m1"}


@finds(advance, "if replaced is not None: _replace(draft, group, replaced, member)", "pass")
@finds(_static, "group.require_static(instance_id, member_id)", "group.require(member_id)")
@finds(_told, "known if new is None else new", "known")
@finds(_replace, "draft.records.append(records.subscription(group_id, member))", "pass")
@finds(_leave, "away(member)", "member")
@finds(vars(Assigning)["target"].fget, "self._replaced or self._updated", "self._updated")
async def test_static_member_comes_back_to_its_partitions() -> None:
    host = await consumers()
    one = Member(host, "a", instance_id="i")
    one.join()
    usurper = Member(host, "b", instance_id="i")
    usurper.join()
    assert usurper.fences == [ErrorCode.UNRELEASED_INSTANCE_ID]
    one.leave(-2)
    again = Member(host, "b", instance_id="i")
    again.join()
    assert (again.epoch, again.partitions) == (2, 3)
    one.epoch = 2
    one.beat()
    assert one.fences == [ErrorCode.FENCED_INSTANCE_ID]


async def test_static_member_that_stays_away_is_removed() -> None:
    host = await consumers()
    one = Member(host, "a", instance_id="i")
    one.join()
    one.leave(-2)
    host.time.pass_ms(46_000)
    assert not host.group.members


@finds(_replace, "sessions.end_session(draft, group, old.member_id)", "pass")
@finds(end_session, "group.sessions.pop(member_id, None)", "pass")
async def test_static_member_that_came_back_under_its_id_expires_as_others() -> None:
    host = await consumers()
    one = Member(host, "a", instance_id="i")
    one.join()
    one.leave(-2)
    one.join()
    assert one.partitions == 3
    host.time.pass_ms(46_000)
    assert not host.group.members


async def test_member_whose_removal_was_refused_still_expires() -> None:
    host = await consumers()
    (one,) = members(host, 1)
    host.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(KafkaError):
        host.beat("m0", -1)
    host.log.refusal = None
    assert one.beat() is not None
    host.time.pass_ms(46_000)
    assert not host.group.members


# -- expressions -----------------------------------------------------------------------------------


@finds(advance, "refresh_if_due(draft, group, updated, may_describe)", "pass")
@finds(refresh_is_due, "and known[text].version == table.topics.version")
@finds(refresh_is_due, "{new, *group.expression_users}", "{*group.expression_users}")
@finds(
    _resolved,
    "any(before.get(text, frozenset()) != each.topics for text, each in found.items())",
    "False",
)
async def test_expression_is_resolved_behind_the_answer_and_again_for_new_topics() -> None:
    host = await consumers()
    one = Member(host, "m", ())
    one.expression = "t.*"
    one.join()
    assert (one.epoch, one.partitions) == (1, 0)
    host.time.pass_ms(1)
    one.beat()
    assert (one.epoch, one.partitions) == (2, 3)
    host.topics.create("tt", 2)
    host.time.pass_ms(10_000)
    one.beat()
    host.time.pass_ms(1)
    one.beat()
    assert (one.epoch, one.partitions) == (3, 5)
    one.leave()
    assert not host.group.expressions


@finds(steady, "or (group.expression_users and refresh_is_due(table, group, now))")
async def test_topic_that_is_created_shortly_after_a_resolution_is_found_later() -> None:
    host = await consumers()
    one = Member(host, "m", (), expression="t.*")
    one.join()
    host.time.pass_ms(1)
    one.beat()
    host.topics.create("tt", 2)
    for _ in range(12):
        host.time.pass_ms(1_000)
        one.beat()
    assert one.partitions == 5


@finds(refresh_is_due, "and 0 <= wall_ms - known[text].timestamp_ms < again_ms")
@finds(
    _resolved,
    "any(before.get(text, frozenset()) != each.topics for text, each in found.items())",
    "True",
)
async def test_expression_is_resolved_again_from_time_to_time() -> None:
    host = await consumers(regex_refresh_interval_ms=30_000)
    one = Member(host, "m", (), expression="t.*")
    one.join()
    host.time.pass_ms(1)
    first = host.group.expressions["t.*"].timestamp_ms
    for _ in range(31):
        host.time.pass_ms(1_000)
        one.beat()
    assert host.group.expressions["t.*"].timestamp_ms >= first + 30_000
    assert one.epoch == 2


@finds(GroupShard.loaded, "group.forget_versions()", "pass")
async def test_topic_that_was_created_before_a_failover_is_found_after_it() -> None:
    host = await consumers()
    one = Member(host, "m", (), expression="t.*")
    one.join()
    host.time.pass_ms(1)
    one.beat()
    version = host.topics.version
    host.topics.create("tt", 2)
    # The next coordinator began to count later.
    host.topics.version = version
    host.time.forget()
    await host.load()
    for _ in range(3):
        host.time.pass_ms(5_000)
        one.beat()
    assert one.partitions == 5


@finds(_resolved, "or (yield from _some_have_more", "and (yield from _some_have_more")
@finds(
    _some_have_more,
    "member.expression in fresh and not set(names) <= set(member.topics)",
    "False",
)
@pytest.mark.parametrize("alone", [True, False])
async def test_member_whose_new_expression_matches_nothing_keeps_no_part(alone: bool) -> None:
    host = await consumers()
    one = Member(host, "a", (), expression="t")
    everyone = [one] if alone else [one, Member(host, "b")]
    for each in everyone:
        each.join()
        host.time.pass_ms(1)
    settle(everyone)
    assert all(each.partitions for each in everyone)
    one.expression = "nothing"
    one.beat(subscribed_topic_regex="nothing", topic_partitions=one.told())
    for _ in range(3):
        host.time.pass_ms(10_000)
        settle(everyone)
    assert host.group.targets["a"] == {}
    assert [each.partitions for each in everyone] == ([0] if alone else [0, 3])


@finds(_towards, "if subscribed(topic_id) else _NONE", "")
@finds(_subscribed, "in names", "is not None")
async def test_member_is_not_given_back_what_it_unsubscribed_while_its_target_waits() -> None:
    host = await consumers(assignment_interval_ms=1_000)
    topic = host.topics.create("u", 1)
    one = Member(host, "m", ("t", "u"))
    one.join()
    one.tell()
    one.beat(subscribed_topic_names=["u"])
    one.tell()
    one.tell()
    assert (host.group.assignment_epoch, host.group.epoch) == (2, 3)
    assert set(one.owned) == {topic}
    assert host.group.is_free(host.topics.topics["t"].topic_id, 0)


@finds(
    advance, "if expression_changed and updated.expression: compiled(updated.expression)", "pass"
)
async def test_wrong_expression_is_refused() -> None:
    host = await consumers()
    one = Member(host, "m")
    one.expression = "t["
    assert one.join() is None
    assert one.fences == [ErrorCode.INVALID_REGULAR_EXPRESSION]


# -- offsets ---------------------------------------------------------------------------------------


def commit(host: Consumers, member_id: str, epoch: int, index: int = 0, **fields: Any) -> Any:
    topic = host.topics.topics["t"]
    offset = NewOffset("t", index, 7, topic_id=topic.topic_id)
    request = CommitOffsets(GROUP, epoch, member_id, None, [offset], **fields)
    try:
        return host.coordinator.commit_offsets(request)[0]
    except KafkaError as error:
        return error.code


@finds(_towards, "dict.fromkeys(indexes, target_epoch)", "dict.fromkeys(indexes, 0)")
async def test_commit_needs_an_epoch_in_which_the_member_had_the_partition() -> None:
    host = await consumers()
    one, two = members(host, 2)
    settle([one, two])
    assert one.epoch == two.epoch == 3
    kept = next(iter(one.owned.values()))[0]
    gained = next(iter(two.owned.values()))[0]
    assert commit(host, "m0", 3, kept) is ErrorCode.NONE
    assert commit(host, "m0", 2, kept) is ErrorCode.NONE, "KIP-1251"
    assert commit(host, "m0", 2, gained) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(host, "m1", 2, gained) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(host, "m0", 4, kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(host, "none", 3, kept) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(host, "", -1, kept) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(host, "m0", 3, kept, knows_epochs=False) is ErrorCode.UNSUPPORTED_VERSION


async def test_offsets_of_unsubscribed_topics_expire() -> None:
    host = await consumers()
    (one,) = members(host, 1)
    assert commit(host, "m0", one.epoch) is ErrorCode.NONE
    request = CommitOffsets(GROUP, one.epoch, "m0", None, [NewOffset("u", 0, 1)])
    assert host.coordinator.commit_offsets(request) == [ErrorCode.NONE]
    host.time.passed_ms += 8 * 24 * 3_600_000
    await host.coordinator.expire()
    assert set(host.table.offsets.of_group(GROUP)) == {"t"}


# -- the classic protocol --------------------------------------------------------------------------


async def test_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    host = await consumers()
    assert host.commit(5) == [ErrorCode.NONE]
    (one,) = members(host, 1)
    assert GROUP not in host.table.groups
    assert host.table.offsets.of_group(GROUP)
    with pytest.raises(KafkaError, match="is not a classic group"):
        host.coordinator.describe(GROUP)
    assert one.partitions == 3


async def test_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets() -> None:
    host = await consumers()
    (one,) = members(host, 1)
    assert commit(host, "m0", one.epoch) is ErrorCode.NONE
    assert host.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    one.leave()
    joining = asyncio.ensure_future(host.join())
    assert GROUP not in host.table.consumers
    assert GROUP in host.table.groups
    assert host.table.offsets.of_group(GROUP)
    await host.load()
    assert GROUP not in host.table.consumers
    assert host.table.groups[GROUP].protocol_type is None
    joining.cancel()


async def test_heartbeat_to_a_live_classic_group_finds_no_consumer_group() -> None:
    host = await consumers()
    host.join(version=3)
    one = Member(host, "m")
    assert one.join() is None
    assert one.fences == [ErrorCode.GROUP_ID_NOT_FOUND]


async def test_description_has_current_and_target_assignment() -> None:
    host = await consumers()
    members(host, 2)
    described = all_taken(host.coordinator.describe_consumers(GROUP))
    assert (described.group_state, described.group_epoch, described.assignor_name) == (
        "Reconciling",
        3,
        "uniform",
    )
    sizes = [
        [
            sum(len(each.partitions) for each in of.topic_partitions)
            for of in (member.assignment, member.target_assignment)
        ]
        for member in described.members
    ]
    assert sizes == [[3, 2], [0, 1]]


# -- records ---------------------------------------------------------------------------------------


def test_member_has_the_bytes_that_kafka_writes() -> None:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="main",
        client_host="/127.0.0.1",
        subscribed_topic_names=[],
        subscribed_topic_regex="",
        rebalance_timeout_ms=1,
        server_assignor=None,
        classic_member_metadata=None,
    )
    record = ConsumerGroupRecord(5, "g1", "a", value)
    encoded = encode_consumer_record(record)
    assert encoded == (
        b"\x00\x05\x00\x02g1\x00\x01a",
        b"\x00\x00\x00\x00\x05main\x0b/127.0.0.1\x01\x01\x00\x00\x00\x01\x00\x01\x00\x01\x00",
    )
    assert decode_record(*encoded) == record


def test_partitions_without_epochs_of_an_older_kafka_are_as_old_as_the_member() -> None:
    host = Consumers()
    shard = host.new_shard()
    partitions = CurrentTopicPartitions(topic_id=bytes(16), partitions=[1], assignment_epochs=None)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=5,
        previous_member_epoch=4,
        state=77,
        assigned_partitions=[partitions],
        partitions_pending_revocation=[],
    )
    shard.replay(ConsumerGroupRecord(8, "g", "m", value), -1)
    member = shard.state.consumers["g"].members["m"]
    assert member.assigned == {bytes(16): {1: 5}}
    assert member.state is MemberState.UNKNOWN


def test_group_has_the_hash_that_kafka_computes() -> None:
    topics = FakeTopics()
    for name, topic_id, partitions in (
        ("t1", "74e61e06c5e447d4ada7f817a777b71f", 3),
        ("t2", "06336ef0156a4c449667a7b363f1aa57", 2),
    ):
        topics.topics[name] = Topic(name, bytes.fromhex(topic_id), partitions, ())
    assert hash_of_topics(topics, ["t1"]) == 8247630075101993295
    assert hash_of_topics(topics, ["t2", "none", "t1"]) == 5739904706028458518
    assert hash_of_topics(topics, ["none"]) == 0


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 3244421341483603138),
        (1, 14144645293874801883),
        (3, 6864218090047839419),
        (4, 6979084321315492338),
        (8, 4187271766389786872),
        (9, 16816763818684955100),
        (16, 9463720498221773019),
        (17, 11453570474087510824),
        (33, 16612748484618559064),
        (65, 7577525643630617296),
        (97, 16654877133034624244),
        (128, 9639417669764826219),
        (129, 17038879581898686042),
        (240, 3988562325861820517),
        (241, 209643423615708418),
        (1024, 16561859741171264165),
        (1025, 16815387850662484078),
        (3000, 1982823290609869994),
    ],
)
def test_xxh3(length: int, expected: int) -> None:
    assert xxh3_64(bytes(number % 251 for number in range(length))) == expected


test_missing_check_is_found = hunt(globals())
