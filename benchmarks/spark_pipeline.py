"""The pipeline beside Spark's stock connector: two drivers take turns on one broker.

`python -m benchmarks.beside_kafka --part pipeline` runs it. CPU time and memory are the kernel's
accounting of the driver, its JVM and the Python workers; the broker is not counted, except in the
commit of a batch and in the example, which run on three brokers. A driver keeps memory that it has
taken for an earlier load.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from barnabas.testing import Cluster
from benchmarks import raw, sink_commit
from benchmarks.measures import (
    HERE,
    Cost,
    Figures,
    Round,
    children,
    cpu_seconds,
    driven,
    peak_bytes,
    reset_peaks,
    resident_bytes,
)
from benchmarks.systems import OURS, Barnabas
from tests.support.brokers.process import ROOT

CONNECTORS = {OURS: "barnabas", "stock connector": "kafka"}
SPARK = "4.2.0"
"""The newest version of PySpark whose stock connector is in Maven Central."""
PYTHON = ROOT / f".venv-spark-{SPARK}" / "bin" / "python"
BATCH_BYTES = 64 * 1024
TRIGGERS = 40
ROWS_PER_TRIGGER = 2_000
MEMORY_ROWS = 10_000_000
DAEMONS = [b"-m", b"pyspark.daemon"], [b"-m", b"barnabas.pipeline.spark.daemon"]
TASKS = 200
FIRST_ROW = "the first row is committed"
EXAMPLE_SECONDS = 300.0
PROPERTIES = {"transaction.two.phase.commit.enable": "true"}

Note = Callable[[Round, str], None]


class SparkDriver:
    """A process of `spark_job.py`."""

    def __init__(self, python: Path, servers: str, directory: Path, log: IO[bytes]) -> None:
        command = [str(python), str(HERE / "spark_job.py"), servers, str(directory)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=directory,
        )
        version = self._answer()["spark"]
        if version != SPARK:
            raise RuntimeError(f"{python} has PySpark {version}, the figures need {SPARK}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, load: str, *arguments: object) -> dict[str, Any]:
        """Run a load; return its figures with CPU seconds and peak of the whole process tree."""
        assert self._process.stdin is not None
        reset_peaks(self.pid)
        with Cost(self.pid) as cost:
            self._process.stdin.write(json.dumps([load, *arguments]).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._answer()
        return {**answer, "cpu_seconds": cost.cpu, "peak_mb": peak_bytes(self.pid) / 1e6}

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the Spark driver ended; its log has the reason")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def driver(python: Path, servers: str, directory: Path) -> Iterator[SparkDriver]:
    """Run a Spark driver during the block."""
    with tempfile.TemporaryFile() as log:
        try:
            running = SparkDriver(python, servers, directory, log)
            yield running
            running.stop()
        except RuntimeError:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-5_000:])
            raise


def filled(
    servers: str, topic: str, records: int = 0, size: int = 100, partitions: int = 4
) -> None:
    """Create a topic and fill it by librdkafka."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        done.result(30)
    if records:
        load = ["--bootstrap", servers, "--topic", topic, "--count", records, "--size", size]
        load += ["--batch-size", BATCH_BYTES, "--partitions", partitions]
        driven("librdkafka.py", "produce", *load, "--chunk", min(10_000, records // partitions))


def measure(note: Note, directory: Path, rounds: int, megabytes: int) -> None:
    """Measure all loads. `tests/run-spark 4.2.0` makes the venv."""

    def turns(title: str, load: Callable[[SparkDriver, str, str], Figures]) -> None:
        """Run a load with each connector in turns, once more than counts."""
        for counted in range(rounds + 1):
            for name, connector in CONNECTORS.items():
                found = load(both[name], connector, f"{counted}-{connector}")
                if counted:
                    note({title: found}, name)

    with Barnabas(directory, PROPERTIES) as broker:
        raw.connect(broker.port).close()
        servers = f"127.0.0.1:{broker.port}"
        with (
            driver(PYTHON, servers, directory) as ours,
            driver(PYTHON, servers, directory) as stock,
        ):
            both = dict(zip(CONNECTORS, (ours, stock), strict=True))
            for size in (100, 1024):
                for partitions in (4, 64):
                    topic, records = f"source-{size}-{partitions}", megabytes * 1_000_000 // size
                    filled(servers, topic, records, size, partitions)
                    title = f"source: {size} B, {partitions} partitions"
                    turns(title, partial(_read, topic, records))
            copied = partial(_copy, servers, "source-100-4", megabytes * 10_000)
            turns("source to sink: 100 B, 4 partitions", copied)
            filled(servers, "triggers", ROWS_PER_TRIGGER * TRIGGERS)
            turns("trigger of 2,000 rows in 4 tasks", partial(_trigger, servers))
        with driver(PYTHON, servers, directory) as spark:
            _memory(note, spark, servers)
    _commits(note, rounds)
    for _ in range(rounds):
        _example(note, directory)


def _read(topic: str, records: int, spark: SparkDriver, connector: str, _number: str) -> Figures:
    return _per_row(spark.ask("read", connector, topic), records)


def _copy(
    servers: str, topic: str, records: int, spark: SparkDriver, connector: str, number: str
) -> Figures:
    filled(servers, f"copy-{number}")
    return _per_row(spark.ask("copy", connector, topic, f"copy-{number}"), records)


def _per_row(found: dict[str, Any], records: int) -> Figures:
    return {
        "rows_per_s": records / found["seconds"],
        "cpu_us_per_row": found["cpu_seconds"] / records * 1e6,
        "peak_mb": found["peak_mb"],
    }


def _trigger(servers: str, spark: SparkDriver, connector: str, number: str) -> Figures:
    """Measure short triggers; the start and the stop of their query are in the CPU time."""
    target = f"triggers-{number}"
    filled(servers, target)
    found = spark.ask("triggers", connector, "triggers", target, TRIGGERS - 1)
    cpu_ms = found["cpu_seconds"] / found["triggers"] * 1e3
    return {"p50_ms": found["p50_ms"], "cpu_ms": cpu_ms, "peak_mb": found["peak_mb"]}


def _memory(note: Note, spark: SparkDriver, servers: str) -> None:
    """Measure how much a Python worker grows that has read one row in each task before."""
    filled(servers, "memory", MEMORY_ROWS)
    filled(servers, "memory-idle", 4)
    spark.ask("stream", "memory-idle", "memory-idle")
    idle = max(resident_bytes(pid) for pid in _workers(spark.pid))
    peak, over = idle, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.1):
            for pid in _workers(spark.pid):
                peak = max(peak, resident_bytes(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    found = spark.ask("stream", "memory", "memory")
    over.set()
    thread.join()
    assert found["rows"] == MEMORY_ROWS, found
    assert peak > idle, "the workers that read were not among those watched"
    above = {"mb_above_idle": (peak - idle) / 1e6}
    note({"a worker's memory while 10 M rows pass": above}, OURS)


def _commits(note: Note, rounds: int) -> None:
    """Measure the commit of a batch, once it has run twice."""
    with Cluster(PROPERTIES, processes=True) as brokers:
        found = asyncio.run(sink_commit.measure(brokers.bootstrap_servers, TASKS, 2 + 3 * rounds))
    for each in found[2:]:
        cpu = each["cpu_driver"] + each["cpu_brokers"]
        figures = {"ms": each["commit"], "cpu_ms": cpu}
        note({f"commit of {TASKS} transactions": figures}, OURS)


def _example(note: Note, directory: Path) -> None:
    """Measure the time from the command to the first committed row."""
    command = [sys.executable, "-u", "-m", "barnabas", "pipeline", "example"]
    command += ["--directory", str(directory / "example")]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        overdue = threading.Timer(EXAMPLE_SECONDS, running.kill)
        overdue.start()
        lines = iter(running.stdout.readline, "")
        if not any(FIRST_ROW in line for line in lines):
            raise RuntimeError("the example ended without a row")
        found = {"s": time.perf_counter() - began, "cpu_s": cpu_seconds(running.pid)}
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        overdue.cancel()
    note({"example's first committed row": found}, OURS)


def _workers(pid: int) -> list[int]:
    """Return the Python workers below a driver: the children of PySpark's daemons and of ours."""
    found: list[int] = []
    for child in children(pid):
        with suppress(OSError):
            module = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1:3]
            found += children(child) if module in DAEMONS else _workers(child)
    return found
