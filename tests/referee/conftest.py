"""Both brokers of the comparison, started once, side by side, and gone before other tests."""

import gc
from collections.abc import Iterator

import pytest

from tests.referee import brokers, jvm
from tests.referee.brokers import Address
from tests.referee.tools import Tools


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Apache Kafka with the features of newer protocols switched off."""
    with brokers.kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(scope="package")
def barnabas() -> Iterator[Address]:
    """Barnabas with the same properties, and without what it does beyond Kafka."""
    with brokers.barnabas() as address:
        yield address
    # Its files are closed with the last object that knows them: not in some later test.
    gc.collect()


@pytest.fixture(scope="package")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """Kafka's command-line tools, all in one JVM."""
    with jvm.start(tmp_path_factory.mktemp("tools") / "errors") as process:
        yield Tools(process)
