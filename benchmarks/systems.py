"""The brokers that are compared, each a process of its own, and what the kernel says they cost."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.ports import free_port
from tests.referee.kafka import DEFAULT, Kafka

PROPERTIES = {
    # Files of deleted topics go at once, so that their disk space is there for the next one.
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Given to both, beside their defaults."""
_TICKS = 100
_UTIME, _STIME = 11, 12
"""Fields of /proc/<pid>/stat, counted behind the command's name."""
_STOP_WITHIN_S = 30.0


class System(Protocol):
    """A broker that can be started on empty storage."""

    name: str
    port: int
    data: Path

    @property
    def pid(self) -> int: ...

    def prepare(self) -> None:
        """Whatever its operator does before the first start."""
        ...

    def launch(self) -> None:
        """Starts the process, and does not wait until it serves."""
        ...

    def restart(self) -> None:
        """Ends it cleanly and launches it again on its data."""
        ...

    def stop(self) -> None:
        """Ends it and removes its data."""
        ...


class Barnabas:
    """`barnabas serve` as it comes."""

    name = "Barnabas"

    def __init__(self, directory: Path, properties: Mapping[str, str] = {}) -> None:
        self.port = free_port()
        self._properties = {**PROPERTIES, **properties}
        self.data = directory / "barnabas"
        self._log = directory / "barnabas.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def prepare(self) -> None:
        """Nothing: storage is laid out at the first start."""

    def launch(self) -> None:
        command = [sys.executable, "-m", "barnabas", "serve", "--listen", f"127.0.0.1:{self.port}"]
        command += ["--data", str(self.data)]
        for key, value in self._properties.items():
            command += ["--set", f"{key}={value}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def restart(self) -> None:
        self._end()
        self.launch()

    def stop(self) -> None:
        self._end()
        shutil.rmtree(self.data, ignore_errors=True)

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_WITHIN_S)


class ApacheKafka:
    """One node, broker and controller, with the JVM options of Kafka's own scripts."""

    name = "Apache Kafka"

    def __init__(self, directory: Path) -> None:
        self._kafka = Kafka(directory / "kafka", heap=DEFAULT, properties=PROPERTIES)
        self._starting: threading.Thread | None = None
        self.port = self._kafka.port
        self.data = self._kafka.data

    @property
    def pid(self) -> int:
        return self._kafka.pid

    def prepare(self) -> None:
        """Formats the storage, by starting once."""
        self._kafka.start()
        self._kafka.stop()

    def launch(self) -> None:
        # `start` returns when Kafka says that it serves; whoever measures finds out sooner.
        self._starting = threading.Thread(target=self._kafka.start)
        self._starting.start()

    def restart(self) -> None:
        if self._starting is not None:
            self._starting.join()
        self._kafka.stop()
        self.launch()

    def stop(self) -> None:
        if self._starting is not None:
            self._starting.join()
        self._kafka.__exit__(None, None, None)


class Running:
    """A system that serves for the length of a `with` block."""

    def __init__(self, system: System) -> None:
        self.system = system

    def __enter__(self) -> Self:
        self.system.prepare()
        self.system.launch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.system.stop()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children so far, in user and kernel mode."""
    return sum(_ticks(each) for each in _tree(pid)) / _TICKS


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    return sum(int(_status(each)["VmRSS"].split()[0]) * 1024 for each in _tree(pid))


def settled(pid: int, seconds: float = 2.0, deadline_s: float = 30.0) -> None:
    """Returns when a broker has come to rest: less than 5 % of a core over `seconds`."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        before = cpu_seconds(pid)
        time.sleep(seconds)
        if cpu_seconds(pid) - before < 0.05 * seconds:
            return


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _tree(int(child))


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[_UTIME]) + int(fields[_STIME])


def _status(pid: int) -> Mapping[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)
