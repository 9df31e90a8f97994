"""Both ends of the pipes by which a parent process sets the faults of a broker's process.

The parent writes a call as a line of JSON, and the child answers in any order:

    {"id": 7, "method": "touched", "arguments": {"number": 1}}      {"id": 7, "is": 2}

A broker that is paused answers when it is resumed.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from itertools import count
from typing import Any

from barnabas.broker.pipes import read_pipe

SERVES = 0
"""The number of the answer by which a broker says that it serves."""
_MOST_CALLS_WHILE_PAUSED = 100
"""Calls that may wait in the pipe of a broker that is paused; the pipe holds many more."""


class BrokerDied(Exception):
    """The process of a broker has ended."""


class RemoteBroker:
    """A broker in a child process, as its parent reaches it: by calls, SIGSTOP and SIGCONT."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._listening: asyncio.Task[None] | None = None
        self.paused = False
        self._unread: list[asyncio.Future[Any]] = []
        """The answers to calls that were sent while the broker was paused."""

    def attach(self, process: "subprocess.Popen[bytes]") -> None:
        """Take the pipes of a process that has just been started."""
        self._process, self.paused = process, False
        assert process.stdout is not None
        self._listening = asyncio.create_task(self._listen(read_pipe(process.stdout.fileno())))

    def detach(self) -> None:
        """Let all calls fail, because the process has ended."""
        self._process, self._unread, self.paused = None, [], False
        if self._listening is not None:
            self._listening.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self.death())

    async def pause(self) -> None:
        self._running().send_signal(signal.SIGSTOP)
        self.paused = True

    async def resume(self) -> None:
        """Resume the process, and wait until the calls sent meanwhile have returned."""
        self._resume()
        unread, self._unread = self._unread, []
        await asyncio.gather(*unread)

    async def release(self) -> None:
        """Resume the process, remove every fault on requests, and mend every link."""
        self._resume()
        await self.ask("release")

    async def tell(self, method: str, **arguments: Any) -> None:
        """Call a method of `BrokerFaults`; do not wait for the answer while the broker is paused.

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
        """Call a method, and return its answer; a broker that is paused answers later.

        Raises BrokerDied.
        """
        return await self._send(method, arguments)

    def answer(self, number: int) -> asyncio.Future[Any]:
        """Return the answer of a number, which fails with BrokerDied if the process ends."""
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._waiting.pop(number))
        return answer

    def write(self, message: Mapping[str, Any]) -> None:
        """Write a line. Raises BrokerDied."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except (BrokenPipeError, ValueError):
            # The process has ended, or its owner has closed the pipe.
            raise self.death() from None

    def death(self) -> BrokerDied:
        """Return the error for a process that has ended."""
        return BrokerDied("the broker's process has ended")

    def _resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)
        self.paused = False

    def _send(self, method: str, arguments: Mapping[str, Any]) -> asyncio.Future[Any]:
        number = next(self._numbers)
        self.write({"id": number, "method": method, "arguments": arguments})
        return self.answer(number)

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

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise self.death()
        return self._process


async def serve_calls(target: Any, commands: asyncio.StreamReader, answers: int) -> None:
    """Call methods of `target` until the parent closes the pipe.

    Calls run concurrently: one may wait for a request that another releases.
    """
    calls: set[asyncio.Task[None]] = set()
    while line := await commands.readline():
        call = asyncio.create_task(_call(target, answers, **json.loads(line)))
        calls.add(call)
        call.add_done_callback(calls.discard)
    for call in calls:
        call.cancel()


async def _call(
    target: Any, answers: int, *, id: int, method: str, arguments: dict[str, Any]
) -> None:
    try:
        answer = {"id": id, "is": await getattr(target, method)(**arguments)}
    except Exception as error:
        answer = {"id": id, "error": repr(error)}
    write_answer(answers, answer)


def write_answer(answers: int, message: Mapping[str, Any]) -> None:
    """Write a line into the pipe to the parent."""
    os.write(answers, json.dumps(message).encode() + b"\n")
