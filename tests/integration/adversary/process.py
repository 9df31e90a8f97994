"""A broker in a process of its own, which can be killed and started again at the same address."""

import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import free_port

ROOT = Path(__file__).parents[3]
START_TIMEOUT_S = 60.0
FAST = {
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
}


class StartFailed(Exception):
    """The broker ended instead of serving, or did not come to it."""


class BrokerProcess:
    """One broker and its directory, over as many processes as it takes.

    `program` is a module of this folder that runs a broker on a disk of its own kind.
    """

    def __init__(self, directory: Path, *, program: str | None = None, **keys: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.starts = 0
        self._program = program
        self._keys = {**FAST, **{key.replace("_", "."): value for key, value in keys.items()}}
        self._process: subprocess.Popen[str] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.launch()
        self.wait_until_serving()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def launch(self) -> None:
        """Start a process, without waiting for it to serve."""
        keys = {"listeners": f"PLAINTEXT://{self.bootstrap_servers}", **self._keys}
        pairs = [f"{key}={value}" for key, value in keys.items()]
        if self._program is not None:
            command = ["-m", f"{__package__}.{self._program}", str(self.directory), *pairs]
        else:
            command = ["-m", "barnabas", "serve", "--data", str(self.directory)]
            command += [word for pair in pairs for word in ("--set", pair)]
        self.starts += 1
        with open(self.directory / "stderr", "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def wait_until_serving(self) -> None:
        """Raises StartFailed, with the last lines of the log."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            ready = selector.select(START_TIMEOUT_S)
        if not ready or not process.stdout.readline():
            self.kill()
            raise StartFailed(f"start {self.starts}:\n{self.errors()[-4000:]}")

    def is_dead(self, within_s: float) -> bool:
        """Whether the process has ended by itself, or does so in a while."""
        assert self._process is not None
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def wait_until_dead(self) -> None:
        """Until the process has ended by itself."""
        assert self._process is not None
        self._process.wait(START_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def errors(self) -> str:
        """What the broker said so far on standard error."""
        return (self.directory / "stderr").read_text(errors="replace")
