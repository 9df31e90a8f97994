"""The compared brokers, each in its own process, and their cost by the kernel's accounting."""

import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.support.brokers.process import BrokerProcess
from tests.support.kafka.node import DEFAULT, Kafka

PROPERTIES = {
    # Files of deleted topics are removed at once, so that the next topic has their disk space.
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Settings of both systems; otherwise their defaults apply."""
_TICKS = 100
_TIMES = slice(11, 15)
"""Fields of /proc/<pid>/stat, counted from the end of the command's name: user and system time of
the process, and of its children that have ended."""


class System(Protocol):
    """A broker that can be started on empty storage."""

    name: str
    port: int
    data: Path

    @property
    def pid(self) -> int: ...

    def prepare(self) -> None:
        """Do what an operator does before the first start."""
        ...

    def launch(self) -> None:
        """Start the process; do not wait until it serves."""
        ...

    def restart(self) -> None:
        """Stop it cleanly and start it again on its data."""
        ...

    def stop(self) -> None:
        """Stop it and remove its data."""
        ...


class Barnabas:
    """`barnabas serve` with its defaults."""

    name = "Barnabas"

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] = {},
        listeners: Sequence[str] = (),
        program: str = "",
    ) -> None:
        """`program` is a module that runs a broker in place of `barnabas serve`."""
        self.data = directory / "barnabas"
        self._broker = BrokerProcess(
            self.data, defaults=PROPERTIES, further=listeners, program=program, **properties
        )
        self.port = self._broker.port

    @property
    def pid(self) -> int:
        return self._broker.pid

    def prepare(self) -> None:
        """Do nothing: the first start formats the storage."""

    def launch(self) -> None:
        self._broker.launch()

    def restart(self) -> None:
        self._broker.terminate()
        self.launch()

    def stop(self) -> None:
        if self._broker.is_running:
            self._broker.terminate()
        shutil.rmtree(self.data, ignore_errors=True)


class ApacheKafka:
    """One node, broker and controller, with the JVM options of Kafka's own scripts."""

    name = "Apache Kafka"

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] = {},
        listeners: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        """`options` are further ones of the JVM."""
        self._kafka = Kafka(
            directory / "kafka",
            heap=[*DEFAULT, *options],
            properties={**PROPERTIES, **properties},
            listeners=listeners,
        )
        self._starting: threading.Thread | None = None
        self.port = self._kafka.port
        self.data = self._kafka.data

    @property
    def pid(self) -> int:
        return self._kafka.pid

    def prepare(self) -> None:
        """Format the storage by starting once."""
        self._kafka.start()
        self._kafka.stop()

    def launch(self) -> None:
        # `start` returns when Kafka logs that it serves; the measurement notices it sooner.
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
    """A system that serves during a `with` block."""

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
    return sum(_memory(each, "VmRSS") for each in _tree(pid))


def reset_peaks(pid: int) -> None:
    """Let the peaks of a process and its children begin anew."""
    for each in _tree(pid):
        with suppress(OSError):
            Path(f"/proc/{each}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """Sum of the peaks of the resident memory of a process and of its children that run."""
    return sum(_memory(each, "VmHWM") for each in _tree(pid))


def settled(pid: int, seconds: float = 2.0, deadline_s: float = 30.0) -> None:
    """Return when a broker is idle: less than 5 % of a core over `seconds`."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        before = cpu_seconds(pid)
        time.sleep(seconds)
        if cpu_seconds(pid) - before < 0.05 * seconds:
            return


def children(pid: int) -> list[int]:
    """Return the child processes of a process; none if it has ended."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _tree(child)


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # the process has ended: its parent counts its time
    return sum(map(int, fields[_TIMES]))


def _memory(pid: int, field: str) -> int:
    """Return a field of /proc/<pid>/status in bytes, 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    return 0
