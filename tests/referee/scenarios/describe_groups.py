"""DescribeGroups."""

from barnabas.protocol.messages.describe_groups import API, DescribeGroupsRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def describe(*groups: str, **options: bool) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups), **options)


@scenario
def a_stable_group(s: Peer) -> None:
    me = given.member(s)
    s.ask(describe(me.group))


@scenario
def a_group_through_its_states(s: Peer) -> None:
    group = s.name("g")
    joined = s.do(given.join(group, given.member_id(s, group)))
    s.ask(describe(group))
    mine = {joined.member_id: b"mine"}
    s.do(given.sync(group, joined.generation_id, joined.member_id, mine))
    s.ask(describe(group))
    s.post(given.join(group, given.member_id(s, group, on="other")), on="other")
    me = given.Member(group, joined.member_id, joined.generation_id)
    s.do(given.heartbeat(me), until=lambda r: r.error_code != 0)
    s.ask(describe(group))


@scenario
def a_group_with_offsets_only(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    given.committed(s, group, to, 1)
    s.ask(describe(group))


@scenario
def a_group_whose_members_left(s: Peer) -> None:
    me = given.member(s)
    s.ask(LeaveGroupRequest(group_id=me.group, members=[MemberIdentity(member_id=me.id)]))
    s.ask(describe(me.group))


@scenario
def an_unknown_group(s: Peer) -> None:
    s.ask(describe(s.name("unknown")))


@scenario
def a_group_without_a_name(s: Peer) -> None:
    s.ask(describe(""))


@scenario
def several_groups(s: Peer) -> None:
    a, b = given.member(s, "a"), given.member(s, "b", protocol_type="connect")
    s.ask(describe(a.group, s.name("unknown"), b.group))


@scenario
def no_groups(s: Peer) -> None:
    s.ask(describe())


@scenario(since=3)
def authorized_operations_without_an_authorizer(s: Peer) -> None:
    me = given.member(s)
    s.ask(describe(me.group, include_authorized_operations=True))


@scenario(since=4)
def a_static_member(s: Peer) -> None:
    me = given.member(s, group_instance_id="one")
    s.ask(describe(me.group))


@scenario
def the_same_group_twice(s: Peer) -> None:
    me = given.member(s)
    s.ask(describe(me.group, me.group))
