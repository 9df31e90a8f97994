"""`barnabas verify eos` as the load of a cluster while something happens to it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.support.brokers.cluster import ProcessCluster
from tests.support.brokers.process import ROOT
from tests.support.command_line import environment
from tests.support.waiting import until

Events = list[dict[str, Any]]

_WARM: Final = 200
"""Operations that went well before something happens."""
_WARM_WITHIN_S: Final = 60.0
_JUDGED_WITHIN_S: Final = 300.0


class Checker:
    """A context manager around one run of `barnabas verify eos`, with further options."""

    def __init__(self, cluster: ProcessCluster, directory: Path, *words: str) -> None:
        directory.mkdir(parents=True)
        self._cluster = cluster
        self.directory = directory
        self.history = directory / "history"
        self._verdict = directory / "verdict"
        self._words = [*words, "--history", str(self.history)]
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def start(self) -> None:
        """Start the load, and return when it is warm."""
        at = self._cluster.bootstrap_servers
        words = ["barnabas", "verify", "eos", "-b", at, "-d", "7200", "--keep", "--json"]
        self.run([*words, *self._words], self._verdict)
        self._cluster.until(lambda: self._count(b'"type":"ok"') >= _WARM, _WARM_WITHIN_S, self._why)

    def run(self, words: Sequence[str], to: Path) -> None:
        """Run a module beside the load, with its output in a file."""
        with to.open("wb") as output, to.with_suffix(".err").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=errors,
            )
        self._running.append(process)

    def _why(self) -> str:
        return (
            f"{self.ended()} transactions are over\n{self._verdict.with_suffix('.err').read_text()}"
        )

    def ended(self) -> int:
        """Transactions that are surely over, so far."""
        return self._count(b'"f":"end","type":"ok"')

    def _count(self, what: bytes) -> int:
        return self.history.read_bytes().count(what) if self.history.exists() else 0

    def judge(self) -> dict[str, Any]:
        """End the load; the checker's verdict, as `barnabas verify eos --json` prints it."""
        checker, *others = self._running
        checker.send_signal(signal.SIGINT)
        checker.wait(_JUDGED_WITHIN_S)
        for other in others:
            other.terminate()
            other.wait(_JUDGED_WITHIN_S)
        try:
            verdict: dict[str, Any] = json.loads(self._verdict.read_text())
        except ValueError:
            raise AssertionError(self._verdict.with_suffix(".err").read_text()[-4000:]) from None
        return verdict


def run_until(
    enough: Callable[[Events], object], servers: str, history: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run `barnabas verify eos --json`, and end its load when the events so far are enough.

    How much a machine does in a fixed time is unknown.
    """
    load = (*("-b", servers, "-d", "7200", "--history", str(history)), *words)
    command = [sys.executable, "-m", "barnabas", "verify", "eos", "--json", *load]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            until(lambda: process.poll() is not None or enough(events(history)))
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=_JUDGED_WITHIN_S)
        finally:
            process.kill()
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def events(history: Path) -> Events:
    """Return the events of a history, whose last line may not be complete."""
    text = history.read_text() if history.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def committed(events: Events) -> int:
    """Return the number of transactions that were surely committed."""
    ends = [each for each in events if each["f"] == "end"]
    asked = {each["op"] for each in ends if each["type"] == "invoke" and each["value"]["commit"]}
    return sum(each["type"] == "ok" and each["op"] in asked for each in ends)
