"""DescribeUserScramCredentials of users that do not exist, and of users named twice."""

from barnabas.protocol.messages.describe_user_scram_credentials import API
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.alter_user_scram_credentials import (
    SHA_256,
    SHA_512,
    changes,
    shows,
    upsertion,
    users,
)

scenario = Scenarios(API)


@scenario
def unknown_user(s: Peer) -> None:
    s.ask(users(s.name("ghost")))
    s.ask(users(""))


@scenario
def some_of_several_users(s: Peer) -> None:
    alice, bob = s.name("alice"), s.name("bob")
    s.ask(changes(upsertion(alice), upsertion(bob, SHA_512, 5000)))
    s.ask(users(alice, bob), until=shows((4096,), (5000,)))
    s.ask(users(bob, s.name("ghost")))


@scenario
def user_named_twice(s: Peer) -> None:
    alice = s.name("alice")
    s.ask(users(alice, alice))
    s.ask(changes(upsertion(alice)))
    s.ask(users(alice, alice, s.name("ghost")))


@scenario
def user_with_both_mechanisms(s: Peer) -> None:
    alice = s.name("alice")
    s.ask(changes(upsertion(alice)))
    s.ask(changes(upsertion(alice, SHA_512, 10_000)))
    s.ask(users(alice), until=shows((4096, 10_000)))


@scenario
def user_whose_last_credential_is_gone(s: Peer) -> None:
    alice = s.name("alice")
    s.ask(changes(upsertion(alice)))
    s.ask(changes(delete=[(alice, SHA_256)]))
    s.ask(users(alice))
