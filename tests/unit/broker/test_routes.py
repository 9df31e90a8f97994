"""The routes of a listener: APIs between brokers are served on the inter-broker listener only."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from barnabas.broker.cluster.forwarding import Forwarder
from barnabas.broker.handlers import create_topics, heartbeat
from barnabas.broker.routes import (
    API_TABLE,
    BrokerParts,
    Routes,
    client_routes,
    inter_broker_routes,
)
from barnabas.broker.server.dispatch import Route
from barnabas.protocol.messages import add_partitions_to_txn, api_versions

Around = Callable[[Route], Route]
BETWEEN_BROKERS = {4, 5, 6, 7, 56, 58, 67, 10_000}


def as_it_is(route: Route) -> Route:
    return route


def parts(*, in_cluster: bool) -> BrokerParts:
    *fields, _forwarder, _served, _gate = BrokerParts._fields
    found = BrokerParts(**{name: Mock() for name in fields}, forwarder=Forwarder(Mock()))
    found.dynamic.current.in_cluster = in_cluster  # type: ignore[misc]
    return found


@pytest.mark.parametrize("in_cluster", [False, True])
def test_client_listener_serves_no_api_between_brokers(in_cluster: bool) -> None:
    served = set(client_routes(parts(in_cluster=in_cluster), as_it_is))
    assert served == {row.key for row in API_TABLE} - BETWEEN_BROKERS


@pytest.mark.parametrize(("in_cluster", "versions"), [(False, range(6)), (True, range(4))])
def test_clients_of_a_cluster_cannot_speak_as_a_leader(in_cluster: bool, versions: range) -> None:
    """From v4 on AddPartitionsToTxn is a question of a partition leader."""
    routes = client_routes(parts(in_cluster=in_cluster), as_it_is)
    assert routes[add_partitions_to_txn.API.key].serves == versions


def test_inter_broker_listener_serves_every_api_in_all_versions() -> None:
    routes = inter_broker_routes(parts(in_cluster=True), as_it_is)
    served = {key: (route.api.key, route.serves) for key, route in routes.items()}
    assert served == {row.key: (row.api.key, row.versions) for row in API_TABLE}


@pytest.mark.parametrize(("shared", "forwards"), [(True, True), (False, False)])
def test_listener_of_brokers_alone_forwards_nothing(shared: bool, forwards: bool) -> None:
    found = parts(in_cluster=True)
    found.dynamic.current.serves_clients_and_brokers = shared  # type: ignore[misc]
    routes = inter_broker_routes(found, as_it_is)
    handle = routes[create_topics.API.key].handle
    assert (getattr(handle, "func", None) is create_topics.handle) != forwards


@pytest.mark.parametrize("routes_of", [client_routes, inter_broker_routes])
def test_a_listener_announces_the_versions_that_it_serves(routes_of) -> None:  # type: ignore[no-untyped-def]
    routes = routes_of(parts(in_cluster=True), as_it_is)
    announced = routes[api_versions.API.key].handle.args[-1]
    # Produce is announced from 0 on for old librdkafka (KAFKA-18659).
    lowest = {key: route.serves.start for key, route in routes.items()} | {0: 0}
    assert [(each.api_key, each.min_version, each.max_version) for each in announced] == [
        (key, lowest[key], routes[key].serves.stop - 1) for key in sorted(routes)
    ]


@pytest.mark.parametrize("routes_of", [client_routes, inter_broker_routes])
def test_there_is_no_route_without_declared_rights(
    routes_of: Callable[[BrokerParts, Around], Routes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(heartbeat, "RIGHTS")
    routes = routes_of(parts(in_cluster=True), as_it_is)
    with pytest.raises(TypeError, match=r"The handler of Heartbeat \(12\) declares no RIGHTS"):
        _ = routes[heartbeat.API.key]


def test_keys_of_the_table_are_those_of_the_handlers() -> None:
    assert [row.key for row in API_TABLE] == [row.api.key for row in API_TABLE]
    assert len({row.key for row in API_TABLE}) == len(API_TABLE)
