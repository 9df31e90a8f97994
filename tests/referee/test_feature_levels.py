"""Java's transactional producers follow the level of the cluster, and survive its changes."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from kafka import KafkaConsumer

from barnabas.testing.broker import Broker
from tests.support.kafka import tools as kafka
from tests.support.kafka.tools import Finished, Tools
from tests.support.ports import free_port

pytestmark = pytest.mark.xdist_group("referee-tools")

END_TXN = re.compile(r'_requests_total\{request="EndTxn",version="(\d+)"\} (\d+)')
COMMANDS = {0: "downgrade", 1: "downgrade", 2: "upgrade"}


class Running(NamedTuple):
    """A broker, and the address of its metrics."""

    bootstrap: str
    metrics: str

    def ends(self) -> dict[int, int]:
        """Return the number of transactions ended with each version of EndTxn."""
        with urlopen(f"http://{self.metrics}/metrics", timeout=10) as page:
            return {int(v): int(n) for v, n in END_TXN.findall(page.read().decode())}

    def has_ended_one(self) -> None:
        """Return when a transaction has ended."""
        deadline = time.monotonic() + 30
        while not self.ends():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def running() -> Iterator[Running]:
    metrics = f"127.0.0.1:{free_port()}"
    with Broker({"metrics.listener": metrics}) as broker:
        yield Running(broker.bootstrap_servers, metrics)


def producing(
    bootstrap: str, transactional_id: str, records: int, per_second: int
) -> tuple[str, ...]:
    """Return the arguments of a producer whose transactions last 30 ms."""
    return (
        *("--topic", "t", "--num-records", str(records), "--record-size", "10"),
        *("--throughput", str(per_second), "--transaction-duration-ms", "30"),
        *("--transactional-id", transactional_id),
        *("--command-property", f"bootstrap.servers={bootstrap}"),
    )


def set_level(tools: Tools, bootstrap: str, level: int) -> None:
    wanted = (COMMANDS[level], "--feature", f"transaction.version={level}")
    done = tools.run(kafka.FEATURES, "--bootstrap-server", bootstrap, *wanted)
    assert done.code == 0, done


def committed(bootstrap: str, wanted: int) -> int:
    """Return the number of records that read_committed finds: at least `wanted`."""
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        group_id=None,
        consumer_timeout_ms=10_000,
    )
    try:
        found = sum(1 for _ in zip(range(wanted), consumer, strict=False))
        return found + sum(map(len, consumer.poll(timeout_ms=300).values()))
    finally:
        consumer.close()


def test_transactions_continue_while_the_level_changes(tools: Tools, running: Running) -> None:
    def steadily() -> Finished:
        arguments = producing(running.bootstrap, "steady", 3000, 1000)
        return kafka.run(kafka.PRODUCER_PERFORMANCE, *arguments)

    with ThreadPoolExecutor(1) as other:
        steady = other.submit(steadily)
        running.has_ended_one()
        for level in (2, 1, 0, 2):
            set_level(tools, running.bootstrap, level)
            arguments = producing(running.bootstrap, "restarted", 100, 1000)
            done = tools.run(kafka.PRODUCER_PERFORMANCE, *arguments)
            assert "100 records sent" in done.text, done
        assert "3000 records sent" in steady.result().text, steady.result()
    assert committed(running.bootstrap, 3400) == 3400


def test_a_producer_speaks_the_protocol_of_the_level(tools: Tools, running: Running) -> None:
    seen = []
    for level in (2, 1, 0):
        before = running.ends()
        set_level(tools, running.bootstrap, level)
        arguments = producing(running.bootstrap, "one", 100, 1000)
        done = tools.run(kafka.PRODUCER_PERFORMANCE, *arguments)
        assert "100 records sent" in done.text, done
        after = running.ends()
        seen.append({version for version in after if after[version] > before.get(version, 0)})
    assert seen == [{5}, {4}, {4}]
