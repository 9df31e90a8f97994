"""Drivers of Spark as processes of their own, one of which starts ahead of its use."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.spark import ROOT

READY_WITHIN_S = 120.0
ANSWER_WITHIN_S = 180.0


class DriverDied(Exception):
    """The driver's process has ended before its answer."""


class DriverProcess:
    """One driver with its JVM; orders are answered one after the other."""

    def __init__(self, folder: Path, name: str, master: str, settings: Iterable[str]) -> None:
        self.name = name
        self.folder = folder
        folder.mkdir(parents=True)
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.pipeline.driver"),
                    *(str(folder), name, master, *settings),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        self._answers: list[dict[str, Any]] = []
        self._arrived = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()
        self.processes: list[int] = []

    def wait_until_ready(self) -> None:
        """Wait for the JVM. Raises DriverDied."""
        if not self.processes:
            self.processes = self._answer(READY_WITHIN_S)["processes"]

    def order(self, order: str, **details: Any) -> str | None:
        """Give an order and wait; return the error of the query. Raises DriverDied."""
        self.send(order, **details)
        return self.answer()

    def send(self, order: str, **details: Any) -> None:
        """Give an order without waiting for its answer."""
        self.wait_until_ready()
        assert self._process.stdin is not None
        line = json.dumps({"order": order, **details}) + "\n"
        with suppress(BrokenPipeError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()

    def answer(self) -> str | None:
        """Wait for the answer to the oldest order without one. Raises DriverDied."""
        error = self._answer(ANSWER_WITHIN_S)["error"]
        return None if error is None else str(error)

    @property
    def is_alive(self) -> bool:
        """Whether the driver's Python and its JVM run."""
        return self._process.poll() is None and all(map(_runs, self.processes))

    def kill(self) -> None:
        """Kill the driver, its JVM and its workers with SIGKILL."""
        kill_session(self._process.pid)
        self._process.wait()

    def log(self) -> str:
        """Return the end of what the driver has printed."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._arrived:
                self._answers.append(json.loads(line))
                self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    def _answer(self, timeout: float) -> dict[str, Any]:
        with self._arrived:
            came = self._arrived.wait_for(lambda: self._answers or self._ended, timeout)
            assert came, f"driver {self.name} has not answered in {timeout:g} s: {self.log()}"
            if not self._answers:
                raise DriverDied(self.log())
            return self._answers.pop(0)


class Drivers:
    """The drivers of a run. A spare one starts while the others work."""

    def __init__(
        self, folder: Path, master: str = "local[2]", settings: Iterable[str] = ()
    ) -> None:
        self._folder = folder
        self._master = master
        self._settings = list(settings)
        self._made = 0
        self._all: list[DriverProcess] = []
        self._free: list[DriverProcess] = []

    def take(self) -> DriverProcess:
        """Return a driver that no one else uses."""
        self._free = [each for each in self._free if each.is_alive]
        driver = self._free.pop() if self._free else self._start()
        driver.wait_until_ready()
        return driver

    def give_back(self, driver: DriverProcess) -> None:
        """Let others use a driver, if it is alive."""
        if driver.is_alive:
            self._free.append(driver)
        else:
            driver.kill()

    def start_spare(self) -> None:
        """Begin to start a driver if all are in use."""
        if not self._free:
            self._free.append(self._start())

    def kill_all(self) -> None:
        """Kill every driver that was started."""
        for driver in self._all:
            driver.kill()

    def _start(self) -> DriverProcess:
        self._made += 1
        name = f"driver-{self._made}"
        driver = DriverProcess(self._folder / name, name, self._master, self._settings)
        self._all.append(driver)
        return driver


def kill_session(leader: int) -> None:
    """Kill all processes of a session: workers of Spark have process groups of their own."""
    give_up = time.monotonic() + 10
    while members := _members(leader):
        assert time.monotonic() < give_up, f"processes {members} do not end"
        for process in members:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _members(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found
