"""A broker in a process of its own, which can be killed and started again at the same address."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.ports import free_port

ROOT = Path(__file__).parents[3]
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
FAST = {
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
}


class StartFailed(Exception):
    """The broker ended, or did not serve in time."""


class BrokerProcess:
    """One broker with its directory; each start runs it in another process.

    `keys` are Kafka's, with underscores for the dots, and win over `defaults`. `program` is a
    module that runs a broker in its own way, in place of `barnabas serve`. `prefix` is a command
    that starts the one behind it. `further` are more listeners. `root` is the checkout whose broker
    runs.
    """

    def __init__(
        self,
        directory: Path,
        *,
        program: str = "",
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] = {},
        defaults: Mapping[str, str] = FAST,
        further: Sequence[str] = (),
        root: Path = ROOT,
        **keys: str,
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.starts = 0
        self._program = program
        self._root = root
        self._prefix = list(prefix)
        self._environment = dict(environment)
        self._keys = {
            "listeners": ",".join([f"PLAINTEXT://{self.bootstrap_servers}", *further]),
            **defaults,
            **_dotted(keys),
        }
        self._process: subprocess.Popen[str] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """The file that the standard error of all its processes goes to.

        It lies beside the directory, which may be a disk that is full.
        """
        return self.directory.with_name(f"{self.directory.name}.log")

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self, within_s: float = START_TIMEOUT_S) -> None:
        """Start a process, and return when it serves. Raises StartFailed."""
        self.launch()
        self.wait_until_serving(within_s)

    def launch(self, **keys: str) -> None:
        """Start a process, and return at once; `keys` hold for this process only."""
        pairs = [f"{key}={value}" for key, value in (self._keys | _dotted(keys)).items()]
        if self._program:
            words = [self._program, str(self.directory), *pairs]
        else:
            words = ["barnabas", "serve", "--data", str(self.directory)]
            words += [word for pair in pairs for word in ("--set", pair)]
        self.starts += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", *words],
                cwd=self._root,
                env={**os.environ, "PYTHONPATH": str(self._root), **self._environment},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_until_serving(self, within_s: float = START_TIMEOUT_S) -> None:
        """Wait for the line that the broker prints then. Raises StartFailed with its log's end."""
        output = self._started().stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            ready = selector.select(within_s)
        if not ready or not output.readline():
            self.kill()
            raise StartFailed(f"start {self.starts}:\n{self.errors()[-4000:]}")

    def kill(self) -> int:
        """Send SIGKILL and return the exit code. A process that has ended keeps its own."""
        if self._process is None:
            return 0
        self.signal(signal.SIGKILL)
        return self.wait_until_ended()

    def terminate(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait_until_ended()

    def signal(self, number: int) -> None:
        self._started().send_signal(number)

    def wait_until_ended(self, within_s: float = STOP_TIMEOUT_S) -> int:
        """Return the exit code, which is negative if a signal ended the process."""
        process = self._started()
        code = process.wait(within_s)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def has_ended(self, within_s: float) -> bool:
        """Return whether the process ends by itself within a time."""
        try:
            self._started().wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def pause(self) -> None:
        """Send SIGSTOP, and return when every thread of the process has stopped."""
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not all(state == "T" for state in self._thread_states()):
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def errors(self) -> str:
        """Return the standard error of all its processes so far."""
        return self.log.read_text(errors="replace")

    def _started(self) -> "subprocess.Popen[str]":
        assert self._process is not None
        return self._process

    def _thread_states(self) -> list[str]:
        states = []
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):
                states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
        return states


def _dotted(keys: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in keys.items()}
