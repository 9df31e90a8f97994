"""DeleteAcls without an authorizer."""

from typing import Any

from barnabas.protocol.messages.delete_acls import API, DeleteAclsFilter, DeleteAclsRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def filters(*topics: str | None, **values: Any) -> DeleteAclsRequest:
    fields: dict[str, Any] = {
        "resource_type_filter": 2,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(resource_name_filter=topic, **(fields | values)) for topic in topics
        ]
    )


@scenario
def one_filter(s: Peer) -> None:
    s.ask(filters("a"))


@scenario
def several_filters(s: Peer) -> None:
    s.ask(filters("a", None, "a"))


@scenario
def no_filter(s: Peer) -> None:
    s.ask(filters())


@scenario
def filter_of_every_resource(s: Peer) -> None:
    s.ask(filters(None, resource_type_filter=1))


@scenario
def between_requests_that_are_served(s: Peer) -> None:
    to = given.topic(s)
    s.ask(given.produce(to, given.batch(b"a")))
    s.ask(filters(to.name))
    s.ask(given.produce(to, given.batch(b"b")))
    s.ask(given.fetch(to))
