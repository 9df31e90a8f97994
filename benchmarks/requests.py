"""Single requests from the raw client: to leaders, to coordinators, and whole transactions.

The client costs nearly nothing, so that the figures are the broker's. The floors get the same
frames.
"""

import heapq
import multiprocessing
import select
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count as numbers
from itertools import repeat
from struct import Struct
from typing import Any, NamedTuple

from barnabas.protocol.messages import (
    add_offsets_to_txn,
    heartbeat,
    join_group,
    offset_commit,
    sync_group,
    txn_offset_commit,
)
from benchmarks import floors, raw
from benchmarks.measures import Cost, Figures, Round, percentiles
from benchmarks.systems import System

RECORDS_16_KB, RECORD_BYTES = 15, 1024
SMALL_BYTES = 100
RECORDS_OF_SEVERAL = 10
"""Records of a request of several clients."""
WINDOW, WINDOW_OF_SEVERAL = 5, 16
"""Requests in flight: 5, as librdkafka has them, and those of each of several clients."""
RETRY_S = 0.001
"""The pause after CONCURRENT_TRANSACTIONS. Kafka's clients wait for 20 ms."""
_CONCURRENT, _MEMBER_ID_REQUIRED = 51, 79
_SESSION, _SESSION_AT = Struct(">i"), 11
"""The session id in a response, behind header, throttle time and error."""

PLAIN, IDEMPOTENT, IN_TRANSACTION = PRODUCED = (
    "Produce of 16 KB",
    "idempotent Produce of 16 KB",
    "Produce of 16 KB in a transaction",
)
SINGLE, FETCHED = "one record at a time", "Fetch of 16 KB"
IN_SESSION = "Fetch of 16 KB in a session"
OFFSET_COMMIT, HEARTBEAT, TXN_OFFSET_COMMIT = "OffsetCommit", "Heartbeat", "TxnOffsetCommit"

Load = Callable[[System], Round]


def transactions_name(producers: int) -> str:
    """Return the name of the measurement of transactions by so many producers."""
    return f"transaction of one record, {producers} producer{'s' if producers > 1 else ''}"


def several_name(clients: int) -> str:
    """Return the name of the measurement of Produce requests by so many clients."""
    return f"Produce of 10 records, {clients} clients"


def beside_name(processes: int) -> str:
    """Return the name of the measurement of transactions beside so many processes."""
    return f"transactions of one record, beside {processes} processes"


def loads(requests: int, transacted: int) -> list[Load]:
    """Return the loads of brokers and floors."""
    work: list[Load] = [partial(produce, name=name, count=requests) for name in (*PRODUCED, SINGLE)]
    work += [partial(fetch, name=name, count=requests) for name in (FETCHED, IN_SESSION)]
    work += [partial(transactions, producers=number, count=transacted) for number in (1, 8)]
    return work


def coordinated_loads(requests: int) -> list[Load]:
    """Return the loads of group coordinators."""
    return [
        partial(each, count=requests) for each in (offset_commits, heartbeats, txn_offset_commits)
    ]


def loads_of_several(processes: int, requests: int, transacted: int) -> list[Load]:
    """Return the loads of several processes on one host, and of one beside them."""
    named = beside_name(processes)
    return [
        partial(produce_of_several, clients=processes, count=requests),
        partial(transactions, producers=8, count=transacted, name=named),
    ]


def measured(
    pid: int,
    client: raw.Client,
    requests: Iterable[bytes | bytearray],
    count: int,
    window: int,
) -> Figures:
    """Return the figures of requests of which `window` are in flight, for the process `pid`."""
    with Cost(pid) as cost:
        taken = client.stream(requests, window)
    return cost.of(count) | percentiles(taken, "us")


# -- Produce and Fetch -----------------------------------------------------------------------------


def _large(topic: str, producer: raw.Producer) -> raw.Batch:
    return raw.batch_of(topic, producer, records=RECORDS_16_KB, record_bytes=RECORD_BYTES)


def _small(topic: str, producer: raw.Producer) -> raw.Batch:
    return raw.batch_of(topic, producer, records=1, record_bytes=SMALL_BYTES)


def produce(at: System, name: str, count: int) -> Round:
    """Measure Produce requests of one kind."""
    topic, producer = f"produce-{time.time_ns()}", raw.PLAIN
    if name in (IDEMPOTENT, IN_TRANSACTION):
        producer = at.producer(topic if name == IN_TRANSACTION else None)
    first = (_small if name == SINGLE else _large)(topic, producer)
    answers = [floors.produced(topic, first), *floors.transacted(topic)]
    with at.serving(topic, answers), at.leader(topic) as client, ExitStack() as stack:
        if producer.transactional_id is not None:
            coordinator = stack.enter_context(at.coordinator(topic))
            raw.accepted(coordinator, raw.added(topic, producer))
            stack.callback(raw.accepted, coordinator, raw.ended(producer))
        raw.accepted(client, first.frame)
        frames = raw.successors(first, producer, count)
        figures = measured(at.pid, client, frames, count, 1 if name == SINGLE else WINDOW)
        if error := raw.error_of(first.frame, client.last_answer):
            raise RuntimeError(f"{name}: {at.name} answered {error}")
    return {name: figures}


def fetch(at: System, name: str, count: int) -> Round:
    """Measure Fetch requests of one batch each, from the first batch of a topic on."""
    topic = f"fetch-{time.time_ns()}"
    first = _large(topic, raw.PLAIN)
    request = partial(raw.fetch_request, topic, max_bytes=16 * 1024)
    answers = [floors.produced(topic, first), floors.fetched(topic, first.size)]
    with at.serving(topic, answers), at.leader(topic) as client:
        raw.accepted(client, first.frame)
        client.stream(raw.successors(first, raw.PLAIN, count), WINDOW)
        session = 0
        if name == IN_SESSION:  # 0 from a floor
            answer = client.exchange(request(offset=0, epoch=0))
            session = _SESSION.unpack_from(answer, _SESSION_AT)[0]
        frames = [
            request(
                offset=RECORDS_16_KB * number, session=session, epoch=number + 1 if session else -1
            )
            for number in range(count)
        ]
        figures = measured(at.pid, client, frames, count, window=1)
        if len(client.last_answer) < first.size:
            raise RuntimeError(f"{name}: {at.name} has sent less than a batch")
    return {name: figures}


def produce_of_several(system: System, clients: int, count: int) -> Round:
    """Measure small Produce requests of several clients, `count` of each.

    Each has a partition of its own: of the one broker, or one of each process.
    """
    placed = _placed(system, clients)
    sending = [multiprocessing.Process(target=_send, args=(*each, count)) for each in placed]
    with Cost(system.pid) as cost:
        for each in sending:
            each.start()
        for each in sending:
            each.join()
            if each.exitcode:
                raise RuntimeError(f"a client of {system.name} failed")
    with raw.connect(system.port) as client:
        for _, topic in placed:
            raw.delete_topic(client, topic)
    return {several_name(clients): cost.of(clients * count) | {"cores": cost.cpu / cost.seconds}}


def _send(port: int, topic: str, count: int) -> None:
    request = raw.produce_request(topic, records=RECORDS_OF_SEVERAL, record_bytes=SMALL_BYTES)
    with raw.connect(port) as client:
        client.stream(repeat(request, count), WINDOW_OF_SEVERAL)


def _placed(system: System, clients: int) -> list[tuple[int, str]]:
    """Return ports and topics for the clients, with the same number on each process."""
    led: dict[int, list[str]] = {port: [] for port in system.ports}
    each = clients // len(led)
    spare: list[str] = []
    with raw.connect(system.port) as client:
        for number in numbers():
            topic = f"clients-{time.time_ns()}-{number}"
            raw.create_topic(client, topic)
            topics = led[raw.leader_port(client, topic)]
            (topics if len(topics) < each else spare).append(topic)
            if all(len(topics) == each for topics in led.values()):
                break
        for topic in spare:
            raw.delete_topic(client, topic)
    return [(port, topic) for port, topics in led.items() for topic in topics]


# -- transactions ----------------------------------------------------------------------------------


class Step(NamedTuple):
    """A request of a transaction: the connection, and what makes the request."""

    client: raw.Client
    make: Callable[[], bytes]


class Transactor:
    """One producer that commits transactions of one record, one after the other."""

    def __init__(self, at: System, topic: str, transactional_id: str, count: int) -> None:
        self.left = count
        self.retries = 0
        self.taken: list[float] = []
        producer = at.producer(transactional_id)
        self.coordinator, self.leader = at.coordinator(transactional_id), at.leader(topic)
        first = _small(topic, producer)
        add, end = raw.added(topic, producer), raw.ended(producer)
        raw.accepted(self.coordinator, add)
        raw.accepted(self.leader, first.frame)
        raw.accepted(self.coordinator, end)
        batches = map(bytes, raw.successors(first, producer, count))
        self._steps = (
            Step(self.coordinator, lambda: add),
            Step(self.leader, partial(next, batches)),
            Step(self.coordinator, lambda: end),
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
        self._steps[self._step].client.send(self._sent)

    def answered(self) -> bool:
        """Take an answer and go on; return False if the request is to be sent again."""
        answer = self._steps[self._step].client.receive()
        if answer not in self._accepted:
            if error := raw.error_of(self._sent, answer):
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


def transactions(at: System, producers: int, count: int, name: str = "") -> Round:
    """Measure transactions of one record by several producers at a time."""
    topic, each = f"txn-{producers}-{time.time_ns()}", count // producers
    first = _small(topic, raw.Producer(topic, 1000, 0))
    answers = [floors.produced(topic, first), *floors.transacted(topic)]
    with at.serving(topic, answers), ExitStack() as stack:
        clients = [Transactor(at, topic, f"{topic}-{number}", each) for number in range(producers)]
        for client in clients:
            stack.callback(client.close)
        with Cost(at.pid) as cost:
            _drive(clients)
    taken = sorted(seconds for client in clients for seconds in client.taken)
    found = cost.of(len(taken)) | percentiles(taken, "us")
    found["retries"] = sum(client.retries for client in clients) / len(taken)
    return {name or transactions_name(producers): found}


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


# -- group coordinators ----------------------------------------------------------------------------

_TOPIC = "committed"
_COMMITTED = [
    {
        "name": _TOPIC,
        "partitions": [{"partition_index": 0, "committed_offset": 42, "committed_metadata": None}],
    }
]


def offset_commits(system: System, count: int) -> Round:
    """Measure commits of one offset by a client that is no member."""
    group = f"commits-{time.time_ns()}"
    request = {"group_id": group, "member_id": "", "topics": _COMMITTED}
    with system.serving(_TOPIC), system.coordinator(group, raw.GROUP) as client:
        return {OFFSET_COMMIT: _repeated(system, client, offset_commit, 8, request, count)}


def heartbeats(system: System, count: int) -> Round:
    """Measure the heartbeats of the one member of a stable group of the classic protocol."""
    group = f"beats-{time.time_ns()}"
    with system.coordinator(group, raw.GROUP) as client:
        request = _joined(client, group)
        return {HEARTBEAT: _repeated(system, client, heartbeat, 4, request, count)}


def txn_offset_commits(system: System, count: int) -> Round:
    """Measure commits of one offset in an open transaction."""
    name = f"txn-commits-{time.time_ns()}"
    with (
        system.coordinator(name) as coordinator,
        system.serving(_TOPIC),
        system.coordinator(name, raw.GROUP) as client,
    ):
        producer = raw.initialised(coordinator, name)
        ids = {
            "transactional_id": name,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "group_id": name,
        }
        raw.until(lambda: not coordinator.call(add_offsets_to_txn.API, 3, ids).error_code)
        request = ids | {"topics": _COMMITTED}
        figures = _repeated(system, client, txn_offset_commit, 3, request, count)
        raw.accepted(coordinator, raw.ended(producer))
        return {TXN_OFFSET_COMMIT: figures}


def _repeated(
    system: System, client: raw.Client, module: Any, version: int, request: Any, count: int
) -> Figures:
    """Measure a request that is sent again and again, once it is accepted."""

    def served() -> bool:
        answer = client.call(module.API, version, request)
        at = answer.topics[0].partitions[0] if "topics" in request else answer
        return not at.error_code

    raw.until(served)
    frame = raw.frame(module.API, version, request)
    return measured(system.pid, client, repeat(frame, count), count, WINDOW)


def _joined(client: raw.Client, group: str) -> dict[str, Any]:
    """Join as the one member, and share out nothing; return the fields of a heartbeat."""
    request = {
        "group_id": group,
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 45_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }

    def joined() -> Any:
        answer = client.call(join_group.API, 5, request)
        if answer.error_code == _MEMBER_ID_REQUIRED:
            request["member_id"] = answer.member_id
        return None if answer.error_code else answer

    answer = raw.until(joined)
    member = {
        "group_id": group,
        "generation_id": answer.generation_id,
        "member_id": answer.member_id,
    }
    shares = member | {"assignments": [{"member_id": answer.member_id, "assignment": b""}]}
    raw.until(lambda: not client.call(sync_group.API, 3, shares).error_code)
    return member
