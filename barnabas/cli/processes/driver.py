"""The driver of a job as a child process, which is started again when it dies.

`python -m barnabas.cli.processes.driver ARGUMENTS` is the `barnabas` command. It stops when its
standard input ends, which tells that the parent is dead.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from barnabas.broker.pipes import close_pipe, end_of, read_pipe

if TYPE_CHECKING:
    from barnabas.pipeline.monitor.progress import Progress

STOP_SECONDS: Final = 30.0
"""A driver that has not stopped after this time is killed."""
RESTART_SECONDS: Final = 1.0
MOST_FAILURES: Final = 3
"""Starts in a row without a batch, after which the job is given up."""


class Driver:
    """The process of `barnabas pipeline run`, with its JVM and workers in one process group."""

    def __init__(self, job: Path, bootstrap: str, log: Path, tell: Callable[[str], None]) -> None:
        """Run the job file `job` on `bootstrap`; standard error goes to the file `log`."""
        self.progress: Progress | None = None
        """The last progress of this process or of the one before."""
        self.runs = False
        """Whether the present process has started its query."""
        self.kills = 0
        self._arguments = ["pipeline", "run", str(job), "-b", bootstrap, "--json"]
        self._log = log
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._has_batch = False
        self._stop = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The id of the process while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def kill(self) -> int:
        """Kill the process with its JVM and workers at once; return its id."""
        pid = self.pid
        assert pid is not None
        self.kills += 1
        self.runs = False
        _kill_group(pid)
        return pid

    async def run(self) -> None:
        """Run the driver until `stop`; ClickException if it fails again and again."""
        failures = 0
        while not self._stop.is_set():
            code = await self._run_once()
            if self._stop.is_set():
                return
            if self._has_batch or code == -signal.SIGKILL:
                failures = 0
            else:
                # What fails at the first start fails again.
                failures += 1 if self.progress is not None and self.progress.last else MOST_FAILURES
            if failures >= MOST_FAILURES:
                raise click.ClickException(self._last_words(code))
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._tell(f"driver ended ({how}); restart in {RESTART_SECONDS:g} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), RESTART_SECONDS)

    async def stop(self) -> None:
        """Stop the job orderly, or kill its processes after STOP_SECONDS."""
        self._stop.set()
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(end_of(process)), STOP_SECONDS)
        _kill_group(process.pid)

    async def _run_once(self) -> int:
        self.runs = self._has_batch = False
        process = self._process = self._spawn()
        assert process.stdout is not None
        try:
            end = end_of(process)
            lines = read_pipe(process.stdout.fileno())
            while line := await lines.readline():
                self._heard(line)
            return await end
        finally:
            self.runs = False
            # A JVM outlives its driver for a moment.
            _kill_group(process.pid)
            close_pipe(process.stdout)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", __name__, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C must reach the parent only, which ends the stream before it stops the job.
                start_new_session=True,
            )

    def _heard(self, line: bytes) -> None:
        from barnabas.pipeline.monitor.progress import RUNNING, Progress

        progress = self.progress = Progress.from_json(line.decode())
        if progress.state == RUNNING and not self.runs:
            self.runs = True
            self._tell("driver runs")
        if progress.last is not None and not self._has_batch:
            self._has_batch = True
            self._tell(f"driver has done batch {progress.last.number}")

    def _last_words(self, code: int) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return f"{lines[-1].removeprefix('barnabas: ')}" if lines else f"job: exit code {code}"


def _kill_group(pid: int) -> None:
    """Kill the processes of the group; there may be none left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


# -- in the child ----------------------------------------------------------------------------------


def _stop_with_parent() -> None:
    """Stop this process when standard input ends."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    killer = threading.Timer(STOP_SECONDS, os.killpg, (os.getpgrp(), signal.SIGKILL))
    killer.daemon = True
    killer.start()


if __name__ == "__main__":
    from barnabas.cli.main import main

    threading.Thread(target=_stop_with_parent, name="parent", daemon=True).start()
    main()
