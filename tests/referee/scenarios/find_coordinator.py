"""FindCoordinator: one key, and since version 4 several."""

from typing import Any

from barnabas.protocol.messages.find_coordinator import API, FindCoordinatorRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHED = 4


def find(s: Peer, *keys: str, kind: int = GROUP) -> FindCoordinatorRequest:
    if s.version >= BATCHED:
        return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind)
    return FindCoordinatorRequest(key=keys[0], key_type=kind)


@scenario
def of_a_group(s: Peer) -> None:
    s.ask(find(s, s.name()))


@scenario
def the_coordinator_found_accepts_commits(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    s.ask(find(s, group))
    s.ask(given.commit(group, to, 5))
    s.ask(find(s, group))


@scenario
def of_a_group_without_a_name(s: Peer) -> None:
    s.ask(find(s, ""))


@scenario(since=BATCHED)
def of_several_groups(s: Peer) -> None:
    s.ask(find(s, s.name("a"), s.name("b"), s.name("c")))


@scenario(since=BATCHED)
def of_no_group(s: Peer) -> None:
    s.ask(find(s))


@scenario(since=BATCHED)
def of_the_same_group_twice(s: Peer) -> None:
    s.ask(find(s, s.name("a"), s.name("a")))


@scenario(since=1)
def of_a_transaction(s: Peer) -> None:
    s.ask(find(s, s.name(), kind=TRANSACTION))


@scenario(since=1)
def of_an_unknown_kind(s: Peer) -> None:
    s.ask(find(s, s.name(), kind=9))
    s.ask(find(s, s.name(), kind=-1))


@scenario(since=1)
def of_a_share_group_that_is_switched_off(s: Peer) -> None:
    s.ask(find(s, f"{s.name()}:aaaaaaaaaaaaaaaaaaaaaa:0", kind=SHARE))


@scenario
def after_members_joined_it_is_the_same(s: Peer) -> None:
    first: Any = s.ask(find(s, s.name("g")))
    member = given.member(s)
    s.ask(find(s, member.group))
    assert first is not None
