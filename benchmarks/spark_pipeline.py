"""The pipeline beside Spark's stock connector: two drivers take turns on one broker.

`python -m benchmarks.beside_kafka --part pipeline` runs all loads and writes the pages;
`python -m benchmarks.spark_pipeline --load NAME ...` runs those whose names begin so, and prints
their table. CPU time and memory are the kernel's accounting of the driver, its JVM and the Python
workers; the broker's CPU time is shown apart. The commit of a batch and the example run on three
brokers, which are counted. A driver keeps memory that it has taken for an earlier load.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from barnabas.testing import Cluster
from benchmarks import raw, sink_commit
from benchmarks.measures import (
    HERE,
    Cost,
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

if TYPE_CHECKING:
    from benchmarks.beside_kafka import Run

CONNECTORS = {OURS: "barnabas", "stock connector": "kafka"}
SPARK = "4.2.0"
"""The newest version of PySpark whose stock connector is in Maven Central."""
PYTHON = ROOT / f".venv-spark-{SPARK}" / "bin" / "python"
"""The venv that `tests/run-spark 4.2.0` makes."""
BATCH_BYTES = 64 * 1024
TRIGGERS = 40
ROWS_PER_TRIGGER = 2_000
MEMORY_ROWS = 10_000_000
DAEMONS = [b"-m", b"pyspark.daemon"], [b"-m", b"barnabas.pipeline.spark.daemon"]
TASKS = 1_000
FIRST_ROW = "the first row is committed"
EXAMPLE_SECONDS = 300.0
PROPERTIES = {"transaction.two.phase.commit.enable": "true"}
WARM_S = 30.0
"""The most seconds for which a driver runs one job before the rounds."""
COMPILING = 0.1
"""The share of compilation in a job's CPU time below which a JVM is warm."""


class Load(NamedTuple):
    """A load of both connectors, and the topic that it reads."""

    job: str
    """The method of `spark_job.Driver`."""
    size: int = 100
    """The bytes of a record's value."""
    partitions: int = 4
    rows: int | None = None
    """The number of records; None for a third of the megabytes of the run."""


_SHAPES = [(size, partitions) for size in (100, 1024) for partitions in (4, 64)]
LOADS = {
    f"{name}: {size} B, {partitions} partitions": Load(job, size, partitions)
    for name, job in {"source": "read", "source to sink": "copy"}.items()
    for size, partitions in _SHAPES
} | {
    "trigger of 2,000 rows in 4 tasks": Load("triggers", rows=ROWS_PER_TRIGGER * TRIGGERS),
    "join of two streams of 1 M rows": Load("join", rows=1_000_000),
}


class SparkDriver:
    """A process of `spark_job.py` that uses one connector."""

    def __init__(self, name: str, servers: str, directory: Path, log: IO[bytes]) -> None:
        self.name = name
        command = [str(PYTHON), str(HERE / "spark_job.py"), CONNECTORS[name], servers]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(PYTHON)}
        self._process = subprocess.Popen(
            [*command, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=directory,
        )
        version = self._answer()["spark"]
        if version != SPARK:
            raise RuntimeError(f"{PYTHON} has PySpark {version}, the figures need {SPARK}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, job: str, *arguments: object) -> dict[str, Any]:
        """Run a job; return its figures with CPU seconds and peak of the whole process tree."""
        assert self._process.stdin is not None
        reset_peaks(self.pid)
        with Cost(self.pid) as cost:
            self._process.stdin.write(json.dumps([job, *arguments]).encode() + b"\n")
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
def driver(name: str, servers: str, directory: Path) -> Iterator[SparkDriver]:
    """Run a Spark driver during the block."""
    with tempfile.TemporaryFile() as log:
        try:
            running = SparkDriver(name, servers, directory, log)
            yield running
            running.stop()
        except RuntimeError:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-5_000:])
            raise


class Topics:
    """The topics of a broker: those that loads read, and a new one for each that is written."""

    def __init__(self, broker: Barnabas, megabytes: int) -> None:
        self.pid = broker.pid
        self.servers = f"127.0.0.1:{broker.port}"
        self._megabytes = megabytes
        self._numbers = count()
        self._read: dict[Load, str] = {}

    def rows(self, load: Load) -> int:
        return load.rows or self._megabytes * 1_000_000 // load.size

    def of(self, load: Load) -> str:
        """Return the topic of a load; loads that read the same share one."""
        key = load._replace(job="")
        if key not in self._read:
            self._read[key] = self.new(self.rows(load), load.size, load.partitions)
        return self._read[key]

    def new(self, records: int = 0, size: int = 100, partitions: int = 4) -> str:
        """Create a topic, fill it by librdkafka, and return its name."""
        from confluent_kafka.admin import AdminClient, NewTopic

        topic = f"topic-{next(self._numbers)}"
        admin = AdminClient({"bootstrap.servers": self.servers})
        for done in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            done.result(30)
        if records:
            load = ["--bootstrap", self.servers, "--topic", topic, "--count", records]
            load += ["--size", size, "--batch-size", BATCH_BYTES, "--partitions", partitions]
            chunk = min(10_000, records // partitions)
            driven("librdkafka.py", "produce", *load, "--chunk", chunk)
        return topic


def measure(run: "Run", names: Sequence[str] = ("",)) -> None:
    """Measure the loads whose names begin with one of `names`."""
    chosen = [name for name in (*LOADS, *ALONE) if name.startswith(tuple(names))]
    with Barnabas(run.directory, PROPERTIES) as broker, ExitStack() as stack:
        raw.connect(broker.port).close()
        topics = Topics(broker, run.sizes.megabytes // 3)
        if loads := [name for name in chosen if name in LOADS]:
            starting = [driver(each, topics.servers, run.directory) for each in CONNECTORS]
            drivers = list(map(stack.enter_context, starting))
            for each, job in product(drivers, dict.fromkeys(LOADS[name].job for name in loads)):
                _warm_up(topics, each, job)
            run.rounds(drivers, [partial(_in_turn, topics, name) for name in loads])
    for name in chosen:
        if name in ALONE:
            ALONE[name](run, name)


def _warm_up(topics: Topics, spark: SparkDriver, job: str) -> None:
    """Run a job on few partitions until its JVM compiles little."""
    load = next(each for each in LOADS.values() if each.job == job)
    end, share, times = time.monotonic() + WARM_S, 1.0, 0
    while share > COMPILING and time.monotonic() < end:
        found = spark.ask(job, topics.of(load), topics.new(partitions=load.partitions))
        share, times = found["compiling_s"] / found["cpu_seconds"], times + 1
    print(
        f"warm-up: {job:29} {spark.name:22} {times} times, then compiling={share:.0%}", flush=True
    )


def _in_turn(topics: Topics, name: str, spark: SparkDriver) -> Round:
    """Run a load with one connector."""
    load = LOADS[name]
    topic = topics.of(load)
    target = "" if load.job == "read" else topics.new(partitions=load.partitions)
    with Cost(topics.pid) as broker:
        found = spark.ask(load.job, topic, target)
    peak = {"peak_mb": found["peak_mb"], "compiling_s": found["compiling_s"]}
    match load.job:
        case "triggers":
            # The start and the stop of their query are in the CPU time.
            cpu_ms = found["cpu_seconds"] / found["triggers"] * 1e3
            return {name: {"p50_ms": found["p50_ms"], "cpu_ms": cpu_ms, **peak}}
        case "join":
            figures = {"seconds": found["seconds"], "cpu_seconds": found["cpu_seconds"]}
            return {name: figures | {"broker_cpu_seconds": broker.cpu, **peak}}
    rows = topics.rows(load)
    figures = {
        "rows_per_s": rows / found["seconds"],
        "cpu_us_per_row": found["cpu_seconds"] / rows * 1e6,
        "broker_cpu_us_per_row": broker.cpu / rows * 1e6,
    }
    return {name: figures | peak}


def _memory(run: "Run", name: str) -> None:
    """Measure how much a Python worker grows that has read one row in each task before."""
    with Barnabas(run.directory, PROPERTIES) as broker:
        raw.connect(broker.port).close()
        topics = Topics(broker, 0)
        large, small = topics.new(MEMORY_ROWS), topics.new(4)
        with driver(OURS, topics.servers, run.directory) as spark:
            spark.ask("stream", small, "memory-idle")
            idle = max(resident_bytes(pid) for pid in _workers(spark.pid))
            peak, over = idle, threading.Event()

            def watch() -> None:
                nonlocal peak
                while not over.wait(0.1):
                    for pid in _workers(spark.pid):
                        peak = max(peak, resident_bytes(pid))

            thread = threading.Thread(target=watch)
            thread.start()
            found = spark.ask("stream", large, "memory")
            over.set()
            thread.join()
    assert found["rows"] == MEMORY_ROWS, found
    assert peak > idle, "the workers that read were not among those watched"
    run.note({name: {"mb_above_idle": (peak - idle) / 1e6}}, OURS)


def _commits(run: "Run", name: str) -> None:
    """Measure the commit of a batch, once it has run twice."""
    rounds = 2 + run.sizes.rounds
    with Cluster(PROPERTIES, processes=True) as brokers:
        found = asyncio.run(sink_commit.measure(brokers.bootstrap_servers, TASKS, rounds))
    for each in found[2:]:
        cpu = each["cpu_driver"] + each["cpu_brokers"]
        run.note({name: {"ms": each["commit"], "cpu_ms": cpu}}, OURS)


def _example(run: "Run", name: str) -> None:
    """Measure the time from the command to the first committed row."""
    command = [sys.executable, "-u", "-m", "barnabas", "pipeline", "example"]
    command += ["--directory", str(run.directory / "example")]
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
    run.note({name: found}, OURS)


def _workers(pid: int) -> list[int]:
    """Return the Python workers below a driver: the children of PySpark's daemons and of ours."""
    found: list[int] = []
    for child in children(pid):
        with suppress(OSError):
            module = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1:3]
            found += children(child) if module in DAEMONS else _workers(child)
    return found


ALONE = {
    "a worker's memory while 10 M rows pass": _memory,
    f"commit of {TASKS:,} transactions": _commits,
    "example's first committed row": _example,
}
"""The loads that the stock connector does not have."""


def main() -> None:
    from benchmarks import beside_kafka, report

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--load", nargs="+", default=[""], metavar="NAME", help="begin of names")
    for name in ("rounds", "megabytes"):
        parser.add_argument(f"--{name}", type=int, default=beside_kafka.Sizes._field_defaults[name])
    args = parser.parse_args()
    sizes = beside_kafka.Sizes(rounds=args.rounds, megabytes=args.megabytes)
    with tempfile.TemporaryDirectory(prefix="spark-pipeline-") as directory:
        run = beside_kafka.Run(Path(directory), sizes, None)
        measure(run, args.load)
    results = {"medians": beside_kafka.medians(run.found), "runs": run.found}
    print("\n".join(report.two_systems("pipeline", results)))


if __name__ == "__main__":
    main()
