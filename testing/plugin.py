"""The pytest plugin: fixtures that hand a test a running broker, or three.

`barnabas_broker` is the test's own; `barnabas_session_broker` is shared by the whole run and starts
once; `barnabas_cluster` is three brokers of the test's own, with levers. All have
`bootstrap_servers`. Nothing of Barnabas is imported until a test asks for one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker
    from barnabas.testing.cluster import Cluster


@pytest.fixture
def barnabas_broker() -> "Iterator[Broker]":
    """A running broker for one test, on a free port, with an empty data directory."""
    yield from _running()


@pytest.fixture(scope="session")
def barnabas_session_broker() -> "Iterator[Broker]":
    """A running broker for all tests of the run: use topic names of your own."""
    yield from _running()


@pytest.fixture
def barnabas_cluster() -> "Iterator[Cluster]":
    """Three running brokers in one thread, replicated, for one test.

    For brokers that can be killed and paused: `barnabas.testing.Cluster(processes=True)`.
    """
    from barnabas.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


def _running() -> "Iterator[Broker]":
    from barnabas.testing.broker import Broker

    with Broker() as broker:
        yield broker
