"""ListGroups, by state and type."""

from typing import Any

from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import API, ListGroupsRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.api_versions import frame

scenario = Scenarios(API)

STATES = 4
TYPES = 5


def mine(s: Peer) -> Any:
    """Select the groups of this scenario."""

    def pick(answer: Any) -> Any:
        answer.groups = [g for g in answer.groups if g.group_id.startswith(s.name(""))]
        answer.groups.sort(key=lambda group: group.group_id)
        return answer

    return pick


def three_groups(s: Peer) -> None:
    given.member(s, "stable")
    given.committed(s, s.name("offsets"), given.topic(s), 1)
    left = given.member(s, "left", protocol_type="connect")
    s.do(LeaveGroupRequest(group_id=left.group, members=[MemberIdentity(member_id=left.id)]))


@scenario
def all_of_them(s: Peer) -> None:
    three_groups(s)
    s.ask(ListGroupsRequest(), pick=mine(s))


@scenario
def none_of_mine(s: Peer) -> None:
    s.ask(ListGroupsRequest(), pick=mine(s))


@scenario
def they_come_and_go(s: Peer) -> None:
    me = given.member(s)
    s.ask(ListGroupsRequest(), pick=mine(s))
    s.ask(LeaveGroupRequest(group_id=me.group, members=[MemberIdentity(member_id=me.id)]))
    s.ask(ListGroupsRequest(), pick=mine(s))


@scenario(since=STATES)
def by_state(s: Peer) -> None:
    three_groups(s)
    for states in (["Stable"], ["Empty"], ["Stable", "Empty"], ["stable"], ["Dead"]):
        s.ask(ListGroupsRequest(states_filter=states), pick=mine(s))


@scenario(since=STATES)
def a_state_that_does_not_exist(s: Peer) -> None:
    three_groups(s)
    s.ask(ListGroupsRequest(states_filter=["Sleepy"]), pick=mine(s))


@scenario(since=TYPES)
def by_type(s: Peer) -> None:
    three_groups(s)
    for types in (["classic"], ["Classic"], ["consumer"], ["classic", "consumer"]):
        s.ask(ListGroupsRequest(types_filter=types), pick=mine(s))


@scenario(since=TYPES)
def a_type_that_does_not_exist(s: Peer) -> None:
    s.ask(ListGroupsRequest(types_filter=["sleepy"]), pick=mine(s))


@scenario
def a_header_that_is_cut_off(s: Peer) -> None:
    s.ask_frame(frame(API.key, s.version)[:-1])
    s.ask(ListGroupsRequest(), pick=mine(s))
