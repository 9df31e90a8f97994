"""Producers near the last epoch of their producer id get another id without an error."""

import asyncio
from collections.abc import Callable, Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest

from barnabas.coordinator.transaction.metadata import LAST_CLIENT_EPOCH
from barnabas.testing import Broker
from tests.integration.transactions import on_disk
from tests.support.kafka import tools
from tests.support.transactor import TV2, Transactor, Wire, settled

pytestmark = pytest.mark.xdist_group("exhausted-epochs")

KEYS = {"transaction.state.log.num.partitions": "1"}
RECORDS = 200


def with_confluent(servers: str, value: bytes) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": "confluent", "log_level": 0}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("confluent", value)
    producer.commit_transaction(20)


def with_kafka_python(servers: str, value: bytes) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="kafka_python")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("kafka_python", value)
    producer.commit_transaction()
    producer.close()


def with_aiokafka(servers: str, value: bytes) -> None:
    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id="aiokafka"
        ) as producer:
            async with producer.transaction():
                await producer.send_and_wait("aiokafka", value)

    asyncio.run(write())


LIBRARIES = [with_confluent, with_kafka_python, with_aiokafka]


@pytest.fixture(scope="module")
def exhausted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, int]]]:
    """Start a broker whose transactional ids have three epochs left; yield their producer ids."""
    data = tmp_path_factory.mktemp("data")
    names = [library.__name__.removeprefix("with_") for library in LIBRARIES] + ["java"]
    ids = {}
    with Broker(KEYS, data_dir=data) as broker, Wire(broker.bootstrap_servers) as wire:
        for name in names:
            wire.create(name)
            x = Transactor(wire, name, TV2)
            x.init()
            ids[name] = x.producer_id
    for name in names:
        on_disk.go_on(data, name, lambda it: it._replace(epoch=LAST_CLIENT_EPOCH - 3))
    with Broker(KEYS, data_dir=data) as broker:
        yield broker.bootstrap_servers, ids
    last = on_disk.transactions(data)
    for name in names:
        # Every one of them has exhausted its epochs.
        assert last[name].producer_id != ids[name]
        assert 0 <= last[name].epoch < LAST_CLIENT_EPOCH - 3


@pytest.mark.parametrize("library", LIBRARIES)
def test_instances_of_older_clients_use_up_an_epoch_each(
    exhausted: tuple[str, dict[str, int]], library: Callable[[str, bytes], None]
) -> None:
    servers, _ = exhausted
    name = library.__name__.removeprefix("with_")
    values = [b"%d" % number for number in range(6)]
    for value in values:
        library(servers, value)
    with Wire(servers) as wire:
        settled(wire, (name, 0))
        assert wire.read(name) == (values, [])


def test_transactions_of_newer_clients_use_up_an_epoch_each(
    exhausted: tuple[str, dict[str, int]],
) -> None:
    servers, _ = exhausted
    done = tools.run(
        tools.PRODUCER_PERFORMANCE,
        *("--topic", "java", "--num-records", str(RECORDS), "--record-size", "10"),
        *("--throughput", "1000", "--transaction-duration-ms", "10"),
        *("--transactional-id", "java", "--command-property", f"bootstrap.servers={servers}"),
    )
    assert f"{RECORDS} records sent" in done.text, done
    with Wire(servers) as wire:
        settled(wire, ("java", 0))
        values, aborted = wire.read("java")
        assert (len(values), aborted) == (RECORDS, [])
