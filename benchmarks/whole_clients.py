"""Loads of whole clients: librdkafka at full speed and in transactions, and our own client."""

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.protocol.records.batch import read_prefix
from benchmarks import raw
from benchmarks.child import driven
from benchmarks.measures import Cost, Figures, Round, counted, percentiles
from benchmarks.systems import Barnabas, System
from tests.support.ports import free_port

RECORD_BYTES = (100, 1024, 10 * 1024)
BATCH_BYTES = (16 * 1024, 1024 * 1024)
MOST_RECORDS = 1_500_000
STREAM_BYTES = 1024
RESTART = "restart with 100,000 ids"
FLUSHED, BURSTS = "bursts of 100 ms, flushed", "transactions of 100 ms"
STREAMS = {"idempotent stream": "idempotent", FLUSHED: "flushed", BURSTS: "transactions"}
ISOLATIONS = ("read_uncommitted", "read_committed")


class Tls(NamedTuple):
    """The listener with TLS of a system, and the file of the authority that clients trust."""

    port: int
    authority: str


# -- records ---------------------------------------------------------------------------------------


def throughput_loads(megabytes: int) -> list[Callable[[System], Round]]:
    """Return the loads of one round at full speed."""
    return [
        partial(throughput, record_bytes=size, batch_bytes=batch, megabytes=megabytes)
        for batch in BATCH_BYTES
        for size in RECORD_BYTES
    ]


def throughput(
    system: System, record_bytes: int, batch_bytes: int, megabytes: int, tls: Tls | None = None
) -> Round:
    """Produce and consume one topic."""
    topic = f"load-{record_bytes}-{batch_bytes}-{time.time_ns()}"
    name = f"{record_bytes} B in {batch_bytes // 1024} KB"
    count = min(megabytes * 1_000_000 // record_bytes, MOST_RECORDS)
    load = {"topic": topic, "size": record_bytes, "count": count}
    if tls is not None:
        name = f"TLS: {name}"
        load |= {"authority": tls.authority, "servers": f"localhost:{tls.port}"}
    with system.serving(topic):
        produced = at_full_speed(system, "produce", batch_size=batch_bytes, **load)
        produced["requests_per_s"] = _batches(system.data, topic) / produced["seconds"]
        consumed = at_full_speed(system, "consume", **load)
    return {f"produce {name}": produced, f"consume {name}": consumed}


def at_full_speed(system: System, load: str, size: int, **options: object) -> Figures:
    """Run a load of librdkafka; add the CPU time of the broker, and that of a GB."""
    with Cost(*system.pids) as cost:
        arguments = {"servers": system.servers, "size": size} | options
        found: Figures = driven(f"librdkafka.{load}", **arguments)
    per_gb = cost.cpu / found["count"] / size * 1e9
    return found | {"cpu_seconds": cost.cpu, "cpu_s_per_gb": per_gb}


def _batches(data: Path, topic: str) -> int:
    """Return the number of batches, and so of requests, that partition 0 was written in."""
    count = 0
    for segment in data.rglob(f"{topic}-0/*"):
        if segment.suffix not in (".log", ".dat"):
            continue
        with segment.open("rb") as file:
            position = 0
            while len(head := os.pread(file.fileno(), 12, position)) == 12:
                size = read_prefix(head)[1]
                if size <= 12:
                    break
                position += size
                count += 1
    return count


def streams(system: System, bursts: int) -> Round:
    """Measure bursts of 1 KB records: without a pause, flushed, and as transactions."""
    found: Round = {}
    for name, kind in STREAMS.items():
        load = {"topic": f"stream-{kind}-{time.time_ns()}", "size": STREAM_BYTES}
        with system.serving(load["topic"]):
            found[name] = at_full_speed(system, "stream", bursts=bursts, kind=kind, **load)
            load["count"] = found[name]["count"]
            for isolation in ISOLATIONS if name == BURSTS else ():
                found[isolation] = at_full_speed(system, "consume", isolation=isolation, **load)
    found[BURSTS]["of_bursts"] = found[BURSTS]["mb_per_s"] / found[FLUSHED]["mb_per_s"]
    return found


# -- transactions of one record --------------------------------------------------------------------


def transaction_loads(count: int) -> list[Callable[[System], Round]]:
    """Return the loads of one round, with transactions of one record."""
    return [
        partial(load, producers=producers, count=amount)
        for load in (one_record_each, by_own_client)
        for producers, amount in ((1, count // 2), (8, count))
    ]


def one_record_each(system: System, producers: int, count: int) -> Round:
    """Measure transactions of one record each, one after the other by each producer."""
    topic = f"txn-{producers}-{time.time_ns()}"
    with system.serving(topic):
        load = {"topic": topic, "count": count, "producers": producers}
        with Cost(*system.pids) as cost:
            found: Figures = driven("librdkafka.one_record", servers=system.servers, **load)
    found["per_s"] = found["count"] / found["seconds"]
    found["cpu_us"] = cost.cpu / found["count"] * 1e6
    return {f"one record each, {producers} at a time": found}


def by_own_client(system: System, producers: int, count: int) -> Round:
    """Measure the same with our own client, which uses less CPU, in the newer protocol."""
    topic = f"own-{producers}-{time.time_ns()}"
    with system.serving(topic), Cost(*system.pids) as cost:
        taken = asyncio.run(_own(system.servers, topic, producers, count // producers))
    name = f"by our own client, {producers} at a time"
    return {name: cost.of(len(taken)) | percentiles(taken, "ms")}


async def _own(servers: str, topic: str, producers: int, count: int) -> list[float]:
    taken: list[float] = []

    async def work(number: int) -> None:
        async with (
            Cluster(servers) as cluster,
            TransactionalProducer(cluster, f"{topic}-{number}") as producer,
        ):
            await producer.init_transactions()
            for _ in range(count):
                began = time.perf_counter()
                await producer.begin_transaction()
                await producer.send(topic, bytes(100))
                await producer.commit_transaction()
                taken.append(time.perf_counter() - began)

    await asyncio.gather(*map(work, range(producers)))
    return taken


def restart_with_many_ids(system: System, ids: int) -> Round:
    """Measure the seconds from a restart until transactional ids are served again."""
    with raw.connect(system.port) as client:
        raw.initialised(client, "many-0")
        client.stream((raw.init_request(f"many-{number}") for number in range(ids)), window=64)
    system.end()
    system.launch()
    with Cost() as cost, raw.connect(system.port) as client:
        for number in (0, ids // 2, ids - 1):
            raw.initialised(client, f"many-{number}")
    return {RESTART: {"seconds": cost.seconds}}


# -- the gain of KIP-609: waiting for markers, and registering in advance --------------------------

_PRODUCERS, _COUNT = 8, 2_000
_OUTPUTS, _TRANSACTIONS = 10, 500


class Observed(Barnabas):
    """A broker with counts of its requests and of its retriable refusals."""

    def __init__(self, directory: Path, properties: dict[str, str]) -> None:
        self._metrics = f"127.0.0.1:{free_port()}"
        super().__init__(directory, {"metrics.listener": self._metrics, **properties})

    def counts(self) -> Figures:
        """Return the number of requests and refusals so far."""
        name, refused = "kafka_network_requestmetrics", {"error": "CONCURRENT_TRANSACTIONS"}
        return {
            "requests_per_txn": counted(self._metrics, f"{name}_requests_total"),
            "refusals_per_txn": counted(self._metrics, f"{name}_errors_total", refused),
        }

    def since(self, before: Figures, count: float) -> Figures:
        """Return the requests and refusals of each transaction."""
        return {name: (after - before[name]) / count for name, after in self.counts().items()}


def waiting(directory: Path) -> dict[str, Round]:
    """Measure transactions of one record by librdkafka on a broker that makes calls wait for the
    markers of the previous transaction, and on one that answers CONCURRENT_TRANSACTIONS.

    It runs without fsync, and with an fsync before each acknowledgement, which makes markers slow.
    """
    found: dict[str, Round] = {}
    for name, wait_ms in (("waiting", "100"), ("refusing", "0")):
        for policy, flush in (("page cache", {}), ("fsync", {"log.flush.interval.messages": "1"})):
            properties = {"transaction.blocking.max.wait.ms": wait_ms, **flush}
            with Observed(directory, properties) as system:
                with raw.connect(system.port):
                    one_record_each(system, _PRODUCERS, _COUNT // 4)
                before = system.counts()
                (told,) = one_record_each(system, _PRODUCERS, _COUNT).values()
                told |= system.since(before, told["count"])
            found.setdefault(f"{_PRODUCERS} producers, {policy}", {})[name] = told
    return found


def registering(directory: Path) -> dict[str, Round]:
    """Measure transactions of ten records in ten partitions, in the newer protocol: leaders add
    the partitions, or the client registers them in advance."""
    with Observed(directory, {"num.partitions": str(_OUTPUTS)}) as system:
        with raw.connect(system.port) as client:
            raw.create_topic(client, "outputs")
        by_name = {}
        for name, registers in (("registered in advance", True), ("added by leaders", False)):
            asyncio.run(_transactions(system, name, registers, _TRANSACTIONS // 5))
            by_name[name] = asyncio.run(_transactions(system, name, registers, _TRANSACTIONS))
    return {f"{_OUTPUTS} partitions each": by_name}


async def _transactions(system: Observed, name: str, registers: bool, count: int) -> Figures:
    outputs = [("outputs", partition) for partition in range(_OUTPUTS)]
    address = system.servers
    async with Cluster(address) as cluster, TransactionalProducer(cluster, name) as producer:
        await producer.init_transactions()
        before = system.counts()
        with Cost(*system.pids) as cost:
            for _ in range(count):
                await producer.begin_transaction(outputs if registers else None)
                sends = (producer.send(topic, b"x" * 100, partition=at) for topic, at in outputs)
                await asyncio.gather(*sends)
                await producer.commit_transaction()
        return cost.of(count) | system.since(before, count)
