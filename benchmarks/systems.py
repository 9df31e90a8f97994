"""The compared brokers, each in its own process, and their cost by the kernel's accounting."""

import compileall
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from tests.support import go_programs
from tests.support.brokers.process import ROOT, BrokerProcess
from tests.support.kafka.node import DEFAULT, Kafka
from tests.support.ports import free_port

_SHARED = {
    # Files of deleted topics are removed at once, so that the next topic has their disk space.
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
PROPERTIES = {
    **_SHARED,
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Settings of Barnabas and Apache Kafka; otherwise their defaults apply."""
_KFAKE = Path(__file__).parent / "kfake"
_TICKS = 100
_ENDED = slice(13, 15)
"""Fields of /proc/<pid>/stat, counted from the end of the command's name: user and system time of
the children that have ended."""
_SCHEDULED = 2
"""The clock of a process that counts its time on a CPU (CPUCLOCK_SCHED in the kernel)."""
_STOP_WITHIN_S = 30.0


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


BEFORE: Final = "Barnabas before"
GENERAL, GENERAL_BEFORE = "Barnabas, short ways off", "Barnabas before, short ways off"
GENERAL_ONLY: Final = {"fast.paths.enable": "false"}
"""The setting under which every request takes the general way."""


class Barnabas:
    """`barnabas serve` with its defaults."""

    name = "Barnabas"

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] = {},
        listeners: Sequence[str] = (),
        program: str = "",
        root: Path = ROOT,
        name: str = name,
    ) -> None:
        """`program` is a module that runs a broker in place of `barnabas serve`, `root` the
        checkout whose broker runs."""
        self.name = name
        self.data = _data_of(directory, self.name)
        self._root = root
        self._broker = BrokerProcess(
            self.data,
            defaults=PROPERTIES,
            further=listeners,
            program=program,
            root=root,
            **properties,
        )
        self.port = self._broker.port
        self.ports = [self.port]

    @property
    def pid(self) -> int:
        return self._broker.pid

    def prepare(self) -> None:
        """Compile the modules, as an installation does. The first start formats the storage."""
        for each in (self._root / "barnabas").iterdir():
            # compileall follows no symbolic links.
            if each.is_dir():
                compileall.compile_dir(each.resolve(), quiet=1)

    def launch(self) -> None:
        self._broker.launch()

    def restart(self) -> None:
        self._broker.terminate()
        self.launch()

    def stop(self) -> None:
        if self._broker.is_running:
            self._broker.terminate()
        shutil.rmtree(self.data, ignore_errors=True)


class Processes:
    """Several brokers of `barnabas serve --processes` on one host.

    The replication of internal topics is the default's: it is a part of what processes cost.
    """

    def __init__(self, directory: Path, count: int, root: Path = ROOT) -> None:
        """`root` is the checkout whose brokers run."""
        self.name = processes_name(count, before=root != ROOT)
        self.data = _data_of(directory, self.name)
        self._root = root
        self.port = 0
        self.ports: list[int] = []
        self._count = count
        self._parent: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._parent is not None
        return self._parent.pid

    def prepare(self) -> None:
        """Do nothing: the first start formats the storage."""

    def launch(self) -> None:
        """Start the processes; the line that gives their ports comes when all of them serve."""
        command = [sys.executable, "-m", "barnabas", "serve", "--log-level", "error"]
        command += ["--listen", "127.0.0.1:0", "--data", str(self.data)]
        command += ["--processes", str(self._count)]
        command += [word for pair in _SHARED.items() for word in ("--set", "=".join(pair))]
        self._parent = subprocess.Popen(
            command,
            cwd=self._root,
            env={**os.environ, "PYTHONPATH": str(self._root)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._parent.stdout is not None
        greeting = self._parent.stdout.readline()
        self.ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", greeting)]
        self.port = self.ports[0]

    def restart(self) -> None:
        self._end()
        self.launch()

    def stop(self) -> None:
        self._end()
        shutil.rmtree(self.data, ignore_errors=True)

    def _end(self) -> None:
        if self._parent is not None:
            _terminated(self._parent)


class Kfake:
    """One broker of franz-go's kfake, in Go, with its data in files that it does not sync."""

    name = "kfake"

    def __init__(self, directory: Path) -> None:
        self.data = directory / "kfake"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def prepare(self) -> None:
        """Build the program."""
        go_programs.built(_KFAKE, "kfake")

    def launch(self) -> None:
        command = [str(go_programs.built(_KFAKE, "kfake"))]
        command += ["-port", str(self.port), "-data", str(self.data)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def restart(self) -> None:
        assert self._process is not None
        _terminated(self._process)
        self.launch()

    def stop(self) -> None:
        if self._process is not None:
            _terminated(self._process)
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


def _data_of(directory: Path, name: str) -> Path:
    """Return the directory of a system: `log.dirs` is divided at commas."""
    return directory / name.replace(",", "").replace(" ", "-")


def processes_name(count: int, *, before: bool = False) -> str:
    """Return the name of several processes of Barnabas as one system."""
    return f"Barnabas{' before' if before else ''}, {count} processes"


def left_out() -> dict[str, str]:
    """Return the reason for each system that cannot run on this machine."""
    reasons = {Kfake.name: go_programs.why_not()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, its threads and its children so far, in user and kernel mode.

    It is exact to the nanosecond; only that of children that have ended is counted in ticks.
    """
    return sum(_running_s(each) + _ended_s(each) for each in _tree(pid))


def _running_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, also of those that have ended."""
    with suppress(OSError):
        return time.clock_gettime_ns((~pid << 3) | _SCHEDULED) / 1e9
    return 0.0  # the process has ended: its parent counts its time


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


def _ended_s(pid: int) -> float:
    """Return the CPU time of the children of a process that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[_ENDED])) / _TICKS


def _terminated(process: "subprocess.Popen[Any]") -> None:
    """End a process with SIGTERM; kill it if it does not end in time."""
    process.terminate()
    try:
        process.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _memory(pid: int, field: str) -> int:
    """Return a field of /proc/<pid>/status in bytes, 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    return 0
