"""The pipeline beside Spark's stock connector: two drivers take turns on one broker.

`--load NAME ...` runs the loads whose names begin so. CPU time and memory are the kernel's
accounting of the driver, its JVM and the Python workers; the broker's CPU time is shown apart. The
commit of a batch and the example run on three brokers, which are counted. A driver keeps memory
that it has taken for an earlier load.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import raw, sink_commit
from benchmarks.child import Child, driven
from benchmarks.measures import (
    Cost,
    Round,
    children,
    cpu_seconds,
    peak_bytes,
    reset_peaks,
    resident_bytes,
)
from benchmarks.systems import OURS, Barnabas, create_topics
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
_JOB_WITHIN_S = 3_600.0
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

    def __init__(self, name: str, process: Child) -> None:
        self.name, self.pid = name, process.pid
        self._process = process

    def ask(self, job: str, *arguments: object) -> dict[str, Any]:
        """Run a job; return its figures with CPU seconds and peak of the whole process tree."""
        reset_peaks(self.pid)
        with Cost(self.pid) as cost:
            self._process.tell([job, *arguments])
            answer = self._process.hear(_JOB_WITHIN_S)
        return {**answer, "cpu_seconds": cost.cpu, "peak_mb": peak_bytes(self.pid) / 1e6}


@contextmanager
def driver(name: str, servers: str, directory: Path) -> Iterator[SparkDriver]:
    """Run a Spark driver during the block."""
    job = {"connector": CONNECTORS[name], "servers": servers, "directory": str(directory)}
    environment = {"PYSPARK_PYTHON": str(PYTHON)}
    place = {"python": PYTHON, "cwd": directory, "environment": environment}
    with Child("spark_job.serve", **place, **job) as process:
        version = process.hear()["spark"]
        if version != SPARK:
            raise RuntimeError(f"{PYTHON} has PySpark {version}, the figures need {SPARK}")
        yield SparkDriver(name, process)
        process.tell()
        process.hear()


class Topics:
    """The topics of a broker: those that loads read, and a new one for each that is written."""

    def __init__(self, broker: Barnabas, megabytes: int) -> None:
        self.pid = broker.pid
        self.servers = broker.servers
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
        topic = f"topic-{next(self._numbers)}"
        create_topics(self.servers, {topic: partitions})
        if records:
            load = {"servers": self.servers, "topic": topic, "count": records, "size": size}
            load |= {"batch_size": BATCH_BYTES, "partitions": partitions}
            driven("librdkafka.produce", **load)
        return topic


def measure(run: "Run") -> None:
    """Measure the loads that are chosen."""
    begins = tuple(run.sizes.load or [""])
    chosen = [name for name in (*LOADS, *ALONE) if name.startswith(begins)]
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
    for each in sink_commit.batches(TASKS, 2 + run.sizes.rounds)[2:]:
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
