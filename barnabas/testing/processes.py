"""The test's side of a broker that runs in a child process."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import barnabas
from barnabas.broker.pipes import close_pipe, end_of
from barnabas.faults.active_faults import NodeCall
from barnabas.faults.remote import SERVES, BrokerDied, RemoteBroker

STOP_TIMEOUT = 20.0
"""Seconds that an orderly stop may take before SIGKILL: fewer than the caller waits."""
_LOG_SHOWN = 4000
"""Characters of the broker's log that an error quotes."""


class ProcessNode(RemoteBroker):
    """A `Node` in a child process, with the same methods; it can also be killed and paused."""

    def __init__(self, properties: Mapping[str, str], log: Path) -> None:
        super().__init__()
        self._properties = properties
        self._log = log
        self.program = ["-m", "barnabas.testing.child"]
        """The arguments of the Python interpreter."""
        self._end: asyncio.Future[int] | None = None

    async def start(self, calls: Iterable[NodeCall] = ()) -> None:
        """Start the broker after these calls, and return once it serves.

        Raises BrokerDied; nothing of the broker runs then.
        """
        process = self._spawn()
        self._end = end_of(process)
        self._end.add_done_callback(lambda _: self._clean_up(process))
        self.attach(process)
        try:
            self.write({"properties": self._properties, "calls": list(calls)})
            await self.answer(SERVES)
        except BaseException:
            await self.kill()
            raise

    def when_it_ends(self, tell: Callable[[], None]) -> None:
        """Call `tell` once the process has ended, for whatever reason."""
        assert self._end is not None
        self._end.add_done_callback(lambda _: tell())

    async def stop(self) -> None:
        """Stop in order. Raises BrokerDied if the broker had failed or had to be killed."""
        process, end = self._running(), self._end
        assert process.stdin is not None
        assert end is not None
        try:
            self._resume()
            with suppress(BrokenPipeError):
                process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT):
                    await asyncio.shield(end)
        finally:
            await self.kill()
        if end.result():
            raise self.death()

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the end. Idempotent."""
        if self._process is not None and self._end is not None:
            self._process.kill()
            await asyncio.shield(self._end)

    def _clean_up(self, process: "subprocess.Popen[bytes]") -> None:
        """Clean up after the end of the process."""
        close_pipe(process.stdout)
        if process.stdin is not None:
            # The rest of the input has no reader any more.
            with suppress(BrokenPipeError):
                process.stdin.close()
        self.detach()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *self.program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(),
                # SIGINT goes to the test alone, which stops its brokers in order.
                start_new_session=True,
            )

    def death(self) -> BrokerDied:
        """Return the error, with the end of the broker's log."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return BrokerDied(
            f"the broker's process has ended; its log ends with:\n{text[-_LOG_SHOWN:]}"
        )


def _environment() -> dict[str, str]:
    """Return this process's environment; a child imports the same Barnabas."""
    root = str(Path(barnabas.__file__).parents[1])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, path)))}
