"""Drivers of one sink and their tasks, run request by request in any order.

A driver is a coroutine that stops at each request. The test carries out its next request, or lets
its answer be lost, or repeats it much later, or never runs the driver again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.pipeline.sink.port import (
    End,
    Fate,
    FirstRecord,
    Identity,
    OpenTransaction,
    Pinned,
    Place,
    SinkPort,
    StoredDecision,
)
from barnabas.pipeline.sink.protocol import (
    Abort,
    Batch,
    Commit,
    SinkError,
    SinkSettings,
    Winner,
)
from barnabas.pipeline.sink.task_ids import TaskIds
from barnabas.protocol.errors import ErrorCode, KafkaError

QUERY = "query"
MOST_REQUESTS = 400
"""More requests than a driver needs for a few batches."""
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class TaskPort(SinkPort, Protocol):
    """The port of a driver, and the requests of its tasks."""

    driver: str
    """The transactional id of the driver."""

    @property
    def producer(self) -> Identity:
        """The identity of the driver's id, from the last fence."""

    async def state(self, transactional_id: str) -> tuple[str, Identity] | None:
        """Return state and identity of an id, as its coordinator shows them."""

    async def init(self, transactional_id: str) -> Identity: ...

    async def write(self, transactional_id: str, producer: Identity, rows: object) -> Place: ...


class Request:
    """A request that waits for the scheduler.

    `may_repeat` if clients repeat it until it is answered, `gives_up` if they do not then.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[], Coroutine[Any, Any, Any]],
        *,
        may_repeat: bool = False,
        gives_up: bool = False,
        late: Callable[[], Coroutine[Any, Any, Any]] | None = None,
    ) -> None:
        """`late` is the call of a repetition that arrives much later, if the driver has changed."""
        self.name = name
        self.call = call
        self.may_repeat = may_repeat or gives_up
        self.gives_up = gives_up
        self.late = late or call

    def __await__(self) -> Generator["Request", Any, Any]:
        return (yield self)


class Gate:
    """A port that stops before each request, also between those of one call."""

    def __init__(self, port: TaskPort) -> None:
        self.port = port

    async def list_open(self) -> list[OpenTransaction]:
        return await Request("list", self.port.list_open)

    async def describe(self, transactional_ids: Sequence[str]) -> list[OpenTransaction | None]:
        return await Request("describe", lambda: self.port.describe(transactional_ids))

    async def fence(self) -> None:
        late = lambda: self.port.init(self.port.driver)  # noqa: E731
        await Request("fence", self.port.fence, may_repeat=True, late=late)

    async def pin(self, transactional_ids: Sequence[str]) -> list[Pinned | KafkaError]:
        answers: list[Pinned | KafkaError] = []
        for each in transactional_ids:
            pin = Request(f"pin {each}", lambda each=each: self.port.pin([each]), may_repeat=True)
            answers += await pin
        return answers

    async def end(self, ends: Sequence[End]) -> list[KafkaError | None]:
        answers: list[KafkaError | None] = []
        for each in ends:
            verb = "commit" if each.committed else "abort"
            name = f"{verb} {each.transactional_id} as {each.producer}"
            answers += await Request(name, lambda each=each: self.port.end([each]), may_repeat=True)
        return answers

    async def write_decision(self, value: bytes) -> int:
        return await Request("write the decision", lambda: self.port.write_decision(value))

    async def end_decision(self, *, committed: bool) -> None:
        name = "decide" if committed else "drop the decision"
        end = End(self.port.driver, self.port.producer, committed)
        await Request(
            name,
            lambda: self.port.end_decision(committed=committed),
            may_repeat=True,
            late=lambda: self.port.end([end]),
        )

    async def decision_fate(self, offset: int) -> Fate:
        return await Request("fate of the decision", lambda: self.port.decision_fate(offset))

    async def last_decision(self, before: int | None) -> StoredDecision | None:
        return await Request("look back", lambda: self.port.last_decision(before))

    async def fates(self, records: Sequence[FirstRecord]) -> list[Fate]:
        return await Request("fates", lambda: self.port.fates(records))

    def now_ms(self) -> int:
        return self.port.now_ms()

    async def sleep(self, seconds: float) -> None:
        await Request("sleep", lambda: self.port.sleep(seconds))


class Protocols:
    """The code under test; mutants replace parts of it."""

    commit: type[Commit] = Commit
    abort: type[Abort] = Abort
    checks_reuse = True
    fences = True
    bounded = False
    """Delivery exactly-once-bounded: nothing is pinned."""
    gate: type[Gate] = Gate


class Story:
    """One checkpoint, the worker processes, and the drivers that use them."""

    def __init__(
        self,
        open_port: Callable[[str], TaskPort],
        run: Run,
        *,
        sink_id: str = "sink",
        protocols: type[Protocols] = Protocols,
        tasks: int = 2,
    ) -> None:
        """`open_port` opens a port with the transactional id of a driver."""
        self.open_port = open_port
        self.run = run
        self.sink_id = sink_id
        self.protocols = protocols
        self.tasks = tasks
        self.committed = -1
        """The last batch in the checkpoint's commit log."""
        self.drivers: list[Driver] = []
        self.late: list[tuple[str, Request]] = []
        self.processes = [TaskIds(sink_id, "p0")]
        self.history: list[str] = []

    def start_driver(self, process: int = -1, *, empty: bool = False) -> "Driver":
        driver = Driver(self, len(self.drivers), self.processes[process], empty=empty)
        self.drivers.append(driver)
        return driver

    def start_process(self) -> None:
        """Start a worker process, which has ids of its own."""
        self.processes.append(TaskIds(self.sink_id, f"p{len(self.processes)}"))

    @property
    def alive(self) -> list["Driver"]:
        return [each for each in self.drivers if each.alive]

    def deliver_late(self, index: int) -> None:
        """Let a repetition of an earlier request arrive."""
        name, request = self.late.pop(index % len(self.late))
        self.history.append(f"late: {name}")
        with suppress(KafkaError):
            self.run(request.late())

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Run a driver without faults, then the sleeping ones, then another."""
        asleep = self.alive
        while self.late:
            self.deliver_late(0)
        self.commit_batches(2)
        for driver in asleep:
            for _ in range(MOST_REQUESTS):
                driver.step()
            driver.crash()
        self.commit_batches(1)

    def commit_batches(self, count: int) -> None:
        """Let a new driver commit batches; it meets no fault."""
        self.start_process()
        driver = self.start_driver()
        for _ in range(MOST_REQUESTS):
            if driver.batches >= count or not driver.alive:
                break
            driver.step()
        driver.crash()
        assert driver.batches >= count, f"a driver without faults fails: {driver.error}"

    def judge(self, visible: Iterable[tuple[int, int]], still_open: Collection[object]) -> None:
        """Check batch and task of each visible transaction, and that no transaction is open."""
        counts = Counter(visible)
        wanted = {
            (number, task) for number in range(self.committed + 1) for task in range(self.tasks)
        }
        lost = sorted(wanted - counts.keys())
        assert not lost, f"lost: {lost}"
        twice = sorted(each for each, count in counts.items() if count > 1)
        assert not twice, f"twice: {twice}"
        assert counts.keys() == wanted, f"undecided, but visible: {counts.keys() - wanted}"
        assert not still_open, f"open: {still_open}"


class Driver:
    """A driver that runs batches until one fails.

    With `empty` its batch has no rows, and it dies before the commit log.
    """

    def __init__(self, story: Story, number: int, process: TaskIds, *, empty: bool = False) -> None:
        self.story = story
        self.name = f"driver {number}"
        self.empty = empty
        own = "" if story.protocols.fences else str(number)
        self.port = story.open_port(f"{story.sink_id}.driver{own}")
        self.process = process
        self.batches = 0
        """The batches that it has brought into the commit log."""
        self.error: BaseException | None = None
        self._coroutine: Coroutine[Request, Any, None] | None = self._live()
        self.request: Request | None = None
        self._resume(lambda coroutine: coroutine.send(None))

    @property
    def alive(self) -> bool:
        return self._coroutine is not None

    def crash(self) -> None:
        self.story.history.append(f"{self.name} crashes before: {self._next}")
        if self._coroutine is not None:
            self._coroutine.close()
        self._coroutine = None

    @property
    def _next(self) -> str:
        return self.request.name if self.request is not None else "-"

    def until(self, *names: str) -> "Driver":
        """Carry out requests up to the next one that is named so, which waits."""
        for _ in range(MOST_REQUESTS):
            if not self.alive or self._next.startswith(names):
                break
            self.step()
        return self

    def go(self) -> "Driver":
        """Carry out all requests until the driver ends, or has committed two more batches."""
        batches = self.batches + 2
        for _ in range(MOST_REQUESTS):
            if not self.alive or self.batches >= batches:
                break
            self.step()
        return self

    def step(self, *, lose_answer: bool = False, repeat_late: bool = False) -> None:
        """Carry out the next request."""
        request = self.request
        if self._coroutine is None or request is None:
            return
        lost = lose_answer and request.may_repeat
        late = repeat_late and request.may_repeat
        note = " (answer lost)" if lost else " (again later)" if late else ""
        if late:
            self.story.late.append((f"{self.name}: {request.name}", request))
        try:
            answer = self.story.run(request.call())
        except KafkaError as error:
            self.story.history.append(f"{self.name}: {request.name}: {error.code.name}{note}")
            if not lost:
                self._resume(lambda coroutine, error=error: coroutine.throw(error))
            return
        self.story.history.append(f"{self.name}: {request.name} -> {answer}{note}")
        if request.gives_up and (lost or late):
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            self._resume(lambda coroutine: coroutine.throw(error))
        elif not lost:
            self._resume(lambda coroutine: coroutine.send(answer))

    def _resume(self, go: Callable[[Coroutine[Request, Any, None]], Request]) -> None:
        assert self._coroutine is not None
        try:
            self.request = go(self._coroutine)
        except StopIteration:
            self._coroutine = self.request = None
        except SinkError as error:
            self.error = error
            self.story.history.append(f"{self.name} ends: {error}")
            self._coroutine = self.request = None

    # -- the driver ------------------------------------------------------------------------------

    async def _live(self) -> None:
        story = self.story
        gate = story.protocols.gate(self.port)
        settings = SinkSettings(story.sink_id, 60_000, story.protocols.bounded)
        while True:
            number = story.committed + 1
            batch = Batch(QUERY, number, "offsets")
            tasks = 0 if self.empty else story.tasks
            messages = [await self._task(number, task) for task in range(tasks)]
            winners = [each for each in messages if each is not None]
            try:
                if len(winners) < tasks:
                    raise SinkError("a task failed")
                await story.protocols.commit(gate, settings, batch, winners).run()
            except SinkError:
                await story.protocols.abort(gate, settings, batch, winners).run()
                raise
            if self.empty:
                return
            await Request("write the commit log", _nothing)
            if story.committed >= number:
                raise SinkError("another query uses the checkpoint")
            story.committed = number
            self.batches += 1

    async def _task(self, number: int, task: int) -> Winner | None:
        """Run a task, as an executor does."""
        name, producer = await self._init()
        rows = (number, task)
        try:
            place = await Request(
                f"write {name} as {producer}", lambda: self.port.write(name, producer, rows)
            )
        except KafkaError:
            return None
        self.process.put_back(name, ProducerIdAndEpoch(*producer))
        return Winner(name, producer, 1, place)

    async def _init(self) -> tuple[str, Identity]:
        """Take an id. A repeated InitProducerId may arrive late and abort the transaction: an id
        whose first InitProducerId was not answered is not used."""
        while True:
            try:
                name = await self._take_id()
                init = Request(
                    f"init {name}", lambda name=name: self.port.init(name), gives_up=True
                )
                return name, await init
            except KafkaError:
                continue

    async def _take_id(self) -> str:
        oldest = self.process.oldest()
        if oldest is None:
            return self.process.take()
        name, written = oldest
        if not self.story.protocols.checks_reuse:
            self.process.take_again(
                name, "CompleteCommit", written._replace(epoch=written.epoch + 1)
            )
            return name
        shown = await Request(f"state of {name}", lambda: self.port.state(name))
        if shown is None or self.process.oldest() != oldest:
            return self.process.take()
        state, producer = shown
        if self.process.take_again(name, state, ProducerIdAndEpoch(*producer)):
            return name
        return self.process.take()


async def _nothing() -> None:
    return None


def run_at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the model does not wait")
