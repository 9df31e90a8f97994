"""Waiting for the markers of the previous transaction (KIP-609), and its effect on real clients."""

import asyncio
import re
from collections.abc import Callable
from urllib.request import urlopen

import aiokafka
import confluent_kafka
import kafka
import pytest

from barnabas.broker.transactions import marker_sender
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.testing import Broker
from tests.support.ports import free_port
from tests.support.transactor import Wire, settled

TRANSACTIONS = 20
MARKERS_TAKE_S = 0.02
ANSWERED = re.compile(r'_errors_total\{error="CONCURRENT_TRANSACTIONS",request="\w+"\} (\d+)')


@pytest.fixture(autouse=True)
def _slow_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay markers, as a slow disk or another broker's leadership does."""

    def later(sender: MarkerSender) -> None:
        if not sender._scheduled:
            sender._scheduled = True
            sender._timers.call_later(MARKERS_TAKE_S, sender._send_due)

    monkeypatch.setattr(marker_sender, "AT_ONCE", 0)
    monkeypatch.setattr(MarkerSender, "_schedule", later)


def with_confluent(servers: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": "x", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(20)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.produce("t", b"%d" % number, partition=number % 3)
        producer.commit_transaction(20)


def with_kafka_python(servers: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="x")
    producer.init_transactions()
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.send("t", b"%d" % number, partition=number % 3)
        producer.commit_transaction()
    producer.close()


def with_aiokafka(servers: str) -> None:
    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id="x"
        ) as producer:
            for number in range(TRANSACTIONS):
                async with producer.transaction():
                    await producer.send("t", b"%d" % number, partition=number % 3)

    asyncio.run(write())


def concurrent(write: Callable[[str], None], wait_ms: int) -> int:
    """Return the number of CONCURRENT_TRANSACTIONS responses in `TRANSACTIONS` transactions."""
    metrics = f"127.0.0.1:{free_port()}"
    keys = {
        "metrics.listener": metrics,
        "transaction.blocking.max.wait.ms": str(wait_ms),
        "transaction.state.log.num.partitions": "1",
    }
    with Broker(keys) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t", 3)
        write(broker.bootstrap_servers)
        settled(wire, ("t", 0), ("t", 1), ("t", 2))
        written = [value for index in range(3) for value in wire.read("t", index=index)[0]]
        assert sorted(map(int, written)) == list(range(TRANSACTIONS))
        with urlopen(f"http://{metrics}/metrics", timeout=10) as page:
            return sum(int(number) for number in ANSWERED.findall(page.read().decode()))


@pytest.mark.parametrize("write", [with_confluent, with_kafka_python, with_aiokafka])
def test_clients_get_no_concurrent_transactions_error(write: Callable[[str], None]) -> None:
    waiting, refused = concurrent(write, 1000), concurrent(write, 0)
    print(f"{write.__name__}: {refused} refusals, {waiting} with waiting")
    assert waiting == 0
    # Nearly every transaction begins before the previous one has its markers.
    assert refused > TRANSACTIONS // 2
