"""Loads of whole clients: librdkafka at full speed and in transactions, and our own client."""

import asyncio
import time
from argparse import Namespace
from functools import partial
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.transactional_producer import TransactionalProducer
from benchmarks.child import driven
from benchmarks.measures import Cost, Figures, Round, percentiles
from benchmarks.systems import Load, System

RECORD_BYTES = (100, 1024, 10 * 1024)
BATCH_BYTES = (16 * 1024, 1024 * 1024)
MOST_RECORDS = 1_500_000
STREAM_BYTES = 1024
FLUSHED, BURSTS = "bursts of 100 ms, flushed", "transactions of 100 ms"


class Tls(NamedTuple):
    """The listener with TLS of a system, and the file of the authority that clients trust."""

    port: int
    authority: str


# -- records ---------------------------------------------------------------------------------------


def throughput_loads(sizes: Namespace) -> list[Load]:
    """Return the loads of one round at full speed."""
    return [
        partial(throughput, record_bytes=size, batch_bytes=batch, megabytes=sizes.megabytes)
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
        consumed = at_full_speed(system, "consume", **load)
    return {f"produce {name}": produced, f"consume {name}": consumed}


def at_full_speed(system: System, load: str, size: int, **options: object) -> Figures:
    """Run a load of librdkafka; add the CPU time of the broker, and that of a GB."""
    with Cost(*system.pids) as cost:
        arguments = {"servers": system.servers, "size": size} | options
        found: Figures = driven(f"librdkafka.{load}", **arguments)
    per_gb = cost.cpu / found["count"] / size * 1e9
    return found | {"cpu_seconds": cost.cpu, "cpu_s_per_gb": per_gb}


def stream_loads(sizes: Namespace) -> list[Load]:
    """Return the loads of one round, with bursts of records."""
    return [partial(streams, bursts=sizes.bursts)]


def streams(system: System, bursts: int) -> Round:
    """Measure bursts of 1 KB records: flushed, and as transactions."""
    found: Round = {}
    for name in (FLUSHED, BURSTS):
        load = {"topic": f"stream-{time.time_ns()}", "transactional": name == BURSTS}
        with system.serving(load["topic"]):
            found[name] = at_full_speed(system, "stream", STREAM_BYTES, bursts=bursts, **load)
    found[BURSTS]["of_bursts"] = found[BURSTS]["mb_per_s"] / found[FLUSHED]["mb_per_s"]
    return found


# -- transactions of one record --------------------------------------------------------------------


def transaction_loads(sizes: Namespace) -> list[Load]:
    """Return the loads of one round, with transactions of one record."""
    count = sizes.transactions
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
