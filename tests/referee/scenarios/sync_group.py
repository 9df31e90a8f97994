"""SyncGroup."""

from typing import Any

from barnabas.protocol.messages.sync_group import API
from tests.referee import given
from tests.referee.given import join, sync
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def joined(s: Peer, **options: Any) -> given.Member:
    """Return the only member of a group that waits for its assignment."""
    group = s.name("g")
    id = given.member_id(s, group, **options)
    answer = s.do(join(group, id, **options))
    return given.Member(group, answer.member_id, answer.generation_id)


@scenario
def the_leader_brings_the_assignment(s: Peer) -> None:
    me = joined(s)
    s.ask(sync(me.group, me.generation, me.id, {me.id: b"mine"}))
    s.ask(sync(me.group, me.generation, me.id))


@scenario
def asked_again_in_the_stable_group(s: Peer) -> None:
    me = given.member(s)
    s.ask(sync(me.group, me.generation, me.id))
    s.ask(sync(me.group, me.generation, me.id, {me.id: b"too late"}))
    s.ask(sync(me.group, me.generation, me.id))


@scenario
def the_leader_omits_a_member(s: Peer) -> None:
    me = joined(s)
    s.ask(sync(me.group, me.generation, me.id, {}))


@scenario
def an_assignment_for_no_member(s: Peer) -> None:
    me = joined(s)
    s.ask(sync(me.group, me.generation, me.id, {"unknown": b"x", me.id: b"mine"}))


@scenario
def another_generation(s: Peer) -> None:
    me = joined(s)
    s.ask(sync(me.group, me.generation + 1, me.id, {me.id: b"mine"}))
    s.ask(sync(me.group, me.generation - 1, me.id, {me.id: b"mine"}))
    s.ask(sync(me.group, me.generation, me.id, {me.id: b"mine"}))


@scenario
def an_unknown_member(s: Peer) -> None:
    me = joined(s)
    s.ask(sync(me.group, me.generation, "unknown"))
    s.ask(sync(me.group, me.generation, ""))


@scenario
def an_unknown_group(s: Peer) -> None:
    s.ask(sync(s.name(), 1, "unknown"))
    s.ask(sync("", 1, "unknown"))


@scenario(since=5)
def another_protocol(s: Peer) -> None:
    me = joined(s)
    s.ask(sync(me.group, me.generation, me.id, protocol_type="connect", protocol_name="range"))
    s.ask(sync(me.group, me.generation, me.id, protocol_type="consumer", protocol_name="other"))
    s.ask(sync(me.group, me.generation, me.id, protocol_type=None, protocol_name=None))
    s.ask(sync(me.group, me.generation, me.id, protocol_type="consumer", protocol_name="range"))


@scenario(since=3)
def a_static_member_that_was_replaced(s: Peer) -> None:
    first = joined(s, group_instance_id="one")
    mine = {first.id: b"mine"}
    s.ask(sync(first.group, first.generation, first.id, mine, group_instance_id="one"))
    second = s.do(join(first.group, group_instance_id="one"))
    s.ask(sync(first.group, second.generation_id, first.id, group_instance_id="one"))
    s.ask(sync(first.group, second.generation_id, second.member_id, group_instance_id="one"))
    s.ask(sync(first.group, second.generation_id, second.member_id, group_instance_id="two"))


@scenario
def while_the_group_rebalances(s: Peer) -> None:
    me = given.member(s)
    s.post(join(me.group, given.member_id(s, me.group, on="other")), on="other")
    s.do(given.heartbeat(me), until=lambda r: r.error_code != 0)
    s.ask(sync(me.group, me.generation, me.id))


@scenario
def a_group_without_a_name(s: Peer) -> None:
    s.ask(sync("", 1, "unknown"))
    s.ask(sync(s.name(), -1, ""))


@scenario
def an_assignment_by_a_member_that_is_not_the_leader(s: Peer) -> None:
    me = given.member(s)
    s.ask(sync(me.group, me.generation, me.id, {me.id: b"another", "unknown": b"x"}))
    s.ask(sync(me.group, me.generation, me.id))
