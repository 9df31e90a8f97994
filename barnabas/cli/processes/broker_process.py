"""The process of one broker, as its parent sees it."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.broker.pipes import close_pipe, end_of, read_pipe
from barnabas.cli.processes.broker_properties import log_directories
from barnabas.cli.settings import LogOptions

if TYPE_CHECKING:
    from barnabas.broker.store.embedded import EmbeddedStore
    from barnabas.broker.store.socket_server import StoreServer

STOP_SECONDS = 30.0
"""A broker that has not stopped after this time is killed."""


@dataclass(frozen=True, slots=True)
class StartCommand:
    """The first line on the standard input of a child process: what it has to run."""

    properties: Mapping[str, str]
    strict: bool
    log: LogOptions
    cluster_id: str
    calls: Sequence[Any] | None = None
    """The faults to set before the start; None for a broker without faults."""

    def encode(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields).encode() + b"\n"


class Child:
    """The process of one broker."""

    def __init__(self, broker_id: int, command: StartCommand) -> None:
        self.broker_id = broker_id
        self.address = ""
        """The bootstrap address of the broker, once it serves."""
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._end: asyncio.Future[int] | None = None
        self._serves = False
        self.wanted = asyncio.Event()
        """Set unless the broker is to stay down when it has ended."""
        self.wanted.set()

    @property
    def listeners(self) -> list[str]:
        """The addresses, HOST:PORT, on which the broker will listen."""
        texts = self.command.properties["listeners"].split(",")
        return [text.strip().partition("://")[2] for text in texts]

    def __str__(self) -> str:
        directories = ", ".join(log_directories(self.command.properties))
        return (
            f"broker {self.broker_id}:  {self.address}, process {self.pid}, data in {directories}"
        )

    @property
    def pid(self) -> int | None:
        """The id of the process while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def serves(self) -> bool:
        """Whether the broker has started and its process still runs."""
        return self._serves and self.pid is not None

    async def start(self) -> bool:
        """Start the process and wait until the broker serves.

        Returns False if the process has ended instead; it has told the reason on standard error.
        """
        self._serves = False
        process = self._process = _spawn()
        self._end = end_of(process)
        assert process.stdin is not None
        process.stdin.write(self.start_command().encode())
        process.stdin.flush()
        address = await self._serving(process)
        if address is None:
            await self.ended()
            return False
        self.address, self._serves = address, True
        return True

    def start_command(self) -> StartCommand:
        """Return the first line for the next process."""
        return self.command

    async def _serving(self, process: "subprocess.Popen[bytes]") -> str | None:
        """Return the bootstrap address once the broker serves, None if the process has ended."""
        assert process.stdout is not None
        line = await read_pipe(process.stdout.fileno()).readline()
        return json.loads(line)["is"] if line else None

    async def ended(self) -> int:
        """Wait until the process has ended and return its exit code, negative for a signal."""
        process, end = self._process, self._end
        assert process is not None
        assert end is not None
        code = await asyncio.shield(end)
        close_pipe(process.stdout)
        return code

    async def stop(self, *, hand_over: bool = True) -> None:
        """Stop the broker orderly, or kill it after STOP_SECONDS.

        Without `hand_over` the broker does not try to hand over the partitions that it leads.
        """
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        if hand_over:
            process.terminate()
        else:
            assert process.stdin is not None
            process.stdin.close()
        try:
            await asyncio.wait_for(self.ended(), STOP_SECONDS)
        except TimeoutError:
            click.echo(
                f"broker {self.broker_id} did not stop in {STOP_SECONDS:g} s and is killed",
                err=True,
            )
            process.kill()
            await self.ended()

    def kill(self) -> None:
        self._serves = False
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


def _spawn() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas.cli.processes.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C must reach the parent only, which stops its children one after the other.
        start_new_session=True,
    )


class ServedStore(NamedTuple):
    """The metadata store that a parent serves to its brokers; without one the parts are None."""

    failed: asyncio.Event
    """Set when the store fails."""
    store: "EmbeddedStore | None" = None
    server: "StoreServer | None" = None
