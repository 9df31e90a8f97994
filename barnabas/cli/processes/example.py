"""The processes of `barnabas pipeline example`: three brokers, orders, a job and a page."""

import asyncio
import json
import shutil
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import click

from barnabas.broker.server.network import NOT_HERE
from barnabas.cli.processes.broker_process import Child
from barnabas.cli.processes.driver import Driver
from barnabas.cli.processes.supervisor import Supervisor, make_children, serve_store
from barnabas.cli.settings import LogOptions
from barnabas.client.admin import Admin
from barnabas.client.batches import FetchSettings
from barnabas.client.cluster import Cluster, parse_address
from barnabas.client.consumer import Consumer, Message
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer
from barnabas.pipeline.example.job import DATA, JOB_FILE, job_text
from barnabas.pipeline.example.orders import TOPIC, Kind, Orders
from barnabas.pipeline.example.page import Process, Refused, State, gets, posts
from barnabas.pipeline.jobs.checkpoint import Checkpoint, read_checkpoint
from barnabas.pipeline.jobs.reading import JobFile, read_job
from barnabas.pipeline.jobs.verification import Verdict, verify
from barnabas.pipeline.monitor.progress import Monitor, Progress
from barnabas.pipeline.monitor.web import WebPage
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition

BROKERS: Final = 3
PARTITIONS: Final = 3
TICK_SECONDS: Final = 0.2
"""Orders are sent in groups, each after all of the last one are acknowledged.

So no partition runs ahead of the others by more than the orders of this time, in the time of the
orders, and the watermark drops late orders only.
"""
CLOSING_SECONDS: Final = 180.0
"""The job has this time to write the rest of its output, once the last order is sent and its first
batch has begun: the start of Spark takes longer on a busy machine."""
REPORT_SECONDS: Final = 10.0
_SPARK_STARTS: Final = "Spark starts"
_SHOWN_SUMS: Final = 50
_SHOWN_EVENTS: Final = 200

T = TypeVar("T")


class ExampleSettings(NamedTuple):
    """The options of the command."""

    directory: Path
    listen: str
    """Address of the first broker; port 0 takes free ports."""
    http: str
    seed: int
    rate: int
    """Orders for each second, which is a minute of theirs."""
    orders: int | None
    seconds: float | None
    """None: the orders come until Ctrl-C."""


def run_example(settings: ExampleSettings) -> Verdict:
    """Run the example to its end and return the verdict.

    Raises ClickException, ConfigError, JobError if the job file was changed and is wrong, and
    Abort after a second Ctrl-C.
    """
    import uvloop

    from barnabas.pipeline.spark.job import check_java

    check_java()
    file = prepare(settings.directory)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        example = Example(settings, file)
        with example.page():
            try:
                return runner.run(example.run())
            except asyncio.CancelledError:
                raise click.Abort from None


def prepare(directory: Path) -> JobFile:
    """Write the job file unless it is there, and remove the data of the run before.

    Raises JobError if the file was changed and is wrong, and ClickException if the directory is
    not one of the example.
    """
    path, data = directory / JOB_FILE, directory / DATA
    if not path.exists():
        if directory.exists() and any(directory.iterdir()):
            raise click.ClickException(
                f"{directory} has other files: choose a new folder with --directory"
            )
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(job_text())
    file = read_job(path)
    if TOPIC not in {name for _, source in file.job.inputs for name in source.topics or [TOPIC]}:
        raise click.ClickException(f"{path}: the job must read topic {TOPIC}")
    # A folder with this name next to a job file of the example belongs to the example.
    if data.exists():
        shutil.rmtree(data)
    data.mkdir()
    return file


class Example:
    """A run of the example."""

    def __init__(self, settings: ExampleSettings, file: JobFile) -> None:
        self._settings = settings
        self._file = file
        self._job = file.job
        self._orders = Orders(settings.seed, settings.rate)
        self._began = time.monotonic()
        self._phase = "starting"
        self._sent: Counter[Kind] = Counter()
        self._rows: Counter[str] = Counter()
        self._first_row: float | None = None
        self._sums: deque[dict[str, object]] = deque(maxlen=_SHOWN_SUMS)
        self._events: deque[tuple[float, str]] = deque(maxlen=_SHOWN_EVENTS)
        self._verdict: Sequence[str] = ()
        self._children: list[Child] = []
        self._broker_kills: Counter[int] = Counter()
        self._driver: Driver | None = None
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = Monitor(self._job.name, self._job.sink_id, time.time())

    # -- the page --------------------------------------------------------------------------------

    @contextmanager
    def page(self) -> Iterator[None]:
        """Serve the page; raises ClickException if its address is taken."""
        address = self._settings.http
        names = [*(f"broker-{number}" for number in range(1, BROKERS + 1)), "driver"]
        answers = gets(self.state, self.progress), posts(self._kill_from_thread, names)
        try:
            page = WebPage(*parse_address(address), *answers)
        except ValueError as error:
            raise click.UsageError(f"--http: {error}") from None
        except OSError as error:
            raise click.ClickException(
                f"--http {address}: {error.strerror}; --http 127.0.0.1:0 takes a free port"
            ) from None
        page.start()
        self._echo(f"the page is {page.address}")
        try:
            yield
        finally:
            page.stop()

    def progress(self) -> Progress:
        """Return the last progress of the job."""
        known = self._driver.progress if self._driver is not None else None
        return known or self._starting.progress(time.time())

    def state(self) -> State:
        """Return the state for the page."""
        sums = self._rows[self._job.topics[0]]
        driver = self._driver
        return State(
            phase=self._phase,
            seconds=self._seconds(),
            sent={kind.name.lower(): self._sent[kind] for kind in Kind},
            brokers=[self._broker(child) for child in self._children],
            driver=Process("driver", None, False, 0)
            if driver is None
            else Process("driver", driver.pid, driver.runs, driver.kills),
            sums=sums,
            broken=sum(self._rows.values()) - sums,
            first_row=self._first_row,
            last_sums=list(self._sums),
            events=list(self._events),
            verdict=self._verdict,
        )

    def _broker(self, child: Child) -> Process:
        everyone = all(each.serves for each in self._children)
        kills = self._broker_kills[child.broker_id]
        return Process(f"broker-{child.broker_id}", child.pid, everyone, kills)

    def _kill_from_thread(self, name: str) -> int:
        """Kill a process for the page, whose threads are not the loop's."""
        loop = self._loop
        if loop is None:
            raise Refused("the example has not started yet")

        async def kill() -> int:
            return self.kill(name)

        return asyncio.run_coroutine_threadsafe(kill(), loop).result(10)

    def kill(self, name: str) -> int:
        """Kill a process by its name and return its id; raises Refused."""
        if name == "driver":
            if self._driver is None or not self._driver.runs:
                raise Refused("the driver has not started yet")
            return self._driver.kill()
        if not self._children or not all(child.serves for child in self._children):
            raise Refused("another broker is not back yet: two of three must run")
        child = next(each for each in self._children if name == f"broker-{each.broker_id}")
        pid = child.pid
        assert pid is not None
        self._broker_kills[child.broker_id] += 1
        child.kill()
        return pid

    # -- the run ---------------------------------------------------------------------------------

    async def run(self) -> Verdict:
        """Run until Ctrl-C or the limit of the settings, and verify the output."""
        self._loop = asyncio.get_running_loop()
        children, socket_path = self._make_brokers()
        main = asyncio.current_task()
        assert main is not None

        def interrupt() -> None:
            # A second Ctrl-C does not wait for the verdict.
            if self._stop.is_set():
                if self._driver is not None and self._driver.pid is not None:
                    self._driver.kill()
                main.cancel()
            self._stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, interrupt)
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(serve_store(socket_path))
            supervisor = Supervisor(children, self._tell)
            stack.push_async_callback(self._end_brokers, supervisor)
            await supervisor.start()
            self._children = children
            self._spawn(self._run_brokers(supervisor, store.failed))
            bootstrap = ",".join(child.address for child in children)
            self._tell(f"three brokers serve {bootstrap}")
            log = self._settings.directory / DATA / "driver.log"
            self._driver = Driver(self._file.path, bootstrap, log, self._tell)
            stack.push_async_callback(self._driver.stop)
            return await self._flow(bootstrap, self._driver)

    async def _flow(self, bootstrap: str, driver: Driver) -> Verdict:
        self._spawn(driver.run())
        async with _connect(bootstrap) as cluster:
            await self._or_failure(self._make_topics(cluster))
        self._spawn(self._watch_output(bootstrap))
        self._spawn(self._report())
        self._phase = "orders come"
        sent = await self._or_failure(self._send_orders(bootstrap))
        self._phase = "closing"
        ahead = "" if self._has_begun(self._checkpoint()) else f"{_SPARK_STARTS}, then "
        self._tell(f"{sent:,} orders sent; {ahead}the job writes the rest of its output")
        kinds = self._orders.count(sent)
        # The closing order's minute stays open.
        unchanged = self._file.path.read_text() == job_text()
        allowed = kinds[Kind.LATE] + 1 if unchanged else None
        await self._or_failure(self._caught_up(bootstrap, allowed))
        await driver.stop()
        verdict = await self._verify(bootstrap, allowed)
        self._verdict, self._phase = verdict.lines, "ended"
        return verdict

    async def _verify(self, bootstrap: str, allowed: int | None) -> Verdict:
        async with _connect(bootstrap) as cluster:
            return await verify(cluster, self._job, self._checkpoint(), allowed)

    async def _send_orders(self, bootstrap: str) -> int:
        """Send orders until the end that the settings name; return their number."""
        settings, number = self._settings, 0
        loop = asyncio.get_running_loop()
        began = tick = loop.time()
        async with _connect(bootstrap) as cluster, Producer(cluster) as producer:
            while not self._is_over(number, loop.time() - began):
                tick += TICK_SECONDS
                first, number = number, self._next(number, int((tick - began) * settings.rate))
                deliveries = []
                for each in range(first, number):
                    record = self._orders.record(each)
                    self._sent[record.kind] += 1
                    deliveries.append(
                        await producer.send(
                            TOPIC, record.value, key=record.key, partition=each % PARTITIONS
                        )
                    )
                await asyncio.gather(*deliveries)
                if loop.time() > tick:
                    # After a delay the orders come as fast as before, not faster.
                    began += loop.time() - tick
                    tick = loop.time()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), max(0.0, tick - loop.time()))
            closing = self._orders.closing(number)
            await (await producer.send(TOPIC, closing.value, key=closing.key, partition=0))
        return number

    def _next(self, number: int, due: int) -> int:
        limit = self._settings.orders
        return max(number, due if limit is None else min(due, limit))

    def _is_over(self, number: int, seconds: float) -> bool:
        settings = self._settings
        return (
            self._stop.is_set()
            or (settings.orders is not None and number >= settings.orders)
            or (settings.seconds is not None and seconds >= settings.seconds)
        )

    async def _caught_up(self, bootstrap: str, allowed: int | None) -> None:
        """Wait until the output is whole, for CLOSING_SECONDS from the first batch at most."""
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        while deadline is None or loop.time() < deadline:
            checkpoint = self._checkpoint()
            if deadline is None and self._has_begun(checkpoint):
                deadline = loop.time() + CLOSING_SECONDS
            if self._is_whole(checkpoint):
                verdict = await self._verify(bootstrap, allowed)
                if not verdict.problems and not verdict.pending:
                    return
            await asyncio.sleep(1.0)
        self._tell(f"the output is not whole after {CLOSING_SECONDS:g} s")

    def _is_whole(self, checkpoint: Checkpoint | None) -> bool:
        """Return whether the job has read all orders, the closing one too, and rests."""
        if checkpoint is None or checkpoint.begun > checkpoint.done:
            return False
        return sum(checkpoint.offsets.values()) > self._sent.total()

    def _has_begun(self, checkpoint: Checkpoint | None) -> bool:
        """Return whether the job has begun its first batch."""
        return checkpoint is not None and checkpoint.begun >= 0

    def _checkpoint(self) -> Checkpoint | None:
        return read_checkpoint(self._file.checkpoint)

    # -- brokers and topics ----------------------------------------------------------------------

    def _make_brokers(self) -> tuple[list[Child], str | None]:
        settings = self._settings
        children, socket_path = make_children(
            {
                "log.dirs": str(settings.directory / DATA / "brokers"),
                "listeners": f"PLAINTEXT://{settings.listen}",
                "broker.id": "1",
                "min.insync.replicas": "2",
                "transaction.two.phase.commit.enable": "true",
            },
            BROKERS,
            replicas=BROKERS,
            strict=True,
            log=LogOptions("error"),
            cluster_id="",
        )
        for child in children:
            for address in child.listeners:
                _check_free(address)
        return children, socket_path

    async def _run_brokers(self, supervisor: Supervisor, failed: asyncio.Event) -> None:
        await supervisor.run(failed)
        if failed.is_set():
            raise click.ClickException("the metadata could not be written; is the disk full?")

    async def _end_brokers(self, supervisor: Supervisor) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await supervisor.stop(hand_over=False)

    async def _make_topics(self, cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topic(TOPIC, partitions=PARTITIONS)
        for topic in self._job.topics:
            await admin.create_topic(topic, partitions=PARTITIONS)

    # -- watching --------------------------------------------------------------------------------

    async def _watch_output(self, bootstrap: str) -> None:
        async with _connect(bootstrap) as cluster:
            await self._read_output(cluster)

    async def _read_output(self, cluster: Cluster) -> None:
        """Count committed rows, and keep the last sums for the page."""
        consumer = Consumer(cluster, FetchSettings(offset_reset=EARLIEST))
        topics = self._job.topics
        consumer.assign(
            {TopicPartition(topic, each): 0 for topic in topics for each in range(PARTITIONS)}
        )
        while True:
            try:
                messages = await consumer.poll()
            except (KafkaError, OSError, TimeoutError):
                # A broker that is down is no reason to stop the example.
                await asyncio.sleep(1.0)
                continue
            for message in messages:
                self._note(message)

    def _note(self, message: Message) -> None:
        if self._first_row is None:
            self._first_row = self._seconds()
            self._tell("the first row is committed")
        self._rows[message.topic] += 1
        if message.topic == self._job.topics[0]:
            with suppress(ValueError):
                row = json.loads(message.value or b"null")
                if isinstance(row, dict):
                    self._sums.append(row)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self._echo(self._report_line())

    def _report_line(self) -> str:
        state, last = self.state(), self.progress().last
        sent = f"{sum(state.sent.values()):,} orders sent"
        if last is None:
            begun = self._has_begun(self._checkpoint())
            return f"{sent}, {'the first batch runs' if begun else _SPARK_STARTS}"
        return (
            f"{sent}, {state.sums:,} sums and {state.broken:,} broken orders committed, "
            f"batch {last.number}"
        )

    def _tell(self, text: str) -> None:
        self._events.append((self._seconds(), text))
        self._echo(text)

    def _echo(self, text: str) -> None:
        click.echo(f"{self._seconds():7.1f} s  {text}")

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    # -- tasks -----------------------------------------------------------------------------------

    def _spawn(self, work: Awaitable[None]) -> None:
        self._tasks.add(asyncio.ensure_future(work))

    async def _or_failure(self, work: Awaitable[T]) -> T:
        """Return what `work` returns, or raise what a task in the background has raised."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            for each in self._tasks:
                if each.done():
                    each.result()
            return await task
        finally:
            task.cancel()
            await asyncio.wait({task})


def _connect(bootstrap: str) -> Cluster:
    """Return a separate cluster for one task: a long poll holds up what shares its connection."""
    return Cluster(bootstrap, timeout=60.0)


def _check_free(address: str) -> None:
    """Raise ClickException if a broker could not listen on this address."""
    host, port = parse_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in found:
            try:
                with socket.socket(family, kind, protocol) as trial:
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    trial.bind(place)
            except OSError as error:
                # The broker leaves out addresses that the host does not have.
                if error.errno not in NOT_HERE:
                    raise
    except OSError as error:
        raise click.ClickException(
            f"{address}: {error.strerror}; --listen 127.0.0.1:0 takes free ports"
        ) from None
