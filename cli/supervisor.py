"""Several brokers on one host: their parent starts them, serves their metadata, and stops them in
order. A broker that dies is started again; brokers whose parent dies stop by themselves."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click

from barnabas.broker.pipes import close_pipe, end_of, read_pipe
from barnabas.cli.several import METADATA, SOCKET, Several

STOP_SECONDS = 30.0
"""How long a broker may take to stop in order; then it is killed."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a broker that died is started again; twice as long each time."""
STEADY_SECONDS = 60.0
"""A broker that served for so long begins anew with the shortest pause."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a child is told on its standard input."""

    properties: Mapping[str, str]
    strict: bool
    log_level: str
    cluster_id: str

    def line(self) -> bytes:
        told = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(told).encode() + b"\n"


class Child:
    """The process of one broker."""

    def __init__(self, broker: int, orders: Orders) -> None:
        self.broker = broker
        self.address = ""
        """Where clients reach it, once it has served."""
        self._orders = orders
        self._process: subprocess.Popen[bytes] | None = None
        self._end: asyncio.Future[int] | None = None

    async def start(self) -> bool:
        """Whether it serves; if not it has ended, and said why on standard error."""
        process = self._process = _spawn()
        self._end = end_of(process)
        assert process.stdin is not None
        process.stdin.write(self._orders.line())
        process.stdin.flush()
        assert process.stdout is not None
        line = await read_pipe(process.stdout.fileno()).readline()
        if not line:
            await self.ended()
            return False
        self.address = json.loads(line)["serves"]
        return True

    async def ended(self) -> int:
        """Wait until the process has ended; its exit code, negative for a signal."""
        process, end = self._process, self._end
        assert process is not None
        assert end is not None
        code = await asyncio.shield(end)
        close_pipe(process.stdout)
        return code

    async def stop(self, *, hand_over: bool = True) -> None:
        """Stop it in order, or kill it where that takes too long."""
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
            click.echo(f"broker {self.broker} does not stop, and is killed", err=True)
            process.kill()
            await self.ended()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


class Supervisor:
    """Keeps children running until it is told to stop."""

    def __init__(self, children: list[Child]) -> None:
        self._children = children
        self._stop = asyncio.Event()
        self._watches: list[asyncio.Task[None]] = []

    async def start(self) -> bool:
        """Start all at once; whether they serve, and nobody told them to stop before they did.

        ClickException, with none left running, where one does not serve."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told)
        starts = [asyncio.create_task(child.start()) for child in self._children]
        stop = asyncio.create_task(self._stop.wait())
        for start in starts:
            await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        failed = [
            child.broker
            for child, start in zip(self._children, starts, strict=True)
            if start.done() and not start.result()
        ]
        if failed:
            await self.stop()
            await asyncio.wait(starts)
            raise click.ClickException(f"broker {failed[0]} did not start")
        return not self._stop.is_set()

    async def run(self, failed: asyncio.Event) -> None:
        """Start again what dies, until SIGINT, SIGTERM or a failure; then stop all, one after
        another."""
        self._watches = [asyncio.create_task(self._watch(child)) for child in self._children]
        ends = [asyncio.create_task(event.wait()) for event in (self._stop, failed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await self.stop(hand_over=not failed.is_set())

    async def stop(self, *, hand_over: bool = True) -> None:
        for watch in self._watches:
            watch.cancel()
        # Each hands over what it leads to those that are left.
        for child in self._children:
            await child.stop(hand_over=hand_over)

    def _told(self) -> None:
        """The first time stop in order; whoever asks again has no time for that."""
        if self._stop.is_set():
            for child in self._children:
                child.kill()
        self._stop.set()

    async def _watch(self, child: Child) -> None:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        while True:
            began = loop.time()
            code = await child.ended()
            if loop.time() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            click.echo(
                f"broker {child.broker} ended ({how}); it is started again in {pause:g} s", err=True
            )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if await child.start():
                click.echo(f"broker {child.broker} serves {child.address} again", err=True)


def run_several(
    properties: Mapping[str, str], count: int, *, strict: bool, log_level: str, cluster_id: str
) -> None:
    """Runs `count` brokers until SIGINT or SIGTERM. Raises ConfigError, ClickException."""
    import uvloop

    from barnabas.broker.observability.logging import configure
    from barnabas.cli.serve import allow_many_files
    from barnabas.config.broker import BrokerConfig

    socket_path = _socket_path(properties)
    if socket_path is not None:
        properties = {**_replication(count), **properties}
    several = Several(properties, count, socket_path)
    several.check()
    of_each = [several.of(number) for number in range(count)]
    for each in of_each:
        BrokerConfig.from_properties(each, strict=strict)
    configure(level=log_level)
    allow_many_files()
    children = [
        Child(int(each["broker.id"]), Orders(each, strict, log_level, cluster_id))
        for each in of_each
    ]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(children, several.socket_path))


async def _run(children: list[Child], socket_path: str | None) -> None:
    async with _store(socket_path) as failed:
        supervisor = Supervisor(children)
        if await supervisor.start():
            click.echo(greeting([child.address for child in children]))
        await supervisor.run(failed)
        if failed.is_set():
            raise click.ClickException("the metadata could not be written, and all was stopped")


@asynccontextmanager
async def _store(socket_path: str | None) -> AsyncIterator[asyncio.Event]:
    """The metadata store behind a socket, in the directory beside it, and whether it has failed."""
    if socket_path is None:
        yield asyncio.Event()
        return
    from barnabas.broker.metadata.embedded import open_store
    from barnabas.broker.metadata.journal_format import JournalError
    from barnabas.broker.metadata.served import StoreServer
    from barnabas.broker.offload import ThreadOffload
    from barnabas.storage.files import OsFiles, make_dirs

    files, offload = OsFiles(), ThreadOffload()
    directory = os.path.join(os.path.dirname(socket_path), METADATA)
    make_dirs(files, os.path.dirname(socket_path))
    try:
        store = await open_store(files, directory, offload)
    except JournalError as error:
        raise click.ClickException(str(error)) from error
    server = StoreServer(store)
    try:
        await server.serve(socket_path)
        yield server.failed
    finally:
        await server.close()
        await store.close()
        offload.close()


def _socket_path(properties: Mapping[str, str]) -> str | None:
    """Where the parent serves the metadata: in the first directory, as a broker alone has them."""
    if properties.get("zookeeper.connect") or properties.get(SOCKET):
        return None
    first = (properties.get("log.dirs") or properties["log.dir"]).split(",")[0].strip()
    return os.path.join(os.path.abspath(first), SOCKET)


def _replication(brokers: int) -> dict[str, str]:
    """As many replicas of the brokers' own topics as Kafka has, where there are so many brokers."""
    replicas = str(min(3, brokers))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }


def greeting(addresses: list[str]) -> str:
    servers = ",".join(addresses)
    return "\n".join(
        (
            f"Barnabas serves {servers} with {len(addresses)} brokers.",
            f"  produce:  echo hello | barnabas produce greetings -b {servers}",
            f"  consume:  barnabas consume greetings --from beginning -b {servers}",
            "  stop:     Ctrl-C",
        )
    )


def _spawn() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas.cli.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C is for the parent, which stops its children in order.
        start_new_session=True,
    )
