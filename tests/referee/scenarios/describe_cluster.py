"""DescribeCluster."""

from typing import Any

from barnabas.protocol.messages.describe_cluster import API, DescribeClusterRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def describe(operations: bool = False, **options: Any) -> DescribeClusterRequest:
    return DescribeClusterRequest(include_cluster_authorized_operations=operations, **options)


@scenario
def the_brokers(s: Peer) -> None:
    s.ask(describe())


@scenario
def authorized_operations_without_an_authorizer(s: Peer) -> None:
    s.ask(describe(operations=True))


@scenario
def before_and_after_a_topic_is_made(s: Peer) -> None:
    s.ask(describe())
    to = given.topic(s)
    given.records(s, to, b"a")
    s.ask(describe())


@scenario(since=1)
def the_controllers_are_not_asked_here(s: Peer) -> None:
    s.ask(describe(endpoint_type=2))


@scenario(since=1)
def an_unknown_endpoint_type(s: Peer) -> None:
    s.ask(describe(endpoint_type=3))
    s.ask(describe(endpoint_type=0))


@scenario(since=2)
def fenced_brokers_too(s: Peer) -> None:
    s.ask(describe(include_fenced_brokers=True))
