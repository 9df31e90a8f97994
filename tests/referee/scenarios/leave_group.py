"""LeaveGroup: one member, and since version 3 several."""

from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.leave_group import API, LeaveGroupRequest, MemberIdentity
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)

BATCHED = 3


def leave(s: Peer, group: str, *ids: str) -> LeaveGroupRequest:
    if s.version < BATCHED:
        return LeaveGroupRequest(group_id=group, member_id=ids[0])
    members = [MemberIdentity(member_id=id) for id in ids]
    return LeaveGroupRequest(group_id=group, members=members)


def instance(name: str, member_id: str = "") -> MemberIdentity:
    return MemberIdentity(member_id=member_id, group_instance_id=name)


@scenario
def the_only_member(s: Peer) -> None:
    me = given.member(s)
    s.ask(leave(s, me.group, me.id))
    s.ask(DescribeGroupsRequest(groups=[me.group]))
    s.ask(given.heartbeat(me))


@scenario
def the_same_member_again(s: Peer) -> None:
    me = given.member(s)
    s.ask(leave(s, me.group, me.id))
    s.ask(leave(s, me.group, me.id))


@scenario
def an_unknown_member(s: Peer) -> None:
    me = given.member(s)
    s.ask(leave(s, me.group, "unknown"))
    s.ask(given.heartbeat(me))


@scenario
def an_unknown_group(s: Peer) -> None:
    s.ask(leave(s, s.name(), "unknown"))
    s.ask(leave(s, "", "unknown"))


@scenario(since=BATCHED)
def several_and_an_unknown_one(s: Peer) -> None:
    me = given.member(s)
    s.ask(leave(s, me.group, "unknown", me.id))
    s.ask(DescribeGroupsRequest(groups=[me.group]))


@scenario(since=BATCHED)
def no_members(s: Peer) -> None:
    me = given.member(s)
    s.ask(leave(s, me.group))
    s.ask(given.heartbeat(me))


@scenario(since=BATCHED)
def a_static_member_by_its_instance(s: Peer) -> None:
    me = given.member(s, group_instance_id="one")
    s.ask(LeaveGroupRequest(group_id=me.group, members=[instance("one")]))
    s.ask(DescribeGroupsRequest(groups=[me.group]))
    s.ask(given.heartbeat(me, "one"))


@scenario(since=BATCHED)
def a_static_member_with_a_wrong_member_id(s: Peer) -> None:
    me = given.member(s, group_instance_id="one")
    s.ask(LeaveGroupRequest(group_id=me.group, members=[instance("two")]))
    s.ask(LeaveGroupRequest(group_id=me.group, members=[instance("one", "unknown")]))
    s.ask(LeaveGroupRequest(group_id=me.group, members=[instance("one", me.id)]))


@scenario
def a_pending_member(s: Peer) -> None:
    group = s.name("pending")
    id = given.member_id(s, group)
    s.ask(leave(s, group, id))
    s.ask(given.join(group, id))


@scenario
def a_group_without_a_name(s: Peer) -> None:
    s.ask(leave(s, "", "unknown"))
    s.ask(leave(s, s.name(), ""))


@scenario(since=BATCHED)
def the_same_member_twice(s: Peer) -> None:
    me = given.member(s)
    s.ask(leave(s, me.group, me.id, me.id))
    s.ask(given.heartbeat(me))
