"""Apache Kafka for the tests of our own client, started once."""

from collections.abc import Iterator

import pytest

from tests.referee.kafka import Kafka


@pytest.fixture(scope="session")
def kafka_for_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address. Tests that use it belong to the group "client-on-kafka"."""
    properties = {"group.min.session.timeout.ms": "500"}
    with Kafka(tmp_path_factory.mktemp("kafka"), properties=properties) as kafka:
        yield kafka.bootstrap_servers
