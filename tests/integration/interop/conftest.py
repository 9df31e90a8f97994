"""One broker and the four client libraries, for all tests of this directory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from barnabas.testing import Broker
from tests.integration.interop.clients import Client, start

Start = Callable[[str], Client]


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    with Broker({"group.min.session.timeout.ms": "500"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def client(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Return a function that returns the client of a kind, which is started once on first use."""
    directory = tmp_path_factory.mktemp("clients")
    started: dict[str, Client] = {}
    with ExitStack() as processes:

        def get(kind: str) -> Client:
            if kind not in started:
                process = processes.enter_context(start(kind, directory))
                started[kind] = Client(kind, process, servers)
            return started[kind]

        yield get
