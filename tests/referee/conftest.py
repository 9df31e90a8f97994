"""Both brokers of the comparison, started once, side by side, and gone before other tests."""

import gc
from collections.abc import Iterator

import pytest

from barnabas.testing.broker import Broker
from tests.referee import jvm
from tests.referee.brokers import OURS, SHARED, Address, warm_up, warm_up_transactions
from tests.referee.kafka import FEATURES_OFF, Kafka
from tests.referee.tools import Tools


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Apache Kafka with the features of newer protocols switched off."""
    directory = tmp_path_factory.mktemp("kafka")
    with Kafka(directory, features=FEATURES_OFF, properties=SHARED) as broker:
        address = Address("127.0.0.1", broker.port)
        warm_up(address)
        warm_up_transactions(address)
        yield address


@pytest.fixture(scope="package")
def barnabas() -> Iterator[Address]:
    """Barnabas with the same properties, and without what it does beyond Kafka."""
    with Broker(OURS) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        address = Address(host, int(port))
        warm_up(address)
        warm_up_transactions(address)
        yield address
    # Its files are closed with the last object that knows them: not in some later test.
    gc.collect()


@pytest.fixture(scope="package")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """Kafka's command-line tools, all in one JVM."""
    with jvm.start(tmp_path_factory.mktemp("tools") / "errors") as process:
        yield Tools(process)
