"""DescribeDelegationToken; see create_delegation_token.py."""

from barnabas.protocol.messages.describe_delegation_token import API
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.create_delegation_token import (
    OTHER,
    change,
    creation,
    description,
    expiration,
    made,
    only,
    shown,
)

scenario = Scenarios(API)


@scenario
def no_owners(s: Peer) -> None:
    token = made(s, creation())
    s.ask(description(), pick=only(token))
    shown(s, token)


@scenario
def tokens_of_an_owner(s: Peer) -> None:
    token = made(s, creation())
    shown(s, token, "alice")
    shown(s, token, "alice", "bob", "alice")
    shown(s, token, "bob")


@scenario
def unknown_owner(s: Peer) -> None:
    made(s, creation())
    s.ask(description(s.name("ghost")))
    s.ask(description("", s.name("ghost")), pick=only())


@scenario
def tokens_of_a_renewer(s: Peer) -> None:
    token = made(s, creation("bob"))
    s.ask(description("bob"), on=OTHER, pick=only(token))
    s.ask(description(everything=True), on=OTHER, pick=only(token))
    s.ask(description("bob"), pick=only(token))


@scenario
def tokens_of_a_requester(s: Peer) -> None:
    owner = s.name("owner")
    token = made(s, creation(owner=owner), version=3)
    shown(s, token, owner)
    shown(s, token, "alice")
    s.ask(description("bob"), on=OTHER, pick=only(token))


@scenario
def token_that_was_deleted(s: Peer) -> None:
    token = made(s, creation())
    change(s, expiration(token))
    shown(s, token)
