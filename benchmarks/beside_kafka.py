"""Barnabas and Apache Kafka measured in one run: `python -m benchmarks.beside_kafka`.

Both get the same load in turns, on the same machine, after the same warm-up: a whole round that is
not counted. The load comes from librdkafka, or from a raw client if the cost of librdkafka would
hide the broker's. The CPU time of a broker is the kernel's accounting of its process. Writes
`benchmarks/results.json` and, from it, `docs/PERFORMANCE.md`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import TypeVar

from barnabas.protocol.records.batch import read_prefix
from benchmarks import (
    checks,
    raw,
    registering,
    report,
    security,
    spark_pipeline,
    three_brokers,
    transaction_loads,
)
from benchmarks.clusters import BarnabasTrio, KafkaTrio
from benchmarks.systems import (
    ApacheKafka,
    Barnabas,
    Running,
    System,
    cpu_seconds,
    resident_bytes,
    settled,
)
from benchmarks.three_brokers import ThreeBrokers
from tests.support.kafka import jars

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "PERFORMANCE.md"

RECORD_BYTES = (100, 1024, 10 * 1024)
BATCH_BYTES = (16 * 1024, 1024 * 1024)
MOST_RECORDS = 1_500_000
ONE_BY_ONE = 3_000
SOON = "soon after a start: "
SOON_MB = 20
"""The amount written before the clock starts, for loads that need little warm-up."""
REQUESTS = 10_000

S = TypeVar("S", System, ThreeBrokers)
Figures = dict[str, float]
Round = dict[str, Figures]
"""Figures of one system by the name of the measurement."""


def start_up(system: System) -> Figures:
    """Measure the seconds from the launch to the first acknowledged record, on new storage."""
    system.prepare()
    began = time.perf_counter()
    try:
        system.launch()
        with raw.connect(system.port) as client:
            raw.create_topic(client, "first")
            raw.acknowledged(client, raw.produce_request("first", records=1, record_bytes=100))
            return {"seconds": time.perf_counter() - began}
    finally:
        system.stop()


def idle(system: System) -> Figures:
    """Measure the memory of a broker that is idle after its start."""
    settled(system.pid)
    return {"resident_mb": resident_bytes(system.pid) / 1e6}


def _start_and_rest(system: System, site: security.Site) -> Figures:
    """Measure the start of a broker, its memory then, and after clients of each kind."""
    figures = {"start": start_up(system)["seconds"]}
    with Running(system), raw.connect(system.port):
        figures["memory"] = figures["memory in use"] = idle(system)["resident_mb"]
        if site.knows(system):
            security.add_user(system)
            site.come_in(system, security.COMERS * security.THREADS, tokens=False)
            figures["memory in use"] = idle(system)["resident_mb"]
        return figures


def librdkafka(
    system: System,
    record_bytes: int,
    batch_bytes: int,
    megabytes: int,
    tls: security.Tls | None = None,
) -> Round:
    """Produce and consume one topic."""
    topic = f"load-{record_bytes}-{batch_bytes}-{time.time_ns()}"
    records = min(megabytes * 1_000_000 // record_bytes, MOST_RECORDS)
    with raw.connect(system.port) as client:
        raw.create_topic(client, topic)
        name = f"{record_bytes} B in {batch_bytes // 1024} KB"
        sizes = ["--size", str(record_bytes), "--batch-size", str(batch_bytes)]
        load = ["--topic", topic, "--records", str(records), *sizes]
        port = system.port
        if tls is not None:
            port, name = tls.port, f"TLS: {name}"
            load += ["--authority", tls.authority]
        load += ["--bootstrap", f"localhost:{port}" if tls else f"127.0.0.1:{port}"]
        produced = _driven(system, "produce", load)
        batches = _batches(system.data / f"{topic}-0")
        produced["requests_per_s"] = batches / produced["seconds"]
        produced["cpu_us_per_request"] = produced["cpu_seconds"] / batches * 1e6
        consumed = _driven(system, "consume", load)
        raw.delete_topic(client, topic)
    return {f"produce {name}": produced, f"consume {name}": consumed}


def one_by_one(system: System) -> Round:
    """Measure latencies of one record at a time, acknowledged by the whole ISR."""
    with raw.connect(system.port) as client:
        raw.create_topic(client, "one-by-one")
        request = raw.produce_request("one-by-one", records=1, record_bytes=100)
        raw.acknowledged(client, request)
        before = cpu_seconds(system.pid)
        taken = client.latencies(request, ONE_BY_ONE)
        cpu = cpu_seconds(system.pid) - before
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    cost = {"p50_us": p50 * 1e6, "p99_us": p99 * 1e6, "cpu_us_per_request": cpu / len(taken) * 1e6}
    return {"one record at a time": cost}


def bare_requests(system: System) -> Round:
    """Measure the broker's CPU time of a Produce and a Fetch of 16 KB, with the raw client."""
    topic = f"bare-{time.time_ns()}"
    with raw.connect(system.port) as client:
        raw.create_topic(client, topic)
        request = raw.produce_request(topic, records=15, record_bytes=1024)
        raw.acknowledged(client, request)
        produced = _counted(system, lambda: client.stream(repeat(request, REQUESTS), window=5))
        fetches = [
            raw.fetch_request(topic, offset=offset, max_bytes=16 * 1024)
            for offset in range(0, 15 * REQUESTS, 15)
        ]
        fetched = _counted(system, lambda: client.stream(fetches, window=1))
        raw.delete_topic(client, topic)
    return {"bare produce of 16 KB": produced, "bare fetch of 16 KB": fetched}


def _counted(system: System, work: Callable[[], None]) -> Figures:
    before, began = cpu_seconds(system.pid), time.perf_counter()
    work()
    seconds, cpu = time.perf_counter() - began, cpu_seconds(system.pid) - before
    return {"requests_per_s": REQUESTS / seconds, "cpu_us_per_request": cpu / REQUESTS * 1e6}


def _driven(system: System, what: str, load: Sequence[str]) -> Figures:
    """Run the librdkafka driver once; its log goes to a temporary file."""
    before = cpu_seconds(system.pid)
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, str(HERE / "librdkafka.py"), what]
        done = subprocess.run([*command, *load], stdout=subprocess.PIPE, stderr=log, check=True)
    told = json.loads(done.stdout)
    cpu = cpu_seconds(system.pid) - before
    return {
        "seconds": told["seconds"],
        "mb_per_s": told["bytes"] / told["seconds"] / 1e6,
        "cpu_seconds": cpu,
        "cpu_s_per_gb": cpu / told["bytes"] * 1e9,
        "client_cpu_seconds": told["client_cpu_seconds"],
    }


def _batches(directory: Path) -> int:
    """Return the number of batches, and so of requests, that a partition was written in."""
    count = 0
    for segment in directory.glob("*.log"):
        with segment.open("rb") as file:
            position = 0
            while len(head := os.pread(file.fileno(), 12, position)) == 12:
                size = read_prefix(head)[1]
                if size <= 12:
                    break
                position += size
                count += 1
    return count


def loads(megabytes: int) -> list[Callable[[System], Round]]:
    """Return the loads of one round."""
    work: list[Callable[[System], Round]] = [one_by_one, bare_requests]
    work += [
        partial(librdkafka, record_bytes=size, batch_bytes=batch, megabytes=megabytes)
        for batch in BATCH_BYTES
        for size in RECORD_BYTES
    ]
    return work


class Found:
    """Every figure of every counted round, by measurement and system."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, list[Figures]]] = {}

    def note(self, name: str, whose: str, figures: Figures) -> None:
        self.by_name.setdefault(name, {}).setdefault(whose, []).append(figures)
        shown = " ".join(f"{key}={value:.4g}" for key, value in figures.items())
        print(f"{name:28} {whose:13} {shown}", flush=True)

    def rounds(self, systems: list[S], work: Sequence[Callable[[S], Round]], count: int) -> None:
        """Run a warm-up round, which is not counted, and then `count` rounds."""
        for number in range(count + 1):
            print("warm-up" if not number else f"round {number} of {count}", flush=True)
            for load in work:
                for each in systems:
                    for name, figures in load(each).items():
                        if number:
                            self.note(name, each.name, figures)
            systems.reverse()

    def soon_after_start(
        self,
        directory: Path,
        little: Callable[[System], Round],
        work: Callable[[System], Round],
        count: int,
    ) -> None:
        """Measure a load on brokers that have just started, after a small load of the same kind."""
        for _ in range(count):
            for system in (Barnabas(directory), ApacheKafka(directory)):
                with Running(system):
                    with raw.connect(system.port):
                        little(system)
                    for name, figures in work(system).items():
                        self.note(SOON + name, system.name, figures)


def measure_log(found: Found, directory: Path, rounds: int, megabytes: int) -> None:
    """Measure start, idle memory, producing and consuming."""
    for _ in range(rounds):
        for system in (Barnabas(directory), ApacheKafka(directory)):
            found.note("start", system.name, start_up(system))
    with Running(Barnabas(directory)) as ours, Running(ApacheKafka(directory)) as theirs:
        systems = [ours.system, theirs.system]
        for each in systems:
            with raw.connect(each.port):
                found.note("idle", each.name, idle(each))
        found.rounds(systems, loads(megabytes), rounds)
    for size in RECORD_BYTES:
        small = partial(librdkafka, record_bytes=size, batch_bytes=BATCH_BYTES[0])
        little, work = partial(small, megabytes=SOON_MB), partial(small, megabytes=megabytes)
        found.soon_after_start(directory, little, work, rounds)


def measure_transactions(found: Found, directory: Path, rounds: int, _megabytes: int) -> None:
    """Measure transactions, and their cost for other producers and consumers."""
    for producers in (1, 8):
        one_each = partial(transaction_loads.one_record_each, producers=producers)
        little, work = (
            partial(one_each, count=50 * producers),
            partial(one_each, count=400 * producers),
        )
        found.soon_after_start(directory, little, work, rounds)
    with Running(Barnabas(directory)) as ours, Running(ApacheKafka(directory)) as theirs:
        systems = [ours.system, theirs.system]
        found.rounds(systems, transaction_loads.loads(), rounds)
        for each in systems:
            for name, figures in transaction_loads.restart_with_many_ids(each).items():
                found.note(name, each.name, figures)


def measure_cluster(found: Found, directory: Path, rounds: int, megabytes: int) -> None:
    """Measure clusters of three brokers with three replicas of every partition."""
    systems: list[ThreeBrokers] = [
        BarnabasTrio(directory / "ours"),
        KafkaTrio(directory / "theirs"),
    ]
    with contextlib.ExitStack() as stack:
        for each in systems:
            stack.callback(each.down)
            each.up()
        for each in systems:
            three_brokers.ready(each)
            for name, figures in three_brokers.idle(each).items():
                found.note(name, each.name, figures)
        found.rounds(systems, three_brokers.loads(megabytes), rounds)


def measure_registering(found: Found, directory: Path, rounds: int, _megabytes: int) -> None:
    """Measure the gain of KIP-609 between two Barnabas brokers; Apache Kafka does not have it."""
    for _ in range(rounds):
        for load in (registering.waiting, registering.registering):
            for name, by_variant in load(directory).items():
                for variant, figures in by_variant.items():
                    found.note(name, variant, figures)


def measure_pipeline(found: Found, directory: Path, rounds: int, megabytes: int) -> None:
    """Measure our Spark source and sink beside the stock connector's."""
    spark_pipeline.measure(found.note, directory, rounds, megabytes)


def measure_security(found: Found, directory: Path, rounds: int, megabytes: int) -> None:
    """Measure TLS and SASL: data, new connections, logins, and what they add to a broker."""
    site = security.Site(directory)
    for _ in range(rounds):
        for bare, secured in (
            (Barnabas(directory), site.barnabas(tokens=False)),
            (ApacheKafka(directory), site.kafka()),
        ):
            without, with_it = (_start_and_rest(each, site) for each in (bare, secured))
            for name in without:
                figures = {"more": with_it[name] - without[name], "all": with_it[name]}
                found.note(f"{name} with security", bare.name, figures)
    with Running(site.barnabas()) as ours, Running(site.kafka()) as theirs:
        systems = [ours.system, theirs.system]
        for each in systems:
            security.add_user(each)

        def over_tls(system: System, batch_bytes: int) -> Round:
            return librdkafka(system, 1024, batch_bytes, megabytes, site.tls(system))

        work: list[Callable[[System], Round]] = [
            partial(over_tls, batch_bytes=size) for size in BATCH_BYTES
        ]
        found.rounds(systems, [*work, partial(site.come_in, count=10 * megabytes)], rounds)
    for _ in range(rounds):
        for name, figures in site.held(10 * megabytes).items():
            found.note(name, Barnabas.name, figures)
        for name, us in asyncio.run(checks.measure()).items():
            found.note(name, Barnabas.name, {"us": us})


PARTS = {
    "log": measure_log,
    "transactions": measure_transactions,
    "cluster": measure_cluster,
    "registering": measure_registering,
    "pipeline": measure_pipeline,
    "security": measure_security,
}


def medians(found: dict[str, dict[str, list[Figures]]]) -> dict[str, Round]:
    """Return the median of each figure's rounds."""
    return {
        name: {
            system: {key: median(each[key] for each in runs) for key in runs[0]}
            for system, runs in by_system.items()
        }
        for name, by_system in found.items()
    }


def machine() -> dict[str, str]:
    """Return a description of the machine."""
    cpus = Path("/proc/cpuinfo").read_text().split("model name\t: ")[1].split("\n")[0]
    return {
        "cpu": f"{os.cpu_count()} x {cpus}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "kafka": jars.version(),
        "spark": spark_pipeline.SPARK,
        "load_before": f"{os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="default: every part")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--megabytes", type=int, default=300, help="megabytes of each load in each round"
    )
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="write the page from benchmarks/results.json, without measuring",
    )
    args = parser.parse_args()
    if not args.report_only:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        for part in args.part or PARTS:
            where, found = machine(), Found()
            with tempfile.TemporaryDirectory(prefix="beside-kafka-") as directory:
                PARTS[part](found, Path(directory), args.rounds, args.megabytes)
            results[part] = {
                "machine": where,
                "rounds": args.rounds,
                "megabytes": args.megabytes,
                "medians": medians(found.by_name),
                "runs": found.by_name,
            }
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(report.page(json.loads(RESULTS.read_text()), HERE / "notes.md"))


if __name__ == "__main__":
    main()
