"""transaction.version is lowered and raised while clients of the older protocol write."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import aiokafka
import confluent_kafka
import kafka
import pytest

from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.testing import Broker
from tests.support.transactor import Wire, settled, until

UPGRADE, SAFE_DOWNGRADE = 1, 2

Values = Iterator[bytes]


def with_confluent(servers: str, values: Values) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": "x", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(20)
    for value in values:
        producer.begin_transaction()
        producer.produce("t", value)
        producer.commit_transaction(20)


def with_kafka_python(servers: str, values: Values) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="x")
    producer.init_transactions()
    for value in values:
        producer.begin_transaction()
        producer.send("t", value)
        producer.commit_transaction()
    producer.close()


def with_aiokafka(servers: str, values: Values) -> None:
    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id="x"
        ) as producer:
            for value in values:
                async with producer.transaction():
                    await producer.send("t", value)

    asyncio.run(write())


class Numbers:
    """Consecutive numbers, until the test stops them."""

    def __init__(self) -> None:
        self.count = 0
        self._enough = threading.Event()

    def __iter__(self) -> Values:
        while not self._enough.is_set():
            self.count += 1
            yield b"%d" % (self.count - 1)

    def wait_for_more(self) -> None:
        """Wait until some more transactions have begun."""
        before = self.count
        until(lambda: self.count, lambda count: count > before + 5)

    def stop(self) -> None:
        self._enough.set()


@contextmanager
def working(write: Callable[[str, Values], None], servers: str, numbers: Numbers) -> Iterator[None]:
    """Run a client in a thread; raise its error at the end."""
    with ThreadPoolExecutor(1) as other:
        done = other.submit(write, servers, iter(numbers))
        try:
            yield
        finally:
            numbers.stop()
        done.result(30)


@pytest.mark.parametrize("write", [with_confluent, with_kafka_python, with_aiokafka])
def test_older_clients_work_while_transaction_version_changes(
    write: Callable[[str, Values], None],
) -> None:
    numbers = Numbers()
    with Broker({"transaction.state.log.num.partitions": "1"}) as broker:
        servers = broker.bootstrap_servers
        with Wire(servers) as wire:
            wire.create("t")
            with working(write, servers, numbers):
                for level in (1, 0, 1, 2, 0, 2):
                    numbers.wait_for_more()
                    settle(wire, level)
                numbers.wait_for_more()
            settled(wire, ("t", 0))
            assert wire.read("t") == ([b"%d" % number for number in range(numbers.count)], [])


def settle(wire: Wire, level: int) -> None:
    """Finalize the level, up or down."""

    def changed() -> bool:
        for direction in (UPGRADE, SAFE_DOWNGRADE):
            update = FeatureUpdateKey(
                feature="transaction.version", max_version_level=level, upgrade_type=direction
            )
            answer = wire.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
            if answer.error_code == 0:
                return True
        return False

    until(changed, bool)
    told = wire.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    levels = {each.name: each.max_version_level for each in told.finalized_features}
    assert levels.get("transaction.version", 0) == level
