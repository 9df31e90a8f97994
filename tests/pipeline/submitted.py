"""Packaged jobs under spark-submit, on a cluster whose Python has no Barnabas.

The matrix kills an executor and the driver of such a job.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.pipeline.bench import ADMIN_WITHIN_S, PARTITIONS, Bench, Evidence, Stream, read_committed
from tests.pipeline.drivers import kill_session
from tests.pipeline.standalone import HOME, HOSTS, outside, standalone
from tests.support.command_line import environment
from tests.support.waiting import until

BATCHES = 20
ROWS = 1_000
"""The rows of a batch."""
WITHIN_S = 180.0
"""Seconds for the start of a job, and for its end."""
JOB = """\
name: {name}
bootstrap: {servers}
source:
  topic: {name}-in
  codec: string
  options: {{startingOffsets: earliest, maxOffsetsPerTrigger: {rows}}}
sink: {{topic: {topic}, codec: string}}
trigger: available-now
checkpoint: {folder}/points
spark:
  spark.executor.memory: 512m
  spark.executor.cores: 1
"""


def submitted_executor_killed(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Kill an executor of a packaged job while transactions are open; others finish the job."""
    with _cluster(bench, evidence, name) as (job, master):
        process = job.submit(master)
        job.wait_for_open_transactions(evidence)
        victim = _executor(HOSTS[1])
        assert victim is not None, "there is no executor on the second worker"
        os.kill(victim, signal.SIGKILL)
        until(lambda: _executor(HOSTS[1]) not in (None, victim), within_s=WITHIN_S)
        evidence.saw(process.poll() is None, "kill -9 of an executor; another one took its place")
        job.wait(process)
    return [job.stream]


def submitted_driver_killed(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Kill the driver of a packaged job, JVM and Python, while transactions are open."""
    with _cluster(bench, evidence, name) as (job, master):
        process = job.submit(master)
        job.wait_for_open_transactions(evidence)
        kill_session(process.pid)
        evidence.saw(process.wait() == -signal.SIGKILL, "kill -9 of the driver")
        job.wait(job.submit(master))
    return [job.stream]


class _PackagedJob:
    """A job that copies a topic; `python` is the environment of the cluster's Python."""

    def __init__(self, bench: Bench, name: str, python: Mapping[str, str]) -> None:
        self.stream = Stream(bench, name)
        self._python = python
        self._folder = self.stream.folder
        self._archive = self._folder / "job.py"
        self._drivers: list[subprocess.Popen[bytes]] = []
        self._produce()
        path = self._folder / "job.yaml"
        path.write_text(
            JOB.format(
                name=name,
                servers=bench.servers,
                topic=self.stream.topic,
                rows=ROWS,
                folder=self._folder,
            )
        )
        subprocess.run(
            [
                *(sys.executable, "-m", "barnabas", "pipeline", "package", str(path)),
                *("-o", str(self._archive)),
            ],
            env=environment(),
            stdout=subprocess.DEVNULL,
            timeout=WITHIN_S,
            check=True,
        )

    def _produce(self) -> None:
        servers, name = self.stream.servers, self.stream.name
        self.stream.values = [str(number) for number in range(BATCHES * ROWS)]
        # Without a reference its requests end at once.
        admin = AdminClient({"bootstrap.servers": servers})
        for done in admin.create_topics([NewTopic(f"{name}-in", PARTITIONS)]).values():
            done.result(ADMIN_WITHIN_S)
        producer = Producer({"bootstrap.servers": servers})
        for number, value in enumerate(self.stream.values):
            producer.produce(f"{name}-in", value, partition=number % PARTITIONS)
        assert producer.flush(ADMIN_WITHIN_S) == 0

    def submit(self, master: str) -> "subprocess.Popen[bytes]":
        """Start the driver as the page says."""
        # Java would look up the name of this host.
        local = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1")
        settings = [word for each in local for word in ("--conf", each)]
        with (self._folder / "log").open("ab") as log:
            driver = subprocess.Popen(
                [
                    *(str(HOME / "bin" / "spark-submit"), "--master", master),
                    *(*settings, str(self._archive)),
                ],
                env={
                    **outside(self._python),
                    "SPARK_HOME": str(HOME),
                    "XDG_CACHE_HOME": str(self._folder / "cache"),
                },
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._drivers.append(driver)
        return driver

    def kill(self) -> None:
        """Kill the drivers that still run."""
        for each in self._drivers:
            kill_session(each.pid)
            each.wait()

    def wait_for_open_transactions(self, evidence: Evidence) -> None:
        """Wait until a batch is in the output, and tasks write another one."""
        stream = self.stream
        until(
            lambda: read_committed(stream.servers, stream.topic, PARTITIONS),
            self.log,
            within_s=WITHIN_S,
        )
        until(stream.open_transactions, self.log)
        read = len(read_committed(stream.servers, stream.topic, PARTITIONS))
        evidence.saw(read < len(stream.values), f"{read} rows were there, transactions were open")

    def wait(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until all input is read."""
        assert process.wait(WITHIN_S) == 0, self.log()

    def log(self) -> str:
        """Return the end of what the drivers have printed."""
        return (self._folder / "log").read_text(errors="replace")[-6000:]


@contextmanager
def _cluster(bench: Bench, evidence: Evidence, name: str) -> Iterator[tuple[_PackagedJob, str]]:
    """Start Spark with an empty venv as its Python; yield a packaged job, and the master."""
    folder = bench.folder / f"{name}-cluster"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
    )
    programs = folder / "venv" / "bin"
    python = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    for module in ("barnabas", "pyarrow", "pyspark"):
        done = subprocess.run(
            [str(programs / "python3"), "-c", f"import {module}"],
            env=outside(python),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "ModuleNotFoundError" in done.stderr, done.stderr
    evidence.saw(True, "the cluster's Python has no Barnabas")
    with standalone(folder / "spark", python) as master:
        job = _PackagedJob(bench, name, python)
        try:
            yield job, master
        finally:
            job.kill()


def _executor(host: str) -> int | None:
    """Return the process of the executor on a host."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word.endswith("CoarseGrainedExecutorBackend") for word in words) and host in words:
            return int(each.parent.name)
    return None
