"""A child process that carries out commands: one JSON object per line, each answered by one
line."""

import json
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

DEADLINE = 60.0


class CommandFailedError(Exception):
    """The process could not carry out the command; the text is the process's own."""


class Resident:
    """`call("read", topic="t")` sends {"do": "read", "topic": "t"} and returns the answer's value.

    The standard error of the process goes to the file `errors`.
    """

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def call(self, do: str, **arguments: Any) -> Any:
        """Send a command and return its answer. Raises OrderFailedError if it failed,
        AssertionError without an answer."""
        command = json.dumps({"do": do, **arguments}).encode() + b"\n"
        assert self._process.stdin is not None
        self._process.stdin.write(command)
        self._process.stdin.flush()
        answer = json.loads(self._line(do))
        if "error" in answer:
            raise CommandFailedError(answer["error"])
        return answer["value"]

    def stop(self) -> None:
        """End the process by closing its standard input; kill it if it does not end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL: clients cannot say goodbye to any broker."""
        self._process.kill()
        self._process.wait()

    def _line(self, do: str) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        line = bytearray()
        end = time.monotonic() + DEADLINE
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                ready = selector.select(max(0.0, end - time.monotonic()))
                chunk = os.read(descriptor, 1 << 20) if ready else b""
                assert chunk, f"{do} got no answer: {self._errors.read_text()[-2000:]}"
                line += chunk
        return bytes(line)
