"""The pytest plugin: fixtures for one running broker, or for a cluster of three.

`barnabas_broker` belongs to one test; `barnabas_session_broker` is shared by the whole run and
starts once; `barnabas_cluster` is three brokers for one test, with levers. All have
`bootstrap_servers`. Barnabas is not imported before a test asks for a fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker
    from barnabas.testing.cluster import Cluster


@pytest.fixture
def barnabas_broker() -> "Iterator[Broker]":
    """Return a running broker for one test, on a free port, with an empty data directory."""
    yield from _running()


@pytest.fixture(scope="session")
def barnabas_session_broker() -> "Iterator[Broker]":
    """Return a running broker for all tests of the run: each test needs its own topic names."""
    yield from _running()


@pytest.fixture
def barnabas_cluster() -> "Iterator[Cluster]":
    """Return three running brokers in one thread, with replicated topics, for one test.

    For brokers that can be killed and paused: `barnabas.testing.Cluster(processes=True)`.
    """
    from barnabas.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


def _running() -> "Iterator[Broker]":
    from barnabas.testing.broker import Broker

    with Broker() as broker:
        yield broker
