"""The parent process of several brokers on one host.

The parent starts the brokers, serves their metadata, and stops them one after the other. It starts
a broker again that has died. Brokers stop by themselves if their parent dies.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.files import NO_FILE, AddressFile
from barnabas.cli.processes.broker_process import Child, ServedStore, StartCommand
from barnabas.cli.processes.broker_properties import (
    DIRECTORY,
    METADATA,
    SOCKET,
    BrokerProperties,
    log_directories,
)
from barnabas.cli.settings import LogOptions
from barnabas.cli.tables import fold
from barnabas.protocol.backoff import Backoff

if TYPE_CHECKING:
    from barnabas.cli.processes.faults import FaultsOption
    from barnabas.cli.processes.secure import Secured

FIRST_BACKOFF, MAX_BACKOFF = 1.0, 30.0
"""Seconds before a broker that died is started again; the wait doubles each time."""
STEADY_SECONDS = 60.0
"""A broker that has run for this long is restarted after FIRST_BACKOFF again."""

ONE_HOST = (
    "All brokers are on one host: topics without a replication factor of their own,\n"
    "and internal topics, are created with one replica (--replicas)."
)

Tell = Callable[[str], None]
Release = Callable[[], Awaitable[None]]


def _tell(text: str) -> None:
    click.echo(text, err=True)


async def _nothing() -> None:
    """Release nothing: there are no faults."""


class Supervisor:
    """The supervisor of the child processes: restarts them until `end`, or a signal.

    `tell` gets a line for each end and restart.
    """

    def __init__(
        self, children: Sequence[Child], tell: Tell = _tell, release: Release = _nothing
    ) -> None:
        """`release` ends all faults, which would delay the stop."""
        self._children = children
        self._tell = tell
        self._release = release
        self._stop = asyncio.Event()
        self._watches: list[asyncio.Task[None]] = []

    def handle_signals(self) -> None:
        """Let SIGINT and SIGTERM call `end`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.end)

    async def start(self) -> bool:
        """Start all children at once and wait until they serve.

        Returns False if `end` came first. Raises ClickException if a child does not start; then
        no child is left running.
        """
        starts = [asyncio.create_task(child.start()) for child in self._children]
        stop = asyncio.create_task(self._stop.wait())
        for start in starts:
            await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        failed = [
            child.broker_id
            for child, start in zip(self._children, starts, strict=True)
            if start.done() and not start.result()
        ]
        if failed:
            await self.stop()
            await asyncio.wait(starts)
            raise click.ClickException(f"broker {failed[0]} did not start")
        return not self._stop.is_set()

    async def run(self, failed: asyncio.Event) -> None:
        """Restart children that die, until `end` or `failed`; then stop all in turn."""
        self._watches = [asyncio.create_task(self._watch(child)) for child in self._children]
        ends = [asyncio.create_task(event.wait()) for event in (self._stop, failed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await self.stop(hand_over=not failed.is_set())

    async def stop(self, *, hand_over: bool = True) -> None:
        for watch in self._watches:
            watch.cancel()
        await self._release()
        # One after the other: each hands over its partitions to the brokers that still run.
        for child in self._children:
            await child.stop(hand_over=hand_over)

    def end(self) -> None:
        """Stop orderly at the first call, kill the children at the second."""
        if self._stop.is_set():
            for child in self._children:
                child.kill()
        self._stop.set()

    async def _watch(self, child: Child) -> None:
        loop, backoff = asyncio.get_running_loop(), Backoff(FIRST_BACKOFF, MAX_BACKOFF)
        while True:
            began = loop.time()
            code = await child.ended()
            if loop.time() - began >= STEADY_SECONDS:
                backoff.failures = 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            if child.wanted.is_set():
                self._tell(f"broker {child.broker_id} ended ({how}); restart in {backoff.wait:g} s")
                await asyncio.sleep(backoff.failed())
            else:
                self._tell(f"broker {child.broker_id} ended ({how}), and stays down")
                await child.wanted.wait()
            if await child.start():
                self._tell(
                    f"broker {child.broker_id} serves {child.address} again, process {child.pid}"
                )


def count_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count_stored(properties: Mapping[str, str]) -> int:
    """Return how many brokers must run so that each that has log directories here is among them.

    Raises ConfigError.
    """
    first = BrokerProperties(properties, 1).broker_id(0)
    ids = [first]
    for directory in log_directories(properties):
        for path in Path(directory).glob(f"{DIRECTORY}*"):
            digits = path.name.removeprefix(DIRECTORY)
            if digits.isdecimal():
                ids.append(int(digits))
    return max(ids) - first + 1


def run_brokers(
    properties: Mapping[str, str],
    count: int,
    *,
    replicas: int | None,
    strict: bool,
    log: LogOptions,
    cluster_id: str,
    secured: "Secured | None",
    address: AddressFile,
    faults: str | None = None,
) -> None:
    """Run `count` brokers until SIGINT or SIGTERM; `replicas` is as for `make_children`.

    `faults` is HOST:PORT at which levers are served. Raises ConfigError, ClickException.
    """
    import uvloop

    option = None
    if faults is not None:
        # Imported here: without the option nothing of it is.
        from barnabas.cli.processes.faults import FaultsOption

        option = FaultsOption.parse(faults)

    children, socket_path = make_children(
        properties,
        count,
        replicas=replicas,
        strict=strict,
        log=log,
        cluster_id=cluster_id,
        faults=option,
    )
    if (stored := count_stored(properties)) > count:
        _tell(
            f"{stored - count} more brokers have data here. What they alone have is not available: "
            f"--processes {stored} runs them too"
        )
    keeps_one = count > 1 and replicas is None and socket_path is not None
    notes = [ONE_HOST] if keeps_one and not _replication(1).keys() <= properties.keys() else []
    if secured is not None:
        secured.add_admin()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(children, socket_path, secured, address, notes, option))


def make_children(
    properties: Mapping[str, str],
    count: int,
    *,
    replicas: int | None,
    strict: bool,
    log: LogOptions,
    cluster_id: str,
    faults: "FaultsOption | None" = None,
) -> tuple[list[Child], str | None]:
    """Return `count` brokers to start, and the path of their metadata store for `serve_store`.

    `replicas` is the replication factor of the internal topics, and of topics that are created
    without one, unless `properties` have a key for it. None: one for each host.

    Raises ConfigError, ClickException.
    """
    from barnabas.broker.observability.logging import configure
    from barnabas.cli.processes.broker import raise_file_limit
    from barnabas.config.broker import BrokerConfig

    socket_path = _socket_path(properties)
    properties = add_replication(properties, count, replicas)
    brokers = BrokerProperties(properties, count, socket_path)
    brokers.check_ports()
    of_each = [brokers.of(number) for number in range(count)]
    if faults is not None:
        of_each = faults.properties(of_each, socket_path)
    for each in of_each:
        # Refuse wrong properties here, before any process is started.
        BrokerConfig.from_properties(each, strict=strict)
    configure(level=log.level, form=log.form)
    raise_file_limit()
    kind = Child if faults is None else faults.child
    children = [
        kind(int(each["broker.id"]), StartCommand(each, strict, log, cluster_id))
        for each in of_each
    ]
    return children, socket_path


async def _run(
    children: Sequence[Child],
    socket_path: str | None,
    secured: "Secured | None" = None,
    address: AddressFile = NO_FILE,
    notes: Iterable[str] = (),
    faults: "FaultsOption | None" = None,
) -> None:
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serve_store(socket_path))
        failed = served.failed
        release: Release = _nothing
        if faults is not None:
            levers = faults.served(children, served, secured)
            release, note = await stack.enter_async_context(levers)
            notes = [*notes, note]
        supervisor = Supervisor(children, release=release)
        supervisor.handle_signals()
        if await supervisor.start():
            servers = ",".join(child.address for child in children)
            if secured is not None:
                secured.name_servers(servers)
            address.write(servers)
            click.echo(_greeting(children, secured, notes))
        await supervisor.run(failed)
        if failed.is_set():
            raise click.ClickException(
                "the metadata could not be written; all brokers were stopped"
            )


@asynccontextmanager
async def serve_store(socket_path: str | None) -> AsyncIterator[ServedStore]:
    """Serve the metadata store on a Unix socket, and yield it.

    The data of the store is in a directory next to the socket. With `socket_path` None the brokers
    use another store.
    """
    if socket_path is None:
        yield ServedStore(asyncio.Event())
        return
    from barnabas.broker.loop.offload import ThreadOffload
    from barnabas.broker.store.embedded import open_store
    from barnabas.broker.store.journal_format import JournalError
    from barnabas.broker.store.socket_server import StoreServer
    from barnabas.storage.files.files import OsFiles, make_dirs

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
        yield ServedStore(server.failed, store, server)
    finally:
        await server.close()
        await store.close()
        offload.close()


def _socket_path(properties: Mapping[str, str]) -> str | None:
    """Return the path of the metadata socket: in the first log directory, as for a single broker.

    None if the properties name another metadata store.
    """
    if properties.get("zookeeper.connect") or properties.get(SOCKET):
        return None
    return os.path.join(os.path.abspath(log_directories(properties)[0]), SOCKET)


def add_replication(
    properties: Mapping[str, str], count: int, replicas: int | None
) -> Mapping[str, str]:
    """Return the properties with replication factors; those that they have are kept."""
    on_one_host = _socket_path(properties) is not None
    if replicas is None:
        # Brokers on ZooKeeper may get company on other hosts: Kafka's defaults apply.
        return {**_replication(1), **properties} if on_one_host else properties
    if on_one_host and replicas > count:
        raise click.UsageError(f"{replicas} replicas need {replicas} brokers or more")
    return {**_replication(replicas), **properties}


def _replication(replicas: int) -> dict[str, str]:
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
    }


def _greeting(children: Sequence[Child], secured: "Secured | None", notes: Iterable[str]) -> str:
    servers = ",".join(child.address for child in children)
    # The profile of secured brokers has their addresses.
    option = f" -b {servers}" if secured is None else ""
    first = f"Barnabas serves {servers} with {len(children)} broker{'s' * (len(children) > 1)}."
    commands = (
        f"  produce:  echo hello | barnabas produce greetings{option}",
        f"  consume:  barnabas consume greetings --from beginning{option}",
    )
    return "\n".join(
        (
            fold(first, " with ", "\n  with "),
            *(fold(f"  {child}", ", data in", ",\n    data in") for child in children),
            *notes,
            *(() if secured is None else (secured.greeting(servers),)),
            *(fold(command, " -b ", " \\\n    -b ") for command in commands),
            "  stop:     Ctrl-C",
        )
    )
