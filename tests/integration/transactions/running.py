"""Client programs beside a broker that dies: started, followed by what they tell, and ended."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.integration.adversary.process import ROOT
from tests.integration.interop import franz_go
from tests.referee import jvm

IN_TIME_S = 40.0


class Program:
    """A process whose standard output is a file that grows."""

    def __init__(self, command: list[str], output: Path) -> None:
        self._output = output
        self._errors = output.with_suffix(".errors")
        with output.open("wb") as told, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def told(self) -> list[str]:
        """The lines of its output so far."""
        return self._output.read_text().splitlines()

    def counts(self) -> Counter[str]:
        """How often each line began with which word."""
        return Counter(line.split()[0] for line in self.told())

    def wait_for_more(self, word: str, than: int) -> None:
        """Until more than so many lines have begun with the word, or the program is done."""
        deadline = time.monotonic() + IN_TIME_S
        while self.counts()[word] <= than and self._process.poll() is None:
            assert time.monotonic() < deadline, self.complaints()
            time.sleep(0.02)

    def finish(self, seconds: float = IN_TIME_S) -> list[str]:
        """Wait for its end; what it told."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, (code, self.complaints())
        return self.told()

    def complaints(self) -> str:
        """The ends of what it said."""
        told = "\n".join(line[:300] for line in self.told()[-30:])
        return told + self._errors.read_text(errors="replace")[-3000:]


def transform(kind: str, servers: str, records: int, directory: Path, route: str = "") -> Program:
    """A client library that carries the input of a route to its output."""
    return _start("transform", kind, servers, records, directory / f"transform-{kind}", route)


def read(
    kind: str, servers: str, partitions: int, directory: Path, name: str, route: str = ""
) -> Program:
    """A client library that reads the committed records of the output."""
    return _start("read", kind, servers, partitions, directory / f"read-{name}-{kind}", route)


def _start(what: str, kind: str, servers: str, number: int, output: Path, route: str) -> Program:
    if kind == "java":
        command = jvm.program("Transformer")
    elif kind == "franz":
        command = [str(franz_go.program()), what]
    else:
        command = [sys.executable, "-m", "tests.integration.transactions.program", what, kind]
    return Program([*command, servers, str(number), route], output)
