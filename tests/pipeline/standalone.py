"""Spark's standalone master with two workers on different addresses, as the pip package has them.

Spark starts the copy of a slow task on another host only.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyspark

from tests.pipeline.drivers import kill_session
from tests.support.spark import ROOT
from tests.support.waiting import until

HOSTS = ("127.0.0.2", "127.0.0.3")
SETTINGS = (
    "spark.executor.memory=512m",
    "spark.executor.cores=1",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.speculation=true",
    "spark.speculation.interval=50ms",
    "spark.speculation.multiplier=1.5",
    "spark.speculation.quantile=0.5",
    "spark.speculation.minTaskRuntime=1500ms",
    "spark.excludeOnFailure.enabled=false",
    # A task that has lost may write for so long.
    "spark.python.task.killTimeout=60s",
)
HOME = Path(pyspark.__file__).parent
WITH_BARNABAS = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
"""The environment in which Python processes of executors have Barnabas and the tests."""
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")


@contextmanager
def standalone(folder: Path, python: Mapping[str, str] = WITH_BARNABAS) -> Iterator[str]:
    """Start a master and two workers; yield the master's address.

    `python` is the environment that says which Python executors start.
    """
    folder.mkdir(parents=True)
    start = partial(_start, python)
    programs = [start(folder / "master", "master.Master", "--host", "127.0.0.1", "--port", "0")]
    try:
        master = until(lambda: _ADDRESS.search((folder / "master").read_text(errors="replace")))[1]
        size = ("--cores", "1", "--memory", "600m")
        programs += [
            start(folder / host, "worker.Worker", master, "--host", host, *size) for host in HOSTS
        ]
        for host in HOSTS:
            log = folder / host
            until(lambda log=log: "Successfully registered" in log.read_text(errors="replace"))
        yield master
    finally:
        for program in programs:
            kill_session(program.pid)
            program.wait()


def outside(python: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program with the Python that `python` names, and no other."""
    others = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    return {**{key: each for key, each in os.environ.items() if key not in others}, **python}


def _start(
    python: Mapping[str, str], log: Path, program: str, *arguments: str
) -> "subprocess.Popen[bytes]":
    environment = {
        **outside(python),
        "SPARK_HOME": str(HOME),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(log.parent / f"work-of-{log.name}"),
    }
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}"]
    with log.open("wb") as out:
        return subprocess.Popen(
            [*command, *arguments, "--webui-port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
