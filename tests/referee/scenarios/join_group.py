"""JoinGroup."""

from typing import Any

from barnabas.protocol.messages.join_group import API
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.referee import given
from tests.referee.given import join, subscription, sync
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)

MEMBER_ID_REQUIRED = 4
INSTANCE_IDS = 5


def enter(s: Peer, group: str, on: str = "main", **options: Any) -> given.Member:
    """Join on a connection, twice if the version requires it."""
    answer = s.ask(join(group, **options), on=on)
    if answer.error_code:
        answer = s.ask(join(group, answer.member_id, **options), on=on)
    return given.Member(group, answer.member_id, answer.generation_id)


@scenario
def the_first_member_leads(s: Peer) -> None:
    me = enter(s, s.name())
    s.ask(sync(me.group, me.generation, me.id, {me.id: b"all"}))


@scenario
def joining_again_starts_a_generation(s: Peer) -> None:
    me = enter(s, s.name())
    s.ask(sync(me.group, me.generation, me.id, {me.id: b"all"}))
    s.ask(join(me.group, me.id))
    s.ask(join(me.group, me.id, protocols={"range": subscription("other")}))


@scenario
def a_second_member_joins(s: Peer) -> None:
    a = enter(s, s.name(), on="a")
    s.ask(sync(a.group, a.generation, a.id, {a.id: b"all"}), on="a")
    b = ""
    if s.version >= MEMBER_ID_REQUIRED:
        b = s.ask(join(a.group), on="b").member_id
    s.post(join(a.group, b), on="b")
    beat = given.heartbeat(a)
    s.do(beat, until=lambda r: r.error_code != 0)
    s.ask(join(a.group, a.id), on="a")
    joined = s.take(on="b")
    s.post(sync(a.group, joined.generation_id, joined.member_id), on="b")
    assigned = {a.id: b"for a", joined.member_id: b"for b"}
    s.ask(sync(a.group, joined.generation_id, a.id, assigned), on="a")
    s.take(on="b")


@scenario
def the_protocol_that_all_support_wins(s: Peer) -> None:
    both = {"x": subscription("ax"), "y": subscription("ay")}
    a = enter(s, s.name(), on="a", protocols=both)
    s.ask(sync(a.group, a.generation, a.id, protocol_name="x"), on="a")
    only_y = {"y": subscription("by")}
    b = given.member_id(s, a.group, on="b", protocols=only_y)
    s.post(join(a.group, b, protocols=only_y), on="b")
    s.do(given.heartbeat(a), until=lambda r: r.error_code != 0)
    s.ask(join(a.group, a.id, protocols=both), on="a")
    s.take(on="b")


@scenario
def protocols_that_do_not_fit_the_group(s: Peer) -> None:
    me = given.member(s)
    s.ask(join(me.group, protocols={"unheard-of": subscription("t")}))
    s.ask(join(me.group, protocol_type="connect"))


@scenario
def without_protocols(s: Peer) -> None:
    request = join(s.name("none"))
    request.protocols = []
    s.ask(request)
    s.ask(join(s.name("typeless"), protocol_type=""))


@scenario
def a_group_without_a_name(s: Peer) -> None:
    s.ask(join(""))


@scenario
def session_timeouts_out_of_range(s: Peer) -> None:
    s.ask(join(s.name(), session_timeout_ms=1))
    s.ask(join(s.name(), session_timeout_ms=2_000_000_000))


@scenario
def an_unknown_member(s: Peer) -> None:
    me = given.member(s)
    s.ask(join(me.group, "unknown"))
    s.ask(join(s.name("new"), "unknown"))


@scenario(since=MEMBER_ID_REQUIRED)
def an_unused_member_id_of_another_group(s: Peer) -> None:
    first = s.ask(join(s.name("a")))
    s.ask(join(s.name("b"), first.member_id))
    s.ask(join(s.name("a"), first.member_id))


@scenario(since=INSTANCE_IDS)
def a_static_member_comes_back(s: Peer) -> None:
    group = s.name()
    first = enter(s, group, group_instance_id="one")
    s.ask(sync(group, first.generation, first.id, {first.id: b"all"}, group_instance_id="one"))
    again = enter(s, group, group_instance_id="one")
    s.ask(sync(group, again.generation, again.id, group_instance_id="one"))
    s.ask(join(group, first.id, group_instance_id="one"))


@scenario(since=INSTANCE_IDS)
def a_static_member_with_a_new_subscription(s: Peer) -> None:
    group = s.name()
    first = enter(s, group, group_instance_id="one")
    s.ask(sync(group, first.generation, first.id, {first.id: b"all"}, group_instance_id="one"))
    enter(s, group, group_instance_id="one", protocols={"range": subscription("changed")})


@scenario(since=INSTANCE_IDS)
def an_unknown_static_member_with_a_member_id(s: Peer) -> None:
    me = given.member(s)
    s.ask(join(me.group, "unknown", group_instance_id="unheard-of"))


@scenario
def the_last_member_leaves_and_another_comes(s: Peer) -> None:
    me = given.member(s)
    s.do(LeaveGroupRequest(group_id=me.group, members=[MemberIdentity(member_id=me.id)]))
    enter(s, me.group, protocols={"other": b""}, protocol_type="other")


@scenario
def a_protocol_type_that_changes(s: Peer) -> None:
    me = given.member(s)
    s.ask(join(me.group, me.id, protocol_type="connect"))
    s.ask(given.heartbeat(me))


@scenario
def timeouts_below_zero(s: Peer) -> None:
    s.ask(join(s.name(), session_timeout_ms=-1))
    s.ask(join(s.name(), session_timeout_ms=0))


@scenario
def a_group_that_has_offsets_already(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    given.committed(s, group, to, 4)
    me = enter(s, group, on="a")
    s.ask(sync(me.group, me.generation, me.id, {me.id: b"mine"}), on="a")
    s.ask(given.offset_fetch(10, group, (to, [0])))
