"""The pytest plugin: fixtures for one running broker, or for a cluster of three.

`barnabas_broker` belongs to one test; `barnabas_session_broker` is shared by the whole run and
starts once; `barnabas_cluster` is three brokers for one test, with levers. All have
`bootstrap_servers`. Barnabas is not imported before a test asks for a fixture.

The mark `barnabas` gives the arguments of `Broker` or `Cluster` to the fixtures of one test:
`@pytest.mark.barnabas(users=["alice"])`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker
    from barnabas.testing.cluster import Cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "barnabas(configs, **arguments): arguments of a test's own brokers"
    )


@pytest.fixture
def barnabas_broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """Return a running broker for one test, on a free port, with an empty data directory."""
    arguments, keywords = _marked(request)
    yield from _running(*arguments, **keywords)


@pytest.fixture(scope="session")
def barnabas_session_broker() -> "Iterator[Broker]":
    """Return a running broker for all tests of the run: each test needs its own topic names."""
    yield from _running()


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """Return three running brokers in one thread, with replicated topics, for one test.

    For brokers that can be killed and paused: `barnabas.testing.Cluster(processes=True)`.
    """
    from barnabas.testing.cluster import Cluster

    arguments, keywords = _marked(request)
    with Cluster(*arguments, **keywords) as cluster:
        yield cluster


def _running(*arguments: Any, **keywords: Any) -> "Iterator[Broker]":
    from barnabas.testing.broker import Broker

    with Broker(*arguments, **keywords) as broker:
        yield broker


def _marked(request: pytest.FixtureRequest) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the mark that is closest to the test."""
    mark = request.node.get_closest_marker("barnabas")
    return ((), {}) if mark is None else (mark.args, dict(mark.kwargs))
