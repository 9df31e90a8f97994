"""The transactional loads of `beside_kafka`."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from barnabas.client.cluster import Cluster
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.protocol.messages import init_producer_id
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from benchmarks import raw
from benchmarks.raw_producers import initialised
from benchmarks.systems import System, cpu_seconds

Figures = dict[str, float]
Round = dict[str, Figures]

HERE = Path(__file__).parent
STREAM_BYTES = 1024
RESTART = "restart with 100,000 ids"
IDEMPOTENT, FLUSHED, BURSTS = (
    "idempotent stream",
    "bursts of 100 ms, flushed",
    "transactions of 100 ms",
)


def own_name(producers: int) -> str:
    """Return the name of the measurement of transactions by our own client."""
    return f"by our own client, {producers} at a time"


def one_record_each(system: System, producers: int, count: int) -> Round:
    """Measure transactions of one record each, one after the other by each producer."""
    topic = f"txn-{producers}-{time.time_ns()}"
    with raw.connect(system.port) as client:
        raw.create_topic(client, topic)
        told = _driven(
            system, "one-record", topic, count, "--producers", str(producers), "--size", "100"
        )
        raw.delete_topic(client, topic)
    told["per_s"] = told["count"] / told["seconds"]
    told["cpu_us"] = told["cpu_seconds"] / told["count"] * 1e6
    return {f"one record each, {producers} at a time": told}


def by_own_client(system: System, producers: int, count: int) -> Round:
    """Measure the same with our own client, which uses less CPU, in the newer protocol."""
    topic = f"own-{producers}-{time.time_ns()}"
    with raw.connect(system.port) as client:
        raw.create_topic(client, topic)
        before, began = cpu_seconds(system.pid), time.perf_counter()
        taken = sorted(asyncio.run(_own(system.port, topic, producers, count // producers)))
        seconds, cpu = time.perf_counter() - began, cpu_seconds(system.pid) - before
        raw.delete_topic(client, topic)
    told = {
        "per_s": len(taken) / seconds,
        "cpu_us": cpu / len(taken) * 1e6,
        "p50_ms": taken[len(taken) // 2] * 1e3,
        "p99_ms": taken[len(taken) * 99 // 100] * 1e3,
    }
    return {own_name(producers): told}


async def _own(port: int, topic: str, producers: int, count: int) -> list[float]:
    taken: list[float] = []

    async def work(number: int) -> None:
        async with (
            Cluster(f"127.0.0.1:{port}") as cluster,
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


def streams(system: System, bursts: int) -> Round:
    """Measure bursts of 1 KB records: without a pause, flushed, and as transactions."""
    found: Round = {}
    size = ["--size", str(STREAM_BYTES)]
    for name, kind in ((IDEMPOTENT, "idempotent"), (FLUSHED, "flushed"), (BURSTS, "transactions")):
        topic = f"stream-{kind}-{time.time_ns()}"
        with raw.connect(system.port) as client:
            raw.create_topic(client, topic)
            told = _driven(
                system, "stream", topic, 0, *size, "--bursts-are", kind, "--bursts", str(bursts)
            )
            told["cpu_s_per_gb"] = told["cpu_seconds"] / told["count"] / STREAM_BYTES * 1e9
            found[name] = told
            if name == BURSTS:
                for isolation in ("read_uncommitted", "read_committed"):
                    asked = [*size, "--isolation", isolation]
                    count = int(told["count"])
                    found[isolation] = _driven(system, "consume", topic, count, *asked)
            raw.delete_topic(client, topic)
    found[BURSTS]["of_bursts"] = found[BURSTS]["mb_per_s"] / found[FLUSHED]["mb_per_s"]
    return found


def restart_with_many_ids(system: System, ids: int) -> Round:
    """Measure the seconds from a restart until transactional ids are served again."""
    with raw.connect(system.port) as client:
        initialised(client, "many-0")
        requests = (init_request(f"many-{number}") for number in range(ids))
        client.stream(requests, window=64)
    system.restart()
    began = time.perf_counter()
    with raw.connect(system.port) as client:
        for number in (0, ids // 2, ids - 1):
            initialised(client, f"many-{number}")
    return {RESTART: {"seconds": time.perf_counter() - began}}


def init_request(transactional_id: str) -> bytes:
    """Return the InitProducerId of a transactional id."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    return raw.frame(init_producer_id.API, 4, request)


def _driven(system: System, what: str, topic: str, count: int, *options: str) -> Figures:
    before = cpu_seconds(system.pid)
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, str(HERE / "transactional.py"), what]
        command += ["--bootstrap", f"127.0.0.1:{system.port}", "--topic", topic]
        command += ["--count", str(count), *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, check=True)
    told: Figures = json.loads(done.stdout)
    told["cpu_seconds"] = cpu_seconds(system.pid) - before
    return told


def loads(count: int) -> list[Callable[[System], Round]]:
    """Return the loads of one round, with transactions of one record."""
    return [
        partial(load, producers=producers, count=amount)
        for load in (one_record_each, by_own_client)
        for producers, amount in ((1, count // 2), (8, count))
    ]
