"""The test's side of a broker that runs in a child process."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import barnabas
from barnabas.broker.pipes import close_pipe, end_of, read_pipe
from barnabas.testing.active_faults import Call

STOP_TIMEOUT = 20.0
"""Seconds that an orderly stop may take before SIGKILL: fewer than the caller waits."""
SERVES = 0
"""The number of the answer by which a broker says that it serves."""
_LOG_SHOWN = 4000
"""Characters of the broker's log that an error quotes."""

_MOST_CALLS_WHILE_PAUSED = 100
"""Calls that may wait in the pipe of a broker that is paused; the pipe holds many more."""


class BrokerDied(Exception):
    """The process of a broker has ended; the text quotes the end of its log."""


class ProcessNode:
    """A `Node` in a child process, with the same methods; it can also be killed and paused."""

    def __init__(self, properties: Mapping[str, str], log: Path) -> None:
        self._properties = properties
        self._log = log
        self.program = ["-m", "barnabas.testing.child"]
        """The arguments of the Python interpreter."""
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._end: asyncio.Future[int] | None = None
        self._listening: asyncio.Task[None] | None = None
        self.paused = False
        self._unread: list[asyncio.Future[Any]] = []
        """The answers to calls that were sent while the broker was paused."""

    async def start(self, calls: Iterable[Call] = ()) -> None:
        """Start the broker after these calls, and return once it serves.

        Raises BrokerDied; nothing of the broker runs then.
        """
        process = self._process = self._spawn()
        assert process.stdout is not None
        self._end = end_of(process)
        self._end.add_done_callback(lambda _: self._clean_up(process))
        self._listening = asyncio.create_task(self._listen(read_pipe(process.stdout.fileno())))
        try:
            self._write({"properties": self._properties, "calls": list(calls)})
            await self._answer(SERVES)
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

    async def release(self) -> None:
        """Resume the process, remove every fault on requests, and mend every link."""
        self._resume()
        await self.ask("release")

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the end. Idempotent."""
        if self._process is not None and self._end is not None:
            self._process.kill()
            await asyncio.shield(self._end)

    async def pause(self) -> None:
        self._running().send_signal(signal.SIGSTOP)
        self.paused = True

    async def resume(self) -> None:
        """Resume the process, and wait until the calls sent meanwhile have returned."""
        self._resume()
        unread, self._unread = self._unread, []
        await asyncio.gather(*unread)

    async def tell(self, method: str, **arguments: Any) -> None:
        """Call a method of `Node`; do not wait for the answer while the broker is paused.

        Raises BrokerDied, and RuntimeError if too many calls wait for a broker that is paused.
        """
        if not self.paused:
            await self.ask(method, **arguments)
            return
        # The broker does not read the pipe: writing to a full one would block this loop.
        if len(self._unread) == _MOST_CALLS_WHILE_PAUSED:
            raise RuntimeError("too many calls wait for a broker that is paused: resume it first")
        answer = self._send(method, arguments)
        # The broker may be killed before it reads the call.
        answer.add_done_callback(lambda _: answer.cancelled() or answer.exception())
        self._unread.append(answer)

    async def ask(self, method: str, **arguments: Any) -> Any:
        """Call a method of `Node`, and return its answer; a broker that is paused answers later.

        Raises BrokerDied.
        """
        return await self._send(method, arguments)

    def _resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)
        self.paused = False

    def _send(self, method: str, arguments: Mapping[str, Any]) -> asyncio.Future[Any]:
        number = next(self._numbers)
        self._write({"id": number, "method": method, "arguments": arguments})
        return self._answer(number)

    def _answer(self, number: int) -> asyncio.Future[Any]:
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._waiting.pop(number))
        return answer

    async def _listen(self, answers: asyncio.StreamReader) -> None:
        while line := await answers.readline():
            message = json.loads(line)
            waiting = self._waiting.get(message["id"])
            if waiting is None or waiting.done():
                continue
            if "error" in message:
                waiting.set_exception(RuntimeError(message["error"]))
            else:
                waiting.set_result(message["is"])

    def _clean_up(self, process: "subprocess.Popen[bytes]") -> None:
        """Clean up after the end of the process."""
        self._process = None
        close_pipe(process.stdout)
        if process.stdin is not None:
            # The rest of the input has no reader any more.
            with suppress(BrokenPipeError):
                process.stdin.close()
        if self._listening is not None:
            self._listening.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self.death())

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

    def _write(self, message: Any) -> None:
        process = self._running()
        assert process.stdin is not None
        line = json.dumps(message).encode() + b"\n"
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except (BrokenPipeError, ValueError):
            # The process has ended, or `stop` has closed the pipe.
            raise self.death() from None

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise self.death()
        return self._process

    def death(self) -> BrokerDied:
        """Return the error for a process that has ended, with the end of its log."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return BrokerDied(
            f"the broker's process has ended; its log ends with:\n{text[-_LOG_SHOWN:]}"
        )


def _environment() -> dict[str, str]:
    """Return this process's environment; a child imports the same Barnabas."""
    root = str(Path(barnabas.__file__).parents[1])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, path)))}
