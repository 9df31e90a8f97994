"""Heartbeat."""

from barnabas.protocol.messages.heartbeat import API
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.referee import given
from tests.referee.given import heartbeat, join, sync
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


@scenario
def of_a_stable_member(s: Peer) -> None:
    me = given.member(s)
    s.ask(heartbeat(me))
    s.ask(heartbeat(me))


@scenario
def another_generation(s: Peer) -> None:
    me = given.member(s)
    s.ask(heartbeat(me._replace(generation=me.generation + 1)))
    s.ask(heartbeat(me._replace(generation=-1)))


@scenario
def an_unknown_member_and_an_unknown_group(s: Peer) -> None:
    me = given.member(s)
    s.ask(heartbeat(me._replace(id="unknown")))
    s.ask(heartbeat(me._replace(group=s.name("unknown"))))
    s.ask(heartbeat(me._replace(group="")))


@scenario
def before_the_assignment(s: Peer) -> None:
    group = s.name()
    joined = s.do(join(group, given.member_id(s, group)))
    me = given.Member(group, joined.member_id, joined.generation_id)
    s.ask(heartbeat(me))
    s.ask(sync(group, me.generation, me.id, {me.id: b"mine"}))
    s.ask(heartbeat(me))


@scenario
def it_tells_of_a_rebalance(s: Peer) -> None:
    me = given.member(s)
    s.post(join(me.group, given.member_id(s, me.group, on="other")), on="other")
    s.ask(heartbeat(me), until=lambda r: r.error_code != 0)
    s.ask(join(me.group, me.id))
    s.take(on="other")
    s.ask(heartbeat(me))


@scenario
def after_leaving(s: Peer) -> None:
    me = given.member(s)
    s.ask(LeaveGroupRequest(group_id=me.group, members=[MemberIdentity(member_id=me.id)]))
    s.ask(heartbeat(me))


@scenario(since=3)
def a_static_member_that_was_replaced(s: Peer) -> None:
    me = given.member(s, group_instance_id="one")
    s.ask(heartbeat(me, "one"))
    s.do(join(me.group, group_instance_id="one"))
    s.ask(heartbeat(me, "one"))
    s.ask(heartbeat(me, "two"))


@scenario
def a_group_without_a_name(s: Peer) -> None:
    s.ask(given.heartbeat(given.Member("", "unknown", 1)))
    s.ask(given.heartbeat(given.Member(s.name(), "", -1)))
