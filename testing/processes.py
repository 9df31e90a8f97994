"""A broker of a test's cluster in a child process, as the test sees it."""

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
from barnabas.testing.standing import Call

STOP_TIMEOUT = 20.0
"""Seconds in which a broker stops in order, or is killed: fewer than whoever stops it waits."""
SERVES = 0
"""The number of the call that a broker answers once it serves."""
_LOG_SHOWN = 4000
"""Characters of the broker's log that an error quotes."""

_TOLD_WHILE_PAUSED = 100
"""Calls that lie in the pipe of a broker that is paused; it holds many more."""


class BrokerDied(Exception):
    """The process of a broker has ended; the text has the end of its log."""


class ProcessNode:
    """Starts and stops as a `Node`, is told and asked what one is, and can be killed and paused."""

    def __init__(self, properties: Mapping[str, str], log: Path) -> None:
        self._properties = properties
        self._log = log
        self.program = ["-m", "barnabas.testing.child"]
        """What Python is to run."""
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._end: asyncio.Future[int] | None = None
        self._listening: asyncio.Task[None] | None = None
        self.paused = False
        self._unheard: list[asyncio.Future[Any]] = []
        """Answers to what it was told while it was paused."""

    async def start(self, calls: Iterable[Call] = ()) -> None:
        """Return once it serves, with what these calls have done before it started.

        Raises BrokerDied; nothing of it runs then.
        """
        process = self._process = self._spawn()
        assert process.stdout is not None
        self._end = end_of(process)
        self._end.add_done_callback(lambda _: self._part_with(process))
        self._listening = asyncio.create_task(self._listen(read_pipe(process.stdout.fileno())))
        try:
            self._write({"properties": self._properties, "calls": list(calls)})
            await self._answer(SERVES)
        except BaseException:
            await self.kill()
            raise

    def when_it_ends(self, tell: Callable[[], None]) -> None:
        """Call `tell` once the process has ended, whoever ended it."""
        assert self._end is not None
        self._end.add_done_callback(lambda _: tell())

    async def stop(self) -> None:
        """Stop in order. Raises BrokerDied where it had failed or does not stop; it has ended."""
        process, end = self._running(), self._end
        assert process.stdin is not None
        assert end is not None
        try:
            self._go_on()
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
        """Let it go on where it was paused, take every lever away, and mend every line."""
        self._go_on()
        await self.ask("release")

    async def kill(self) -> None:
        """kill -9. Idempotent."""
        if self._process is not None and self._end is not None:
            self._process.kill()
            await asyncio.shield(self._end)

    async def pause(self) -> None:
        self._running().send_signal(signal.SIGSTOP)
        self.paused = True

    async def resume(self) -> None:
        """Let it go on; what it was told meanwhile has been done."""
        self._go_on()
        unheard, self._unheard = self._unheard, []
        await asyncio.gather(*unheard)

    async def tell(self, method: str, **arguments: Any) -> None:
        """Have a method of `Node` done; by a broker that is paused, once it goes on.

        Raises BrokerDied, and RuntimeError where it is paused and was told too much.
        """
        if not self.paused:
            await self.ask(method, **arguments)
            return
        # Nobody empties the pipe: what it cannot hold would stop this loop.
        if len(self._unheard) == _TOLD_WHILE_PAUSED:
            raise RuntimeError("a broker that is paused was told too much: resume it first")
        answer = self._send(method, arguments)
        # It may be killed and never hear of this.
        answer.add_done_callback(lambda _: answer.cancelled() or answer.exception())
        self._unheard.append(answer)

    async def ask(self, method: str, **arguments: Any) -> Any:
        """What a method of `Node` answers; a broker that is paused does once it goes on.

        Raises BrokerDied.
        """
        return await self._send(method, arguments)

    def _go_on(self) -> None:
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

    def _part_with(self, process: "subprocess.Popen[bytes]") -> None:
        """The process has ended."""
        self._process = None
        close_pipe(process.stdout)
        if process.stdin is not None:
            # What it has not taken nobody will.
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
                # What interrupts the test is the test's: it stops its brokers in order.
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
            # Its reader has ended, or whoever stops it has closed the pipe.
            raise self.death() from None

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise self.death()
        return self._process

    def death(self) -> BrokerDied:
        """That it has ended, with the end of its log."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return BrokerDied(
            f"the broker's process has ended; its log ends with:\n{text[-_LOG_SHOWN:]}"
        )


def _environment() -> dict[str, str]:
    """This process's, with this Barnabas as the one that a child imports."""
    root = str(Path(barnabas.__file__).parents[1])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, path)))}
