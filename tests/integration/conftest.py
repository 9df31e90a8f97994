"""The command line, and Barnabas and Apache Kafka for our client's tests; Kafka is started once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.testing import Broker
from tests.support.command_line import Cli
from tests.support.kafka.node import Kafka
from tests.support.topic_names import topic_name

DEADLINE = 30.0


@pytest.fixture(scope="session")
def kafka_for_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of Apache Kafka. Tests that use it belong to the group
    "client-on-kafka"."""
    properties = {
        "group.min.session.timeout.ms": "500",
        # InitProducerId v6, of which this release serves Enable2Pc alone.
        "unstable.api.versions.enable": "true",
        "transaction.two.phase.commit.enable": "true",
    }
    with Kafka(tmp_path_factory.mktemp("kafka"), properties=properties) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(
    scope="module",
    params=["barnabas", pytest.param("kafka", marks=pytest.mark.xdist_group("client-on-kafka"))],
)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "barnabas":
        with Broker() as broker:
            yield broker.bootstrap_servers
    else:
        yield request.getfixturevalue("kafka_for_clients")


@pytest.fixture
async def cluster(servers: str) -> AsyncIterator[Cluster]:
    async with Cluster(servers) as cluster, asyncio.timeout(DEADLINE):
        yield cluster


@pytest.fixture
async def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = topic_name(request)
    await Admin(cluster).create_topic(name, partitions=2)
    return name


@pytest.fixture
def cli(
    servers: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Cli:
    """Return the command line, run in this process against `servers`."""
    return Cli(servers, (monkeypatch, capfdbinary), tmp_path)
