"""A server of Spark Connect, from the jars of the pip package; it can be killed and started again.

Its clients are programs of their own: a process that has been one starts no JVM any more.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from tests.pipeline.drivers import kill_session
from tests.support.ports import free_port
from tests.support.spark import ROOT, SETTINGS
from tests.support.waiting import until

_HOME = Path(pyspark.__file__).parent
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Spark Connect server started at")


class ConnectServer:
    """One server; every start is another process on the same port."""

    def __init__(
        self, folder: Path, *, master: str, python: str = sys.executable, path: str = str(ROOT)
    ) -> None:
        """`python` runs its workers, which import from the folders of `path`."""
        self._folder = folder
        self._port = free_port()
        self._master = master
        self._environment = {**os.environ, "PYSPARK_PYTHON": python, "PYTHONPATH": path}
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"sc://127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        """The log of the last start."""
        return self._folder / f"log-{self._starts}"

    def start(self) -> None:
        """Start the server, and wait until clients can connect."""
        self._starts += 1
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = {
            **SETTINGS,
            "spark.master": self._master,
            "spark.local.dir": str(self._folder / "local"),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(str(_HOME / "bin/spark-class"), "org.apache.spark.deploy.SparkSubmit"),
                    *("--class", _CLASS, *_arguments(settings), "spark-internal"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**self._environment, "SPARK_HOME": str(_HOME), "SPARK_CONNECT_MODE": "0"},
                start_new_session=True,
            )
        until(lambda: _STARTED.search(self.said()), self.said)

    def said(self) -> str:
        """Return the log of the last start."""
        return self.log.read_text(errors="replace")

    def wait_until_dead(self) -> None:
        """Wait for the end of the process that a fault has killed."""
        assert self._process is not None
        self._process.wait(60)

    def kill(self) -> None:
        """Kill the server and its workers with SIGKILL."""
        if self._process is not None:
            kill_session(self._process.pid)
            self._process.wait()


def _arguments(settings: Mapping[str, str]) -> list[str]:
    return [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
