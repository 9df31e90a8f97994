"""The gain of KIP-609: waiting for markers, and registering in advance.

The same load runs on two brokers: one makes calls wait for the markers of the previous transaction,
one answers CONCURRENT_TRANSACTIONS. It runs without fsync, and with an fsync before each
acknowledgement, which makes markers slow. Then a client of the newer protocol writes transactions
over ten partitions, which leaders add or which it registers in advance.
"""

import asyncio
import time
import urllib.request
from collections import Counter
from pathlib import Path

from barnabas.client.cluster import Cluster
from barnabas.client.transactional_producer import TransactionalProducer
from benchmarks import raw
from benchmarks.systems import Barnabas, Running, cpu_seconds
from benchmarks.transaction_loads import Figures, Round, one_record_each
from tests.support.ports import free_port

WAITING, REFUSING = "waiting", "refusing"
PRODUCERS = 8
COUNT = 2_000
OUTPUTS = 10
TRANSACTIONS = 500
_CONCURRENT = "CONCURRENT_TRANSACTIONS"


class Observed(Barnabas):
    """A broker with counts of its requests and of its retriable refusals."""

    def __init__(self, directory: Path, properties: dict[str, str]) -> None:
        self._metrics = free_port()
        super().__init__(
            directory, {"metrics.listener": f"127.0.0.1:{self._metrics}", **properties}
        )

    def counts(self) -> Counter[str]:
        """Return the number of requests and refusals so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics") as page:
            lines = page.read().decode().splitlines()
        found: Counter[str] = Counter()
        for line in lines:
            if line.startswith("kafka_network_requestmetrics_requests_total{"):
                found["requests"] += int(float(line.rpartition(" ")[2]))
            elif line.startswith("kafka_network_requestmetrics_errors_total{") and (
                _CONCURRENT in line
            ):
                found["refusals"] += int(float(line.rpartition(" ")[2]))
        return found


def waiting(directory: Path) -> dict[str, Round]:
    """Measure transactions of one record by librdkafka, with and without waiting, by flush
    policy."""
    found: dict[str, Round] = {}
    for name, wait_ms in ((WAITING, "100"), (REFUSING, "0")):
        for policy, flush in (("page cache", {}), ("fsync", {"log.flush.interval.messages": "1"})):
            properties = {"transaction.blocking.max.wait.ms": wait_ms, **flush}
            with Running(system := Observed(directory, properties)) as _:
                with raw.connect(system.port):
                    one_record_each(system, PRODUCERS, COUNT // 4)
                before = system.counts()
                told = next(iter(one_record_each(system, PRODUCERS, COUNT).values()))
                after = system.counts() - before
            told["requests_per_txn"] = after["requests"] / told["count"]
            told["refusals_per_txn"] = after["refusals"] / told["count"]
            found.setdefault(f"{PRODUCERS} producers, {policy}", {})[name] = told
    return found


def registering(directory: Path) -> dict[str, Round]:
    """Measure transactions of ten records in ten partitions, in the newer protocol."""
    with Running(system := Observed(directory, {"num.partitions": str(OUTPUTS)})) as _:
        with raw.connect(system.port) as client:
            raw.create_topic(client, "outputs")
        by_name = {}
        for name, registers in (("registered in advance", True), ("added by leaders", False)):
            asyncio.run(_transactions(system, name, registers, TRANSACTIONS // 5))
            by_name[name] = asyncio.run(_transactions(system, name, registers, TRANSACTIONS))
    return {f"{OUTPUTS} partitions each": by_name}


async def _transactions(system: Observed, name: str, registers: bool, count: int) -> Figures:
    outputs = [("outputs", partition) for partition in range(OUTPUTS)]
    address = f"127.0.0.1:{system.port}"
    async with (
        Cluster(address) as cluster,
        TransactionalProducer(cluster, name) as producer,
    ):
        await producer.init_transactions()
        before, cpu, began = system.counts(), cpu_seconds(system.pid), time.perf_counter()
        for _ in range(count):
            await producer.begin_transaction(outputs if registers else None)
            await asyncio.gather(
                *(
                    producer.send(topic, b"x" * 100, partition=partition)
                    for topic, partition in outputs
                )
            )
            await producer.commit_transaction()
        seconds = time.perf_counter() - began
        after = system.counts() - before
        return {
            "per_s": count / seconds,
            "cpu_us": (cpu_seconds(system.pid) - cpu) / count * 1e6,
            "requests_per_txn": after["requests"] / count,
            "refusals_per_txn": after["refusals"] / count,
        }
