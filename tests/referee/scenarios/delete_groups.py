"""DeleteGroups."""

from barnabas.protocol.messages.delete_groups import API, DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def delete(*groups: str) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=list(groups))


@scenario
def a_group_with_offsets_only(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    given.committed(s, group, to, 4)
    s.ask(delete(group))
    s.ask(given.offset_fetch(10, group, (to, [0])))
    s.ask(DescribeGroupsRequest(groups=[group]))


@scenario
def a_group_with_members(s: Peer) -> None:
    me = given.member(s)
    s.ask(delete(me.group))
    s.ask(given.heartbeat(me))


@scenario
def a_group_whose_members_left(s: Peer) -> None:
    me = given.member(s)
    s.ask(LeaveGroupRequest(group_id=me.group, members=[MemberIdentity(member_id=me.id)]))
    s.ask(delete(me.group))
    s.ask(delete(me.group))


@scenario
def an_unknown_group(s: Peer) -> None:
    s.ask(delete(s.name("unknown")))


@scenario
def a_group_without_a_name(s: Peer) -> None:
    s.ask(delete(""))


@scenario
def several_and_some_that_cannot_be_deleted(s: Peer) -> None:
    to, me, group = given.topic(s), given.member(s), s.name("offsets")
    given.committed(s, group, to, 4)
    s.ask(delete(me.group, group, s.name("unknown")))


@scenario
def the_same_group_twice(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    given.committed(s, group, to, 4)
    s.ask(delete(group, group))


@scenario
def no_groups(s: Peer) -> None:
    s.ask(delete())
