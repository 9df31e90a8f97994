"""A client program in a process of its own, whose output a test follows."""

import subprocess
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.brokers.process import ROOT

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

    def send(self, signal: int) -> None:
        """Send it a signal."""
        self._process.send_signal(signal)

    def told(self) -> list[str]:
        """Return the whole lines of its output so far."""
        return self._output.read_text().rpartition("\n")[0].splitlines()

    def counts(self) -> Counter[str]:
        """Return the number of lines by their first word."""
        return Counter(line.split()[0] for line in self.told())

    def wait_for_more(self, word: str, than: int) -> None:
        """Wait until more than so many lines begin with a word, or the program has ended."""
        deadline = time.monotonic() + IN_TIME_S
        while self.counts()[word] <= than and self._process.poll() is None:
            assert time.monotonic() < deadline, self.complaints()
            time.sleep(0.02)

    def finish(self, seconds: float = IN_TIME_S) -> list[str]:
        """Wait for its end, and return the lines of its output."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, (code, self.complaints())
        return self.told()

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        self._process.terminate()
        self._process.wait(IN_TIME_S)

    def complaints(self) -> str:
        """Return the ends of its standard output and standard error."""
        told = "\n".join(line[:300] for line in self.told()[-30:])
        return told + self._errors.read_text(errors="replace")[-3000:]
