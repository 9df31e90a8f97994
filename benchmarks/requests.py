"""Single requests from the raw client: Produce, Fetch, and transactions of one record.

The client costs nearly nothing, so that the figures are the broker's. The floors get the same
frames.
"""

import heapq
import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from struct import Struct
from typing import Protocol

from benchmarks import floors, raw
from benchmarks.floors import Answer
from benchmarks.raw_producers import (
    Producer,
    accepted,
    added,
    batch_of,
    coordinator_port,
    ended,
    error_of,
    initialised,
    successors,
)
from benchmarks.systems import System, cpu_seconds

RECORDS_16_KB, RECORD_BYTES = 15, 1024
SMALL_BYTES = 100
WINDOW = 5
"""Requests in flight, as librdkafka has them."""
RETRY_S = 0.001
"""The pause after CONCURRENT_TRANSACTIONS. Kafka's clients wait for 20 ms."""
_CONCURRENT = 51
_SESSION, _SESSION_AT = Struct(">i"), 11
"""The session id in a response, behind header, throttle time and error."""

PLAIN, IDEMPOTENT, IN_TRANSACTION = (
    "Produce of 16 KB",
    "idempotent Produce of 16 KB",
    "Produce of 16 KB in a transaction",
)
SINGLE, FETCHED = "one record at a time", "Fetch of 16 KB"
IN_SESSION = "Fetch of 16 KB in a session"

Figures = dict[str, float]
Round = dict[str, Figures]


def transactions_name(producers: int) -> str:
    """Return the name of the measurement of transactions by so many producers."""
    return f"transaction of one record, {producers} producer{'s' if producers > 1 else ''}"


class Target(Protocol):
    """A system that takes raw requests: a broker or a floor."""

    @property
    def pid(self) -> int: ...

    def serving(self, topic: str, answers: Sequence[Answer]) -> AbstractContextManager[None]:
        """Have a topic for a time; a floor has nothing but the answers."""
        ...

    def leader(self, topic: str) -> raw.Client:
        """Connect to the leader of partition 0."""
        ...

    def coordinator(self, transactional_id: str) -> raw.Client:
        """Connect to the coordinator."""
        ...

    def producer(self, transactional_id: str | None) -> Producer:
        """Return a new producer."""
        ...


class Broker:
    """A broker, or several processes of it, as a target."""

    def __init__(self, system: System) -> None:
        self._system = system

    @property
    def pid(self) -> int:
        return self._system.pid

    @contextmanager
    def serving(self, topic: str, _answers: Sequence[Answer]) -> Iterator[None]:
        with raw.connect(self._system.port) as client:
            raw.create_topic(client, topic)
            yield
            raw.delete_topic(client, topic)

    def leader(self, topic: str) -> raw.Client:
        with raw.connect(self._system.port) as client:
            return raw.connect(raw.leader_port(client, topic))

    def coordinator(self, transactional_id: str) -> raw.Client:
        with raw.connect(self._system.port) as client:
            return raw.connect(coordinator_port(client, transactional_id))

    def producer(self, transactional_id: str | None) -> Producer:
        with self._connected(transactional_id) as client:
            return initialised(client, transactional_id)

    def _connected(self, transactional_id: str | None) -> raw.Client:
        if transactional_id is None:
            return raw.connect(self._system.port)
        return self.coordinator(transactional_id)


def target(system: System | floors.Floor) -> Target:
    return system if isinstance(system, floors.Floor) else Broker(system)


def produce(system: System | floors.Floor, name: str, count: int) -> Round:
    """Measure Produce requests of one kind."""
    at, topic = target(system), f"produce-{time.time_ns()}"
    small = name == SINGLE
    producer = Producer(None)
    if name == IN_TRANSACTION:
        producer = at.producer(topic)
    elif name == IDEMPOTENT:
        producer = at.producer(None)
    first = batch_of(
        topic,
        producer,
        records=1 if small else RECORDS_16_KB,
        record_bytes=SMALL_BYTES if small else RECORD_BYTES,
    )
    answers = [floors.produced(topic, first), *floors.transacted(topic)]
    with at.serving(topic, answers), at.leader(topic) as client, ExitStack() as stack:
        if producer.transactional_id is not None:
            coordinator = stack.enter_context(at.coordinator(topic))
            accepted(coordinator, added(topic, producer))
            stack.callback(accepted, coordinator, ended(producer))
        accepted(client, first.frame)
        frames = successors(first, producer, count)
        figures = measured(at.pid, client, frames, count, 1 if small else WINDOW)
        if error := error_of(first.frame, client.last_answer):
            raise RuntimeError(f"{name}: {system.name} answered {error}")
    return {name: figures}


def fetch(system: System | floors.Floor, name: str, count: int) -> Round:
    """Measure Fetch requests of one batch each, from the first batch of a topic on."""
    at, topic = target(system), f"fetch-{time.time_ns()}"
    first = batch_of(topic, Producer(None), records=RECORDS_16_KB, record_bytes=RECORD_BYTES)
    answers = [floors.produced(topic, first), floors.fetched(topic, first.size)]
    with at.serving(topic, answers), at.leader(topic) as client:
        accepted(client, first.frame)
        client.stream(successors(first, Producer(None), count), WINDOW)
        session = _new_session(client, topic) if name == IN_SESSION else 0
        requests = [_fetch(topic, number, session) for number in range(count)]
        figures = measured(at.pid, client, requests, count, window=1)
        if len(client.last_answer) < first.size:
            raise RuntimeError(f"{name}: {system.name} has sent less than a batch")
    return {name: figures}


def _new_session(client: raw.Client, topic: str) -> int:
    """Return the id of a new fetch session, 0 from a floor."""
    request = raw.fetch_request(topic, offset=0, max_bytes=16 * 1024, epoch=0)
    session: int = _SESSION.unpack_from(client.exchange(request), _SESSION_AT)[0]
    return session


def _fetch(topic: str, number: int, session: int) -> bytes:
    """Return the Fetch of a batch by its number, as a request of a session or of none."""
    offset = RECORDS_16_KB * number
    epoch = number + 1 if session else -1
    return raw.fetch_request(
        topic, offset=offset, max_bytes=16 * 1024, session=session, epoch=epoch
    )


def measured(
    pid: int,
    client: raw.Client,
    requests: Iterable[bytes | bytearray],
    count: int,
    window: int,
) -> Figures:
    """Return the figures of requests of which `window` are in flight, for the process `pid`."""
    before, began = cpu_seconds(pid), time.perf_counter()
    taken = client.stream(requests, window)
    seconds, cpu = time.perf_counter() - began, cpu_seconds(pid) - before
    return _figures(taken, seconds, cpu, count)


def _figures(taken: list[float], seconds: float, cpu: float, count: int) -> Figures:
    return {
        "cpu_us": cpu / count * 1e6,
        "per_s": count / seconds,
        "p50_us": taken[count // 2] * 1e6,
        "p99_us": taken[count * 99 // 100] * 1e6,
    }


class Transactor:
    """One producer that commits transactions of one record, one after the other."""

    def __init__(self, at: Target, topic: str, transactional_id: str, count: int) -> None:
        self.left = count
        self.retries = 0
        self.taken: list[float] = []
        self._producer = at.producer(transactional_id)
        self.coordinator, self.leader = at.coordinator(transactional_id), at.leader(topic)
        first = batch_of(topic, self._producer, records=1, record_bytes=SMALL_BYTES)
        add, end = added(topic, self._producer), ended(self._producer)
        accepted(self.coordinator, add)
        accepted(self.leader, first.frame)
        accepted(self.coordinator, end)
        batches = map(bytes, successors(first, self._producer, count))
        self._steps = (
            (self.coordinator, lambda: add),
            (self.leader, partial(next, batches)),
            (self.coordinator, lambda: end),
        )
        self._step, self._began, self._sent = 0, 0.0, b""
        self._accepted: set[bytes] = set()
        """Answers without an error, which come again and need not be decoded."""

    def begin(self) -> None:
        """Send the first request of a transaction."""
        self._step, self._began = 0, time.perf_counter()
        self._send()

    def again(self) -> None:
        """Send the request again that was refused."""
        self._steps[self._step][0].send(self._sent)

    def answered(self) -> bool:
        """Take an answer and go on; return False if the request is to be sent again."""
        answer = self._steps[self._step][0].receive()
        if answer not in self._accepted:
            if error := error_of(self._sent, answer):
                if error != _CONCURRENT:
                    raise RuntimeError(f"a transaction was refused: {error}")
                self.retries += 1
                return False
            if len(self._accepted) < len(self._steps):
                self._accepted.add(answer)
        self._step += 1
        if self._step < len(self._steps):
            self._send()
            return True
        self.taken.append(time.perf_counter() - self._began)
        self.left -= 1
        if self.left:
            self.begin()
        return True

    def _send(self) -> None:
        client, make = self._steps[self._step]
        self._sent = make()
        client.send(self._sent)

    def close(self) -> None:
        self.coordinator.close()
        self.leader.close()


def transactions(system: System | floors.Floor, producers: int, count: int) -> Round:
    """Measure transactions of one record by several producers at a time."""
    at, topic = target(system), f"txn-{producers}-{time.time_ns()}"
    first = batch_of(topic, Producer(topic, 1000, 0), records=1, record_bytes=SMALL_BYTES)
    each, name = count // producers, transactions_name(producers)
    with at.serving(topic, [floors.produced(topic, first), *floors.transacted(topic)]):
        clients = [Transactor(at, topic, f"{topic}-{number}", each) for number in range(producers)]
        try:
            before, began = cpu_seconds(at.pid), time.perf_counter()
            _drive(clients)
            seconds, cpu = time.perf_counter() - began, cpu_seconds(at.pid) - before
        finally:
            for client in clients:
                client.close()
    taken = sorted(seconds for client in clients for seconds in client.taken)
    found = _figures(taken, seconds, cpu, each * producers)
    found["retries"] = sum(client.retries for client in clients) / len(taken)
    return {name: found}


def _drive(clients: Sequence[Transactor]) -> None:
    """Let all producers work at the same time, in this thread."""
    sockets = {}
    poll = select.epoll()
    for client in clients:
        for each in {client.coordinator, client.leader}:
            sockets[each.fileno()] = client
            poll.register(each.fileno(), select.EPOLLIN)
        client.begin()
    refused: list[tuple[float, int]] = []
    """The time at which the producer with this descriptor asks again."""
    while any(client.left for client in clients):
        now = time.monotonic()
        while refused and refused[0][0] <= now:
            sockets[heapq.heappop(refused)[1]].again()
        wait = max(refused[0][0] - now, 0) if refused else 30.0
        for fileno, _ in poll.poll(wait):
            if not sockets[fileno].answered():
                heapq.heappush(refused, (time.monotonic() + RETRY_S, fileno))
    poll.close()


def loads(requests: int, transacted: int) -> list[Callable[[System | floors.Floor], Round]]:
    """Return the loads of one round."""
    kinds = (PLAIN, IDEMPOTENT, IN_TRANSACTION, SINGLE)
    work: list[Callable[[System | floors.Floor], Round]] = [
        partial(produce, name=name, count=requests) for name in kinds
    ]
    work += [partial(fetch, name=name, count=requests) for name in (FETCHED, IN_SESSION)]
    work += [partial(transactions, producers=number, count=transacted) for number in (1, 8)]
    return work
