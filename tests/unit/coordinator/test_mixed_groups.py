"""Members of both protocols in one group: upgrade, members of the classic protocol, downgrade."""

import asyncio
import gc
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.coordinator.group.committing import CommitOffsets, NewOffset
from barnabas.coordinator.group.consumer import (
    advancing,
    describe,
    downgrade,
    embedded,
    heartbeat,
    leaving,
    sessions,
    upgrade,
)
from barnabas.coordinator.group.consumer import classic as requests
from barnabas.coordinator.group.consumer.downgrade import may_downgrade
from barnabas.coordinator.group.consumer.embedded import read_assignment
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.consumer.offsets import check_commit, check_fetch
from barnabas.coordinator.group.consumer.settings import MigrationPolicy
from barnabas.coordinator.group.consumer.timers import JOIN, REBALANCE, SYNC, timers_of
from barnabas.coordinator.group.coordinator import GroupShard
from barnabas.coordinator.group.group import member_bytes
from barnabas.coordinator.group.rebalance import resume_sessions
from barnabas.coordinator.group.records import decode_record
from barnabas.coordinator.soon import wait
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.internal.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.steps import Steps
from tests.support.coordinator.classic_members import ClassicMember
from tests.support.coordinator.consumers import JOINS, Consumers, Member
from tests.support.coordinator.harness import GROUP, code_of, subscription
from tests.support.mutants import cases, finds, hunt
from tests.support.steps import all_taken

MIGRATION_UPGRADES: Any = MigrationPolicy.upgrades.fget  # type: ignore[attr-defined]
MIGRATION_DOWNGRADES: Any = MigrationPolicy.downgrades.fget  # type: ignore[attr-defined]
UNREADABLE = (("range", b"x"),)
PROTOCOLS = (("range", subscription("t")), ("roundrobin", subscription("t")))


def assigned(*partitions: int, topic: str = "t", user_data: bytes | None = None) -> bytes:
    rows = [AssignedPartitions(topic=topic, partitions=list(partitions))]
    value = ConsumerProtocolAssignment(assigned_partitions=rows, user_data=user_data)
    return b"\0\0" + encode(value, 0)


async def consumers(partitions: int = 4, **settings: Any) -> Consumers:
    host = Consumers(**{"assignment_interval_ms": 0} | settings)
    host.topics.create("t", partitions)
    await host.load()
    return host


async def classic(host: Consumers, *assignments: bytes, **options: Any) -> list[str]:
    """Form a stable classic group in generation 1; return the ids, the leader first."""
    options = {"protocols": PROTOCOLS} | options
    joins = [host.join(**options) for _ in assignments]
    host.time.pass_ms(3_000 * (len(assignments) + 1))
    ids = [(await each).member_id for each in joins]
    syncs = [host.sync(each, 1) for each in ids[1:]]
    lead(host, ids, 1, assignments)
    for each in syncs:
        await each
    assert state(host) == "Stable"
    return ids


def lead(host: Consumers, ids: list[str], generation: int, assignments: Sequence[bytes]) -> None:
    """Send the assignments of the leader, which is the first."""
    host.coordinator.sync(
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=ids[0],
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in zip(ids, assignments, strict=True)
            ],
        )
    )


def state(host: Consumers) -> str:
    """Return the state of the classic group."""
    return host.table.groups[GROUP].state.value


def settle(*members: Member | ClassicMember) -> None:
    for _ in range(4):
        for each in members:
            each.tell() if isinstance(each, Member) else each.beat()


async def pair() -> tuple[Consumers, Member, ClassicMember]:
    """Return a member of each protocol in one group, which have their parts."""
    host = await consumers()
    new, old = Member(host, "new"), ClassicMember(host)
    new.join()
    old.join()
    settle(old, new)
    return host, new, old


def kinds(host: Consumers) -> list[tuple[int, bool]]:
    """Return kind and whether there is a value of every record in the log."""
    return [(int.from_bytes(key[:2]), value is not None) for key, value in host.log.records if key]


class OneByOne:
    """A slicer that takes a step when the test asks for it."""

    def __init__(self) -> None:
        self._work: deque[tuple[Steps[Any], asyncio.Future[Any]]] = deque()

    def run(self, steps: Steps[Any]) -> "asyncio.Future[Any]":
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._work.append((steps, done))
        return done

    def step(self) -> bool:
        """Take a step of the oldest work; return whether there was one."""
        if not self._work:
            return False
        steps, done = self._work[0]
        try:
            next(steps)
        except StopIteration as end:
            self._work.popleft()
            done.set_result(end.value)
        return True


# -- upgrade ---------------------------------------------------------------------------------------


@finds(upgrade.upgrade, "draft.whole = True", "pass")
@finds(downgrade.downgrade, "draft.whole = True", "pass")
async def test_member_of_a_large_group_that_changes_its_type_is_never_unknown() -> None:
    host = Consumers(assignment_interval_ms=0, offloads_assignment=False)
    host.topics.create("t", 60)
    host.runtime._slices = slices = OneByOne()
    await host.load()
    options: Any = {"protocols": PROTOCOLS, "session_ms": 900_000, "rebalance_ms": 900_000}
    joins = [host.join(**options) for _ in range(60)]
    host.time.pass_ms(200_000)
    while slices.step():
        pass
    ids = [(await each).member_id for each in joins]
    lead(host, ids, 1, [assigned(index) for index in range(60)])
    while slices.step():
        pass
    for answer in (host.beat("new", 0, **JOINS), host.beat("new", -1)):
        while slices.step() and not answer.done():
            assert host.heartbeat(ids[-1], 1) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        assert not (await answer).error_code


@finds(heartbeat._group, "if classic.state is not GroupState.EMPTY:", "if False:")
@finds(upgrade.upgrade, "[GroupRecord(group_id, None), *converted]", "converted")
@finds(upgrade._upgraded, "end_timers(draft, classic)", "pass")
@finds(upgrade._upgraded, "sessions.extend_session(draft, group, member.member_id)", "pass")
async def test_first_member_of_the_consumer_protocol_upgrades_the_group() -> None:
    host = await consumers()
    (one,) = await classic(host, assigned(0, 1, 2, 3))
    before = len(host.log.records)
    two = Member(host, "new")
    assert two.join() is not None
    assert GROUP not in host.table.groups
    assert kinds(host)[before:] == [
        (2, False),
        (5, True),
        (3, True),
        (7, True),
        (6, True),
        (8, True),
        # The member that joins, and the next epoch.
        (5, True),
        (3, True),
        (7, True),
        (7, True),
        (6, True),
        (8, True),
    ]
    member = host.group.members[one]
    assert (member.epoch, host.group.epoch, two.epoch, two.partitions) == (1, 2, 2, 0)
    assert sum(map(len, member.assigned.values())) == 4
    assert ("session", GROUP, one) not in host.timers
    assert ("consumer session", GROUP, one) in host.timers
    assert host.heartbeat(one, 1) == ErrorCode.REBALANCE_IN_PROGRESS


@finds(
    requests.join,
    "Change(group, member, updated, replaced, owned)",
    "Change(group, member, updated, replaced, None)",
    False,
)
@finds(requests.sync, "and member.state is not MemberState.UNREVOKED_PARTITIONS", "", True)
@finds(describe._describe_members, "if member.classic is None else _CLASSIC", "", False)
@pytest.mark.parametrize("cooperative", [False, True])
async def test_members_of_both_protocols_share_partitions(cooperative: bool) -> None:
    host = await consumers()
    protocols = PROTOCOLS
    if cooperative:
        protocols = (("cooperative-sticky", subscription("t")),)
    ids = await classic(host, assigned(0, 1), assigned(2, 3), protocols=protocols)
    topic = host.topics.topics["t"].topic_id
    old = [
        ClassicMember(host, each, 1, owned={topic: indexes}, cooperative=cooperative)
        for each, indexes in zip(ids, ([0, 1], [2, 3]), strict=True)
    ]
    new = Member(host, "new")
    new.join()
    settle(*old, new)
    assert sorted([new.partitions, *(each.partitions for each in old)]) == [1, 1, 2]
    assert host.group.state.value == "Stable"
    assert {each.generation for each in old} == {new.epoch} == {host.group.epoch}
    assert [host.heartbeat(each.member_id, each.generation) for each in old] == [0, 0]
    described = all_taken(host.coordinator.describe_consumers(GROUP))
    assert sorted(each.member_type for each in described.members) == [0, 0, 1]
    assert not host.faults


async def test_upgrade_survives_a_failover() -> None:
    host = await consumers()
    (one,) = await classic(host, assigned(0, 1, 2, 3))
    Member(host, "new").join()
    known = host.group
    host.time.forget()
    await host.load()
    assert host.group == known
    assert GROUP not in host.table.groups
    assert host.heartbeat(one, 1) == ErrorCode.REBALANCE_IN_PROGRESS


@finds(upgrade._upgraded, "draft.answer_join(member, again)", "raise AssertionError")
async def test_members_that_wait_are_asked_to_join_the_upgraded_group() -> None:
    host = await consumers()
    await classic(host, assigned(0, 1, 2, 3))
    waiting = host.join(protocols=PROTOCOLS)
    new = Member(host, "new")
    new.join()
    with pytest.raises(KafkaError, match="REBALANCE_IN_PROGRESS"):
        await waiting
    assert len(host.group.members) == 3


@finds(upgrade._upgraded, "error is not None or group is None", "group is None and False")
async def test_refused_upgrade_leaves_the_classic_group() -> None:
    host = await consumers()
    (one,) = await classic(host, assigned(0, 1, 2, 3))
    host.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    new = Member(host, "new")
    assert new.join() is None
    host.log.refusal = None
    assert state(host) == "Stable"
    assert host.heartbeat(one, 1) == 0
    assert new.join() is not None


@cases(
    "options, settings, data, reason",
    ({}, {"migration_policy": MigrationPolicy.DISABLED}, assigned(0), "online upgrade is disabled",
     (upgrade.upgrade, "if not settings.migration_policy.upgrades:", "if False:")),
    ({}, {"migration_policy": MigrationPolicy.DOWNGRADE}, assigned(0), "online upgrade is disabled",
     (MIGRATION_UPGRADES, "MigrationPolicy.UPGRADE,", "MigrationPolicy.DOWNGRADE,")),
    ({"protocol_type": "connect"}, {}, assigned(0), "does not use the consumer embedded protocol",
     (upgrade.upgrade, "if not classic.uses_consumer_protocol:", "if False:")),
    ({}, {}, b"x", "embedded consumer protocol is malformed",
     (upgrade.upgrade, "except ProtocolError:", "except ZeroDivisionError:")),
    ({"protocols": UNREADABLE}, {}, assigned(0), "embedded consumer protocol is malformed"),
    ({}, {}, assigned(0, user_data=b"x"), "an unsupported custom assignor is in use",
     (upgrade._member, "if assignment.user_data:", "if False:")),
)  # fmt: skip
async def test_group_that_cannot_be_upgraded_stays_classic(
    options: dict[str, Any], settings: dict[str, Any], data: bytes, reason: str
) -> None:
    host = await consumers(**settings)
    (one,) = await classic(host, data, **options)
    with pytest.raises(KafkaError, match=reason) as refused:
        host.beat(
            "new",
            0,
            subscribed_topic_names=["t"],
            rebalance_timeout_ms=30_000,
            topic_partitions=[],
        )
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert state(host) == "Stable"
    assert host.heartbeat(one, 1) == 0


@finds(upgrade.upgrade, "if len(classic.members) > settings.max_size:", "if False:")
async def test_larger_group_than_consumer_groups_may_be_stays_classic() -> None:
    host = await consumers(max_size=1)
    await classic(host, assigned(0), assigned(1))
    new = Member(host, "new")
    assert new.join() is None
    assert new.fences == [ErrorCode.GROUP_ID_NOT_FOUND]


@finds(heartbeat._static, "and known.classic is None", "")
@finds(heartbeat._updated, "None, )", "member.classic, )")
async def test_kafka_17228_static_classic_member_that_has_not_left_is_replaced() -> None:
    host = await consumers()
    await classic(host, assigned(0, 1, 2, 3), instance="i")
    new = Member(host, "new", instance_id="i")
    assert new.join() is not None
    assert set(host.group.members) == {"new"}
    assert host.group.classic_members == 0


@finds(upgrade._metadata_hash, "if classic.state", "if True or classic.state")
@finds(
    upgrade.upgrade,
    "records.target(group_id, each.member_id, each.assigned)",
    "records.target(group_id, each.member_id, {})",
)
async def test_kafka_18687_static_member_that_upgrades_a_group_keeps_the_assignment() -> None:
    host = await consumers()
    await classic(host, assigned(0, 1, 2, 3), instance="i")
    new = Member(host, "new", instance_id="i")
    new.join()
    assert (host.group.epoch, host.group.assignment_epoch, new.epoch) == (1, 1, 1)
    assert new.partitions == 4


@finds(upgrade._metadata_hash, "or wanted - assigned", "")
async def test_static_member_that_upgrades_a_group_takes_partitions_that_are_new() -> None:
    """The leader of the classic group may not have seen them."""
    host = await consumers()
    await classic(host, assigned(0, 1, 2, 3), instance="i")
    host.topics.create("t", 5)
    new = Member(host, "new", instance_id="i")
    new.join()
    assert (host.group.epoch, new.partitions) == (2, 5)


@finds(upgrade._metadata_hash, "classic.state is not GroupState.STABLE or", "")
async def test_static_member_that_upgrades_a_group_in_a_rebalance_begins_an_epoch() -> None:
    """Otherwise a member that has come gets nothing, as in Kafka 4.4."""
    host = await consumers()
    await classic(host, assigned(0, 1, 2, 3), instance="i")
    waiting = host.join(protocols=PROTOCOLS)
    new = Member(host, "new", instance_id="i")
    new.join()
    with pytest.raises(KafkaError, match="REBALANCE_IN_PROGRESS"):
        await waiting
    assert sorted(sum(map(len, each.values())) for each in host.group.targets.values()) == [2, 2]


@finds(embedded.read_assignment, "if not data:", "if False:")
async def test_kafka_17733_member_without_an_assignment_is_upgraded() -> None:
    host = await consumers()
    (one,) = await classic(host, b"")
    new = Member(host, "new")
    assert new.join() is not None
    assert set(host.group.members) == {one, "new"}


# -- classic members -------------------------------------------------------------------------------


@finds(sessions.end_sync, "draft.cancel((SYNC, group.group_id, member_id))", "pass")
@finds(
    requests.join, "if not group.supports(request.protocol_type, client.protocols):", "if False:"
)
@finds(requests.join, "if client.needs_id(request):", "if False:")
@finds(ConsumerGroup.supports, "protocol_type == CONSUMER and", "")
@finds(
    ConsumerGroup.supports, "self.classic_protocols.get(name, 0) == self.classic_members", "True"
)
async def test_classic_member_joins_a_consumer_group() -> None:
    host = await consumers()
    new = Member(host, "new")
    new.join()
    asked = host.join(version=9, protocols=PROTOCOLS)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    old = ClassicMember(host, asked.member_id)
    old.join()
    settle(old, new)
    assert (old.partitions, new.partitions) == (2, 2)
    assert (SYNC, GROUP, old.member_id) not in host.timers
    strange = (("strange", subscription("t")),)
    for options in (
        {"protocol_type": "connect", "protocols": PROTOCOLS},
        {"protocols": strange},
        {"protocols": UNREADABLE},
    ):
        refused = host.join("other", **options)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert refused.member_id == ""


@finds(requests._known, "if member.classic is None:", "if False:")
@finds(requests._known, "if request.generation_id != member.epoch:", "if False:")
@finds(check_commit, "and member.classic is None", "")
@finds(check_commit, "if member.classic is not None:", "if False:")
@finds(check_fetch, "if member.classic is None else ErrorCode.ILLEGAL_GENERATION", "")
async def test_requests_of_classic_members_are_checked() -> None:
    host, new, old = await pair()
    generation = old.generation
    assert code_of(lambda: host.heartbeat("none", 1)) == "UNKNOWN_MEMBER_ID"
    assert code_of(lambda: host.heartbeat("new", new.epoch)) == "UNKNOWN_MEMBER_ID"
    assert code_of(lambda: host.heartbeat(old.member_id, generation - 1)) == "ILLEGAL_GENERATION"
    assert code_of(lambda: host.sync(old.member_id, generation + 1)) == "ILLEGAL_GENERATION"
    offset = [NewOffset("t", 0, 1)]
    known = CommitOffsets(GROUP, generation, old.member_id, None, offset, knows_epochs=False)
    assert host.coordinator.commit_offsets(known) == [ErrorCode.NONE]
    stale = known._replace(generation_id=generation - 1)
    for each in (stale, stale._replace(knows_epochs=True)):
        assert code_of(lambda: host.coordinator.commit_offsets(each)) == "ILLEGAL_GENERATION"  # noqa: B023
    assert code_of(lambda: check_fetch(host.group, old.member_id, 1)) == "ILLEGAL_GENERATION"


@finds(requests.sync, "if _is_behind(group, member) and", "if False and")
@finds(requests.sync, "sessions.await_join(draft, group, member)", "pass")
@finds(sessions.await_sync, "draft.cancel((JOIN, group.group_id, member.member_id))", "pass")
async def test_member_behind_has_to_join_before_it_gets_its_assignment() -> None:
    host, _, old = await pair()
    Member(host, "newer").join()
    generation = old.generation
    assert code_of(lambda: host.sync(old.member_id, generation)) == "REBALANCE_IN_PROGRESS"
    assert ("consumer join", GROUP, old.member_id) in host.timers
    old.join()
    assert ("consumer join", GROUP, old.member_id) not in host.timers
    assert old.generation > generation


@finds(
    sessions.extend_session,
    "timeout_ms = member.classic.session_timeout_ms",
    "timeout_ms = 45_000",
    "heartbeat",
)
@finds(sessions.await_join, "and not session.must_join", "", "join")
@finds(requests.heartbeat, "sessions.await_join(draft, group, member)", "pass", "join")
@finds(sessions.await_sync, "_await(draft, SYNC, group, member)", "pass", "sync")
@finds(advancing._joined, "if member.classic is not None:", "if False:", "sync")
@finds(advancing._keep_alive, "or member.classic is not None", "", "sync")
@finds(sessions._too_late, "_fence(draft, group, member_id, ", "str(", "sync")
@pytest.mark.parametrize("asked", ["join", "sync", "heartbeat"])
async def test_classic_member_that_does_nothing_in_time_is_removed(asked: str) -> None:
    host, new, old = await pair()
    if asked == "join":
        Member(host, "newer").join()
        host.heartbeat(old.member_id, old.generation)
    elif asked == "sync":
        host.join(old.member_id, protocols=PROTOCOLS, rebalance_ms=8_000)
    limit = {"join": 60_000, "sync": 8_000, "heartbeat": 10_000}[asked]
    for second in range(limit // 1_000 + 1):
        assert (old.member_id in host.group.members) == (second * 1_000 < limit)
        host.time.pass_ms(1_000)
        new.tell()
        if asked != "heartbeat" and old.member_id in host.group.members:
            host.heartbeat(old.member_id, host.group.members[old.member_id].epoch)
    assert old.member_id not in host.group.members


@finds(
    requests._joining,
    "return successor(known, member_id), known",
    "return ConsumerMember(member_id), None",
)
async def test_static_classic_member_takes_the_place_of_one_of_the_consumer_protocol() -> None:
    host = await consumers()
    one = Member(host, "one", instance_id="i")
    two = Member(host, "two")
    one.join()
    two.join()
    settle(one, two)
    old = ClassicMember(host, instance_id="i")
    old.join()
    assert "one" not in host.group.members
    settle(old, two)
    assert (old.partitions, two.partitions) == (2, 2)
    again = Member(host, "again", instance_id="i")
    assert again.join() is not None
    settle(again, two)
    assert old.member_id not in host.group.members
    assert (again.partitions, two.partitions) == (2, 2)


@finds(advancing.advance, "if replaced is not None and updated.classic is not None:", "if False:")
@finds(advancing._downgrade, "if not rebalances:", "if False:")
@finds(downgrade._downgraded, "draft.cancel(timer)", "pass")
@finds(downgrade._downgraded, "extend_session(draft, group, member)", "pass")
@finds(downgrade._downgraded, "if rebalances:", "if True:")
async def test_kafka_17317_group_is_downgraded_when_a_classic_member_replaces_the_last_other() -> (
    None
):
    host = await consumers()
    one = Member(host, "one", instance_id="i")
    one.join()
    old, last = ClassicMember(host), ClassicMember(host, instance_id="i")
    old.join()
    settle(old, one)
    last.join()
    assert GROUP not in host.table.consumers
    assert (state(host), last.codes) == ("Stable", [])
    assert {("session", GROUP, each.member_id) for each in (old, last)} <= host.timers
    assert {each.instance_id for each in host.table.groups[GROUP].members.values()} == {None, "i"}
    assert not [each for each in host.timers if each[0].startswith("consumer")]
    for _ in range(8):
        host.time.pass_ms(3_000)
        old.beat()
        last.beat()
    assert (state(host), old.partitions, last.partitions) == ("Stable", 2, 2)
    assert not host.faults


async def static_pair(**settings: Any) -> tuple[Consumers, Member, ClassicMember]:
    """Return a static member of a consumer group, and a classic one that will take its place."""
    host = await consumers(**settings)
    host.topics.create("u", 1)
    new = Member(host, "new", instance_id="i")
    new.join()
    return host, new, ClassicMember(host, instance_id="i")


@finds(advancing.advance, "rebalances=is_stale", "rebalances=False")
@finds(advancing._downgrade, "after.epoch = group.epoch", "pass")
async def test_kafka_19546_another_subscription_of_the_classic_member_rebalances() -> None:
    host, new, last = await static_pair()
    last.topics = ("u",)
    last.join()
    assert (state(host), host.table.groups[GROUP].generation) == ("PreparingRebalance", new.epoch)


@finds(
    advancing.advance,
    "is_stale = assigning.epoch > assigning.assignment_epoch",
    "is_stale = updated.topics != member.topics",
)
async def test_kafka_20273_assignment_that_waits_rebalances_the_downgraded_group() -> None:
    host, _, last = await static_pair(assignment_interval_ms=1_000)
    other = Member(host, "other")
    other.join()
    other.leave()
    assert host.group.epoch > host.group.assignment_epoch
    last.join()
    assert state(host) == "PreparingRebalance"


@finds(requests._is_behind, "group.epoch if is_alone else group.assignment_epoch", "group.epoch")
async def test_kafka_20272_classic_member_is_asked_to_join_when_there_is_another_target() -> None:
    host = await consumers(assignment_interval_ms=1_000)
    new, old = Member(host, "new"), ClassicMember(host)
    new.join()
    host.time.pass_ms(1_000)
    old.join()
    other = Member(host, "other")
    other.join()
    assert host.group.epoch > host.group.assignment_epoch
    assert host.heartbeat(old.member_id, old.generation) == 0
    assert host.sync(old.member_id, old.generation).assignment
    host.time.pass_ms(1_000)
    new.tell()
    assert host.heartbeat(old.member_id, old.generation) == ErrorCode.REBALANCE_IN_PROGRESS


@finds(requests.heartbeat, "member.state is not MemberState.UNRELEASED_PARTITIONS or", "True or")
@finds(requests.heartbeat, "or group.awaits(member)", "")
@finds(requests.heartbeat, "or group.awaits(member)", "or True")
@finds(ConsumerGroup.awaits, "not self.is_free(topic_id, index)", "True")
async def test_classic_member_waits_for_partitions_that_others_give_up() -> None:
    host = await consumers()
    new, old = Member(host, "new"), ClassicMember(host)
    new.join()
    old.join()
    assert host.heartbeat(old.member_id, old.generation) == 0
    new.tell()
    assert host.heartbeat(old.member_id, old.generation) == 0
    new.tell()
    assert host.heartbeat(old.member_id, old.generation) == ErrorCode.REBALANCE_IN_PROGRESS


@finds(requests.heartbeat, "and member.state is not MemberState.UNREVOKED_PARTITIONS", "")
async def test_classic_member_that_gives_up_what_it_no_longer_subscribes_to_joins_again() -> None:
    host = await consumers(assignment_interval_ms=1_000)
    host.topics.create("u", 1)
    Member(host, "anchor", ("v",)).join()
    old = ClassicMember(host, cooperative=True, topics=("t", "u"))
    host.time.pass_ms(1_000)
    old.join()
    settle(old)
    old.topics = ("u",)
    host.join(old.member_id, protocols=old.protocols)
    member = host.group.members[old.member_id]
    assert (member.epoch, bool(member.revoking)) == (host.group.assignment_epoch, True)
    assert host.heartbeat(old.member_id, old.generation) == ErrorCode.REBALANCE_IN_PROGRESS


@finds(heartbeat.steady, "or member.classic is not None", "")
async def test_classic_member_that_sends_the_newer_heartbeat_speaks_the_newer_protocol() -> None:
    host, _, old = await pair()
    host.client = host.client._replace(client_id="client", client_host="/127.0.0.1")
    host.beat(old.member_id, old.generation)
    assert host.group.classic_members == 0


@finds(advancing.take_step, "and member.classic is None", "")
@finds(sessions._resume, "and member.classic is None", "")
async def test_classic_member_has_its_times_to_join_and_to_sync_and_no_other() -> None:
    host = await consumers()
    old, new = ClassicMember(host, cooperative=True), Member(host, "new")
    anchor = Member(host, "anchor", ("u",))
    anchor.join()
    old.join()
    new.join()
    host.join(old.member_id, protocols=old.protocols)
    assert host.group.members[old.member_id].revoking
    assert not [each for each in host.timers if each[0] == REBALANCE]
    host.time.forget()
    await host.load()
    assert not [each for each in host.timers if each[0] == REBALANCE]


@finds(sessions.await_sync, "session.must_join = False", "pass")
async def test_classic_member_is_asked_to_join_more_than_once() -> None:
    host, _, old = await pair()
    for name in ("second", "third"):
        Member(host, name).join()
        host.heartbeat(old.member_id, old.generation)
        assert (JOIN, GROUP, old.member_id) in host.timers
        old.join()


@finds(timers_of, "JOIN, SYNC", "SYNC", "join")
@finds(timers_of, "JOIN, SYNC", "JOIN", "sync")
@pytest.mark.parametrize("asked", ["join", "sync"])
async def test_classic_member_that_leaves_has_no_timer(asked: str) -> None:
    host = await consumers()
    old, new = ClassicMember(host), Member(host, "new")
    new.join()
    if asked == "join":
        old.join()
        Member(host, "newer").join()
        host.heartbeat(old.member_id, old.generation)
    else:
        old.member_id = host.join(protocols=PROTOCOLS).member_id
    assert (f"consumer {asked}", GROUP, old.member_id) in host.timers
    host.leave(old.member_id)
    assert old.member_id not in {each[-1] for each in host.timers}


@finds(requests._joining, "if request.member_id:", "if False:")
@finds(requests._known, "if request.group_instance_id is None:", "if True:")
async def test_classic_member_whose_place_is_taken_is_fenced() -> None:
    host = await consumers()
    Member(host, "anchor").join()
    one, two = ClassicMember(host, instance_id="i"), ClassicMember(host, instance_id="i")
    one.join()
    two.join()
    known, generation = one.member_id, two.generation
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert host.join(known, instance="i", protocols=PROTOCOLS).error_code == fenced
    assert code_of(lambda: host.heartbeat(known, generation, "i")) == "FENCED_INSTANCE_ID"


@finds(
    requests.join,
    "require_room(group, request.member_id, table.settings_of(group.group_id).max_size)",
    "pass",
)
async def test_classic_member_finds_a_consumer_group_full() -> None:
    host = await consumers(max_size=1)
    Member(host, "new").join()
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert host.join(protocols=PROTOCOLS).error_code == full


@finds(embedded.write_assignment, "except ProtocolError:", "except ZeroDivisionError:")
async def test_second_protocol_that_cannot_be_read_stops_no_downgrade() -> None:
    host, new, _ = await static_pair()
    both = (("range", subscription("t")), ("roundrobin", b"x"))
    one = host.join(protocols=both).member_id
    host.join(protocols=(("roundrobin", subscription("t")),))
    new.leave()
    assert (state(host), host.table.groups[GROUP].protocol_name) == (
        "PreparingRebalance",
        "roundrobin",
    )
    assert one in host.table.groups[GROUP].members


# -- downgrade -------------------------------------------------------------------------------------


async def mixed(**settings: Any) -> tuple[Consumers, list[ClassicMember], Member]:
    host = await consumers(**settings)
    new = Member(host, "new")
    new.join()
    old = [ClassicMember(host), ClassicMember(host)]
    for each in old:
        each.join()
    settle(*old, new)
    return host, old, new


@finds(
    downgrade._downgraded,
    "group.change_protocols(member, protocols[member.member_id])",
    "pass",
    "leaves",
)
@finds(downgrade._downgraded, "if rebalances:", "if False:", "leaves")
@finds(downgrade._downgraded, "draft.cancel(timer)", "pass", "is removed")
@finds(leaving.fence, "if may_downgrade(draft.table, group, kept):", "if False:", "expires")
@pytest.mark.parametrize("how", ["leaves", "expires", "is removed"])
async def test_group_without_members_of_the_consumer_protocol_becomes_classic(how: str) -> None:
    host, old, new = await mixed()
    epoch, before = host.group.epoch, len(host.log.records)
    if how == "leaves":
        new.leave()
    elif how == "is removed":
        assert host.leave("new") == [ErrorCode.NONE]
    else:
        for _ in range(46):
            host.time.pass_ms(1_000)
            for each in old:
                if GROUP in host.table.consumers:
                    each.beat()
    assert GROUP not in host.table.consumers
    assert kinds(host)[before:] == [
        *[(8, False)] * 3,
        *[(7, False)] * 3,
        (6, False),
        *[(5, False)] * 3,
        (4, False),
        (3, False),
        (2, True),
    ]
    assert (state(host), host.table.groups[GROUP].generation) == ("PreparingRebalance", epoch)
    assert not [each for each in host.timers if each[0].startswith("consumer")]
    members = host.table.groups[GROUP].members
    assert list(members) == [each.member_id for each in old]
    assert [[*dict(each.protocols)] for each in members.values()] == [[*dict(PROTOCOLS)]] * 2
    joins = [host.join(each.member_id, protocols=PROTOCOLS) for each in old]
    joined = [await wait(each) for each in joins]
    assert {each.generation_id for each in joined} == {epoch + 1}
    assert joined[0].leader == old[0].member_id
    assert not host.faults


@finds(downgrade._record, "NOT_SETTLED if rebalances else", "")
@finds(resume_sessions, "and group.state_timestamp_ms == NOT_SETTLED", "and False")
@finds(GroupShard._replay_group, "group.state is GroupState.EMPTY and value.members", "False")
async def test_downgrade_survives_a_failover_and_keeps_offsets() -> None:
    host, old, new = await mixed()
    assert host.commit(5, member_id="new", generation=new.epoch) == [ErrorCode.NONE]
    had = [each.partitions for each in old]
    new.leave()
    live = host.table.groups[GROUP]
    host.time.forget()
    await host.load()
    assert GROUP not in host.table.consumers
    assert host.offset() == 5
    group = host.table.groups[GROUP]
    assert (group.generation, group.leader_id) == (live.generation, live.leader_id)
    assert group.members.keys() == live.members.keys()
    sizes = [
        sum(len(each.partitions) for each in read_assignment(member.assignment).assigned_partitions)
        for member in group.members.values()
    ]
    assert sizes == had
    # The partitions of the member that left are free until all have joined again.
    assert host.heartbeat(old[0].member_id, live.generation) == ErrorCode.REBALANCE_IN_PROGRESS


@finds(
    may_downgrade,
    "and table.settings_of(group.group_id).migration_policy.downgrades",
    "",
    MigrationPolicy.UPGRADE,
)
@finds(
    MIGRATION_DOWNGRADES,
    "MigrationPolicy.DOWNGRADE,",
    "MigrationPolicy.UPGRADE,",
    MigrationPolicy.UPGRADE,
)
@finds(
    requests._is_behind,
    "group.epoch if is_alone else group.assignment_epoch",
    "group.assignment_epoch",
    MigrationPolicy.DISABLED,
)
@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
async def test_group_stays_a_consumer_group_if_the_policy_says_so(policy: MigrationPolicy) -> None:
    host, old, new = await mixed(migration_policy=policy)
    new.leave()
    settle(*old)
    assert [each.partitions for each in old] == [2, 2]
    assert host.group.state.value == "Stable"
    for each in old:
        assert host.leave(each.member_id) == [ErrorCode.NONE]
    assert host.group.state.value == "Empty"


@finds(downgrade._record, "group.members[member_id].used", "group.targets[member_id]")
async def test_group_that_goes_there_and_back_at_once_gives_no_partition_to_two_members() -> None:
    host = await consumers()
    ids = await classic(host, assigned(0, 1, 2), assigned(3))
    new = Member(host, "new")
    new.join()
    new.leave()
    assert state(host) == "PreparingRebalance"
    again = Member(host, "again")
    again.join()
    # The first member has not learnt of any of it yet.
    assert again.partitions == 0
    assert sum(map(len, host.group.members[ids[0]].assigned.values())) == 3


@finds(downgrade._downgraded, "error is not None or group is None", "group is None and False")
async def test_refused_downgrade_is_made_with_the_next_request() -> None:
    host, old, new = await mixed()
    host.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    new.leave()
    host.log.refusal = None
    assert "new" in host.group.members
    assert host.heartbeat(old[0].member_id, old[0].generation) == 0
    assert host.leave("new") == [ErrorCode.NONE]
    assert state(host) == "PreparingRebalance"


async def test_group_goes_there_and_back_while_time_passes() -> None:
    host, old, new = await mixed()
    new.leave()
    joins = [host.join(each.member_id, protocols=PROTOCOLS) for each in old]
    joined = [await wait(each) for each in joins]
    ids, generation = [each.member_id for each in joined], joined[0].generation_id
    last = host.sync(ids[1], generation)
    lead(host, ids, generation, [assigned(0, 1), assigned(2, 3)])
    await last
    for each in old:
        each.generation = generation
    assert state(host) == "Stable"
    assert new.join() is not None
    settle(*old, new)
    assert sorted([new.partitions, *(each.partitions for each in old)]) == [1, 1, 2]
    for _ in range(120):
        host.time.pass_ms(1_000)
        settle(*old, new)
    assert len(host.group.members) == 3
    assert not host.faults


def test_records_of_a_mixed_group_are_read_again() -> None:
    async def play() -> None:
        host, _, new = await mixed()
        new.leave()
        for key, value in host.log.records:
            assert key is not None
            assert decode_record(key, value) is not None

    asyncio.run(play())


@finds(may_downgrade, "and all(each.classic is not None for each in kept)", "", 2**31)
@finds(may_downgrade, "and len(kept) <= table.settings.max_size", "", 1)
@pytest.mark.parametrize("max_size", [1, 2**31])
async def test_group_that_may_not_be_classic_stays_a_consumer_group(
    max_size: int,
) -> None:
    host, old, new = await mixed()
    host.table.settings = host.table.settings._replace(max_size=max_size)
    if max_size > 1:
        Member(host, "newer").join()
    new.leave()
    assert set(host.group.members) >= {each.member_id for each in old}


@finds(downgrade._downgraded, "member.memory.keep", "len")
async def test_members_of_a_downgraded_group_have_their_memory() -> None:
    host, _, new = await mixed()
    new.leave()
    gc.collect()
    members = host.table.groups[GROUP].members.values()
    sizes = [member_bytes(each.protocols, each.assignment) for each in members]
    assert host.memory.used == sum(sizes)


test_missing_check_is_found = hunt(globals())
