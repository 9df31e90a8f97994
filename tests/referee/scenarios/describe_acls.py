"""DescribeAcls without an authorizer."""

from typing import Any

from barnabas.protocol.messages.describe_acls import API, DescribeAclsRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def rules_of(topic: str | None, **values: Any) -> DescribeAclsRequest:
    fields: dict[str, Any] = {
        "resource_type_filter": 2,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DescribeAclsRequest(resource_name_filter=topic, **(fields | values))


@scenario
def rules_of_a_topic(s: Peer) -> None:
    s.ask(rules_of("a"))


@scenario
def all_rules(s: Peer) -> None:
    s.ask(rules_of(None, resource_type_filter=1))


@scenario
def rules_of_a_principal(s: Peer) -> None:
    s.ask(rules_of(None, principal_filter="User:alice"))


@scenario
def asked_again(s: Peer) -> None:
    s.ask(rules_of("a", operation=3))
    s.ask(rules_of("a", permission_type=2))


@scenario
def between_requests_that_are_served(s: Peer) -> None:
    to = given.topic(s)
    s.ask(given.produce(to, given.batch(b"a")))
    s.ask(rules_of(to.name))
    s.ask(given.produce(to, given.batch(b"b")))
    s.ask(given.fetch(to))
