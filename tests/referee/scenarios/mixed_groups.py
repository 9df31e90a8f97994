"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in consumer groups: members of both protocols."""

from typing import Any

from barnabas.client.groups.protocol import write_assignment
from barnabas.protocol.messages.consumer_group_heartbeat import TopicPartitions
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.join_group import API
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.topic_partition import TopicPartition
from tests.referee import given
from tests.referee.consumers import beat, describe, join, stable, topic
from tests.referee.given import Member, Topic, heartbeat, subscription, sync
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def assignment(to: Topic, *partitions: int) -> bytes:
    return write_assignment([TopicPartition(to.name, each) for each in partitions])


def options_of(to: Topic, **options: Any) -> dict[str, Any]:
    return {"protocols": {"range": subscription(to.name)}} | options


def classic(s: Peer, group: str, to: Topic, *partitions: int, **options: Any) -> Member:
    """Form a classic group of one member, with these partitions."""
    told = options_of(to, **options)
    member_id = given.member_id(s, group, **told)
    joined = s.do(given.join(group, member_id, **told))
    mine = {joined.member_id: assignment(to, *partitions)}
    s.do(sync(group, joined.generation_id, joined.member_id, mine))
    return Member(group, joined.member_id, joined.generation_id)


def enter(s: Peer, group: str, to: Topic, member_id: str = "old", **options: Any) -> Member:
    """Let a classic member join a consumer group, in the version under test: by any id."""
    answer = s.ask(given.join(group, member_id, **options_of(to, **options)))
    return Member(group, answer.member_id, answer.generation_id)


def leave(group: str, member_id: str = "", instance: str | None = None) -> LeaveGroupRequest:
    member = MemberIdentity(member_id=member_id, group_instance_id=instance)
    return LeaveGroupRequest(group_id=group, members=[member])


@scenario
def a_classic_group_is_upgraded(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    old = classic(s, group, to, 0, 1)
    s.ask(join(group, "new", to))
    s.ask(describe(group))
    s.ask(DescribeGroupsRequest(groups=[group]))
    s.ask(heartbeat(old))
    s.ask(sync(group, old.generation, old.id))
    old = enter(s, group, to, old.id)
    s.ask(heartbeat(old))
    s.ask(sync(group, old.generation, old.id))
    s.ask(heartbeat(old))
    s.ask(beat(group, "new", 2))
    s.ask(describe(group))


@scenario
def a_classic_member_joins_a_consumer_group(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "new", to)
    old = enter(s, group, to)
    s.ask(describe(group))
    s.ask(sync(group, old.generation, old.id))
    s.ask(heartbeat(old))
    s.ask(beat(group, "new", 2))
    s.ask(heartbeat(old))
    s.ask(beat(group, "new", 2, topic_partitions=[]))
    s.ask(heartbeat(old))
    old = enter(s, group, to, old.id)
    s.ask(sync(group, old.generation, old.id))
    s.ask(heartbeat(old))
    s.ask(describe(group))


@scenario
def a_classic_member_without_an_id(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "new", to)
    told = options_of(to)
    first = s.ask(given.join(group, **told), pick=lambda r: (r.error_code, bool(r.member_id)))
    s.ask(
        given.join(group, first.member_id, **told),
        pick=lambda r: (r.error_code, r.generation_id, r.protocol_name, r.leader, r.members),
    )


@scenario
def a_cooperative_member_gives_up_a_part(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "new")
    cooperative = {"cooperative-sticky": subscription(to.name)}
    old = enter(s, group, to, protocols=cooperative)
    s.ask(sync(group, old.generation, old.id, protocol_name="cooperative-sticky"))
    s.ask(beat(group, "new", 1, subscribed_topic_names=[to.name]))
    s.ask(heartbeat(old))
    old = enter(s, group, to, old.id, protocols=cooperative)
    s.ask(sync(group, old.generation, old.id, protocol_name="cooperative-sticky"))
    s.ask(heartbeat(old))


@scenario
def classic_members_that_a_group_refuses(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "new", to)
    s.ask(given.join(group, "none", protocol_type="connect"))
    enter(s, group, to, "chosen")
    s.ask(given.join(group, "other", protocols={"strange": subscription(to.name)}))
    s.ask(given.join(group, "other", session_timeout_ms=1))
    s.ask(given.join(group, "other", protocol_type=""))
    s.ask(describe(group))


@scenario
def requests_of_members_that_are_wrong(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "new", to)
    old = enter(s, group, to, "chosen")
    for member_id, generation in (
        ("none", 3),
        ("", 3),
        ("new", 2),
        ("new", 3),
        ("chosen", old.generation - 1),
        ("chosen", old.generation + 1),
        ("chosen", -1),
    ):
        s.ask(heartbeat(Member(group, member_id, generation)))
        s.ask(sync(group, generation, member_id))
    s.ask(heartbeat(old, "unheard-of"))
    s.ask(sync(group, old.generation, old.id, protocol_type="connect"))
    s.ask(sync(group, old.generation, old.id, protocol_name="strange"))
    s.ask(sync(group, old.generation, old.id, protocol_type=None), version=4)
    s.ask(beat(group, "chosen", old.generation + 1))
    s.ask(beat(group, "chosen", old.generation, topic_partitions=[]))
    s.ask(describe(group))


@scenario
def offsets_of_a_classic_member(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    old = classic(s, group, to, 0)
    stable(s, group, "new", to)
    for version in (2, 8, 9, 10):
        for generation in (old.generation, old.generation + 1, old.generation - 1, -1):
            request = given.commit(group, to, 5, member_id=old.id, generation=generation)
            s.ask(request, version=version)
    s.ask(given.commit(group, to, 5, member_id="new", generation=2), version=8)


@scenario
def the_last_member_leaves_and_the_group_is_downgraded(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "new", to)
    old = enter(s, group, to)
    s.ask(sync(group, old.generation, old.id))
    s.ask(beat(group, "new", -1))
    s.ask(DescribeGroupsRequest(groups=[group]))
    s.ask(describe(group))
    for generation in range(old.generation, old.generation + 4):
        s.ask(heartbeat(Member(group, old.id, generation)))
    old = enter(s, group, to, old.id)
    s.ask(sync(group, old.generation, old.id, {old.id: assignment(to, 0)}))
    s.ask(DescribeGroupsRequest(groups=[group]))
    s.ask(ListGroupsRequest(), pick=lambda r: [e for e in r.groups if e.group_id == group])


@scenario
def a_member_is_removed_and_the_group_is_downgraded(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "new", to, instance_id="i")
    enter(s, group, to, "chosen")
    s.ask(leave(group, instance="i"))
    s.ask(DescribeGroupsRequest(groups=[group]))


@scenario
def a_classic_member_leaves(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "new", to)
    enter(s, group, to, "chosen")
    s.ask(leave(group, "chosen"))
    s.ask(leave(group, "chosen"))
    s.ask(describe(group))


@scenario(since=5)
def a_static_member_changes_its_protocol(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    # Members are in the order of their ids, some of which are drawn: this one is the last.
    stable(s, group, "~other", to)
    stable(s, group, "new", to, instance_id="i")
    old = enter(s, group, to, "", group_instance_id="i")
    s.ask(describe(group))
    s.ask(heartbeat(old, "i"))
    s.ask(heartbeat(Member(group, "new", old.generation), "i"))
    s.ask(given.join(group, "new", **options_of(to, group_instance_id="i")))
    s.ask(join(group, "newer", to, instance_id="i"))
    s.ask(describe(group))
    s.ask(heartbeat(old, "i"))


@scenario(since=5)
def the_last_static_member_changes_its_protocol(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "new", to, instance_id="i")
    old = enter(s, group, to, "", group_instance_id="i")
    s.ask(DescribeGroupsRequest(groups=[group]))
    s.ask(sync(group, old.generation, old.id, group_instance_id="i"))
    s.ask(heartbeat(old, "i"))


@scenario(since=5)
def the_last_static_member_changes_its_protocol_and_its_topics(s: Peer) -> None:
    to, other, group = topic(s), topic(s, "u"), s.name("g")
    stable(s, group, "new", to, instance_id="i")
    old = enter(s, group, other, "", group_instance_id="i")
    s.ask(DescribeGroupsRequest(groups=[group]))
    s.ask(sync(group, old.generation, old.id, group_instance_id="i"))


@scenario(since=9)
def classic_groups_that_cannot_be_upgraded(s: Peer) -> None:
    to = topic(s)
    for suffix, options in (
        ("connect", {"protocol_type": "connect"}),
        ("foreign", {"protocols": {"range": b"x"}}),
    ):
        member = given.member(s, suffix, **options)
        s.ask(join(member.group, "new", to))
    strange = given.member(s, "strange")
    s.ask(join(strange.group, "new", to))
    group = s.name("user-data")
    member = classic(s, group, to, 0)
    joined = s.do(given.join(group, member.id, **options_of(to)))
    data = assignment(to, 0)[:-4] + b"\0\0\0\1x"
    s.do(sync(group, joined.generation_id, member.id, {member.id: data}))
    s.ask(join(group, "new", to))


@scenario(since=9)
def a_group_in_its_first_rebalance(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    told = options_of(to)
    joined = s.do(given.join(group, given.member_id(s, group, **told), **told))
    # Which of them gets the partition depends on their ids.
    s.ask(join(group, "new", to), pick=lambda r: (r.error_code, r.member_epoch))
    s.ask(describe(group), pick=lambda r: r.groups[0].group_epoch)
    s.ask(sync(group, joined.generation_id, joined.member_id))


@scenario(since=5)
def the_last_static_member_changes_its_protocol_while_an_assignment_waits(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "new", to, instance_id="i")
    enter(s, group, to, "gone")
    s.do(leave(group, "gone"))
    old = enter(s, group, to, "", group_instance_id="i")
    s.ask(DescribeGroupsRequest(groups=[group]))
    s.ask(sync(group, old.generation, old.id, group_instance_id="i"))


@scenario(since=9)
def a_static_member_upgrades_a_group_that_rebalances(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    classic(s, group, to, 0, 1, group_instance_id="i")
    told = options_of(to)
    waiting = given.member_id(s, group, **told)
    s.post(given.join(group, waiting, **told), on="waiting")
    s.do(DescribeGroupsRequest(groups=[group]), until=_is_preparing)
    s.do(join(group, "new", to, instance_id="i"))
    s.take("waiting")
    s.ask(describe(group), pick=lambda r: r.groups[0].group_epoch)


@scenario(since=9)
def a_static_member_upgrades_a_group_with_partitions_that_have_no_member(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    classic(s, group, to, 0, group_instance_id="i")
    s.do(join(group, "new", to, instance_id="i"))
    s.ask(describe(group), pick=lambda r: r.groups[0].group_epoch)


def _is_preparing(answer: Any) -> bool:
    return bool(answer.groups[0].group_state == "PreparingRebalance")


@scenario
def a_classic_member_of_a_group_whose_assignment_waits(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "new", to)
    enter(s, group, to, "gone")
    old = enter(s, group, to, "chosen")
    s.ask(sync(group, old.generation, old.id))
    s.do(leave(group, "gone"))
    s.ask(describe(group), pick=lambda r: (r.groups[0].group_epoch, r.groups[0].assignment_epoch))
    s.ask(heartbeat(old))
    s.ask(sync(group, old.generation, old.id))


@scenario(since=9)
def a_group_with_an_id_that_has_not_joined(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    member_id = given.member_id(s, group)
    s.ask(join(group, "new", to))
    s.ask(given.join(group, member_id, **options_of(to)))
    s.ask(describe(group))


@scenario(since=9)
def owned_partitions_that_are_unknown(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "new", to)
    enter(s, group, to, "chosen")
    unknown = [TopicPartitions(topic_id=bytes(15) + b"\x07", partitions=[0])]
    s.ask(beat(group, "new", 2, topic_partitions=unknown))
    s.ask(describe(group))
