"""CreateAcls without an authorizer."""

from typing import Any

from barnabas.protocol.messages.create_acls import API, AclCreation, CreateAclsRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def rules(*topics: str, **values: Any) -> CreateAclsRequest:
    rule: dict[str, Any] = {
        "resource_type": 2,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return CreateAclsRequest(
        creations=[AclCreation(resource_name=topic, **(rule | values)) for topic in topics]
    )


@scenario
def one_rule(s: Peer) -> None:
    s.ask(rules("a"))


@scenario
def several_rules(s: Peer) -> None:
    s.ask(rules("a", "b", "a"))


@scenario
def no_rule(s: Peer) -> None:
    s.ask(rules())


@scenario
def rule_that_is_invalid(s: Peer) -> None:
    s.ask(rules(""))
    s.ask(rules("a", principal="alice"))


@scenario
def between_requests_that_are_served(s: Peer) -> None:
    to = given.topic(s)
    s.ask(given.produce(to, given.batch(b"a")))
    s.ask(rules(to.name, permission_type=2, operation=2))
    s.ask(given.produce(to, given.batch(b"b")))
    s.ask(given.fetch(to))
