"""A command that runs until it is stopped, such as the supervisor of several brokers."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.command_line import environment

DEADLINE = 30.0


class Parent:
    """A supervisor process and its output."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(**variables),
            text=True,
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Iterator[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put("")

    def says(self, pattern: str) -> re.Match[str]:
        """Wait for a line that matches the pattern."""
        deadline = time.monotonic() + DEADLINE
        ends = 0
        while ends < 2:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            self.said.append(line)
            ends += not line
            found = re.search(pattern, line)
            if found is not None:
                return found
        raise AssertionError(f"no line matches {pattern}:\n{''.join(self.said)}")

    def serves(self) -> str:
        # The number of brokers has a line of its own if there are many addresses.
        return self.says(r"Barnabas serves (\S+)(?: with|$)")[1]

    def children(self) -> list[int]:
        """Return the process ids in the order in which they were started."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sorted(
            int(child)
            for task in tasks.iterdir()
            for child in (task / "children").read_text().split()
        )

    def ends(self) -> int:
        code = self.process.wait(DEADLINE)
        for reader in self._readers:
            reader.join(DEADLINE)
        while not self._lines.empty():
            self.said.append(self._lines.get())
        return code


@contextmanager
def running(*arguments: str, **variables: str) -> Iterator[Parent]:
    parent = Parent(*arguments, **variables)
    children: list[int] = []
    try:
        yield parent
        children = parent.children() if parent.process.poll() is None else []
    finally:
        for pid in (parent.process.pid, *children):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        parent.ends()


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
