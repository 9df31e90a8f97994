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
from barnabas.protocol.messages import find_coordinator, init_producer_id
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from benchmarks import raw
from benchmarks.systems import System, cpu_seconds

Figures = dict[str, float]
Round = dict[str, Figures]

HERE = Path(__file__).parent
ONE_BY_ONE = 1_200
BY_EIGHT = 4_000
STREAMED = 200_000
STREAM_BYTES = 1024
MANY_IDS = 100_000
_TRANSACTION = 1
_WITHIN_S = 180.0


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
    return {f"by our own client, {producers} at a time": told}


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


def streams(system: System) -> Round:
    """Measure 1 KB records at full speed: plain, idempotent, and in transactions of 100 ms."""
    found: Round = {}
    for name, options in (
        ("plain", []),
        ("idempotent", ["--idempotent"]),
        ("in transactions of 100 ms", ["--transaction-ms", "100"]),
    ):
        topic = f"stream-{len(found)}-{time.time_ns()}"
        with raw.connect(system.port) as client:
            raw.create_topic(client, topic)
            size = ["--size", str(STREAM_BYTES)]
            found[f"stream {name}"] = _driven(system, "stream", topic, STREAMED, *size, *options)
            if "transactions" in name:
                for isolation in ("read_committed", "read_uncommitted"):
                    asked = [*size, "--isolation", isolation]
                    told = _driven(system, "consume", topic, STREAMED, *asked)
                    found[f"consume {isolation}"] = told
            raw.delete_topic(client, topic)
    plain = found["stream idempotent"]["mb_per_s"]
    transactional = found["stream in transactions of 100 ms"]
    transactional["of_idempotent"] = transactional["mb_per_s"] / plain
    uncommitted = found["consume read_uncommitted"]["mb_per_s"]
    committed = found["consume read_committed"]
    committed["of_uncommitted"] = committed["mb_per_s"] / uncommitted
    return found


def restart_with_many_ids(system: System) -> Round:
    """Measure the seconds from a restart until one of 100,000 transactional ids is served again."""
    with raw.connect(system.port) as client:
        _coordinated(client, "many-0")
        requests = (_init(f"many-{number}") for number in range(MANY_IDS))
        client.stream(requests, window=64)
    system.restart()
    began = time.perf_counter()
    with raw.connect(system.port) as client:
        for number in (0, MANY_IDS // 2, MANY_IDS - 1):
            _coordinated(client, f"many-{number}")
    return {"restart with 100,000 ids": {"seconds": time.perf_counter() - began}}


def _coordinated(client: raw.Client, transactional_id: str) -> None:
    """Initialise the transactional id as soon as its coordinator is available."""
    asked = FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=_TRANSACTION)
    end = time.monotonic() + _WITHIN_S
    while time.monotonic() < end:
        found = client.call(find_coordinator.API, 4, asked).coordinators[0]
        if not found.error_code:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=60_000
            )
            if not client.call(init_producer_id.API, 4, request).error_code:
                return
        time.sleep(0.01)
    raise TimeoutError(f"{transactional_id} has no coordinator")


def _init(transactional_id: str) -> bytes:
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


def loads() -> list[Callable[[System], Round]]:
    """Return the loads of one round."""
    return [
        partial(one_record_each, producers=1, count=ONE_BY_ONE),
        partial(one_record_each, producers=8, count=BY_EIGHT),
        partial(by_own_client, producers=1, count=ONE_BY_ONE),
        partial(by_own_client, producers=8, count=BY_EIGHT),
        streams,
    ]
