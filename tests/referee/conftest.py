"""Both brokers of the comparison: started once, side by side, and stopped before other tests."""

import gc
from collections.abc import Iterator

import pytest

from tests.referee import brokers
from tests.referee.brokers import Address
from tests.support.kafka import jvm
from tests.support.kafka.tools import Tools


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Run Apache Kafka with the features of newer protocols switched off."""
    with brokers.kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(scope="package")
def barnabas() -> Iterator[Address]:
    """Run Barnabas with the same properties, and without the features that Kafka lacks."""
    with brokers.barnabas() as address:
        yield address
    # Its files are closed with their last reference: here, and not in a later test.
    gc.collect()


@pytest.fixture(scope="package")
def play_once(barnabas: Address) -> brokers.PlayOnce:
    """Return the plays against Barnabas, which census and comparison share."""
    return brokers.PlayOnce(barnabas)


@pytest.fixture(scope="package")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """Run Kafka's command-line tools, all in one JVM."""
    with jvm.start(tmp_path_factory.mktemp("tools") / "errors") as process:
        yield Tools(process)
