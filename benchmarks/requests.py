"""Single requests from the raw client: to leaders, to coordinators, and whole transactions.

The client costs nearly nothing, so that the figures are the broker's. The floor gets the same
frames.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice, repeat
from typing import Any

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer
from barnabas.client.group import GroupMember
from barnabas.client.groups.metadata import GroupMetadata
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    heartbeat,
    offset_commit,
    txn_offset_commit,
)
from benchmarks import floors, raw
from benchmarks.child import ready, tell, told
from benchmarks.measures import Cost, Figures, Round, percentiles
from benchmarks.systems import Load, System, administer, create_topics

RECORDS_16_KB, RECORD_BYTES = 15, 1024
SMALL_BYTES = 100
RECORDS_OF_SEVERAL = 10
"""Records of a request of several clients."""
WINDOW, WINDOW_OF_SEVERAL = 5, 16
"""Requests in flight: 5, as librdkafka has them, and those of each of several clients."""
RETRY_S = 0.001
"""The pause after CONCURRENT_TRANSACTIONS. Kafka's clients wait for 20 ms."""

PLAIN, IDEMPOTENT, IN_TRANSACTION = PRODUCED = (
    "Produce of 16 KB",
    "idempotent Produce of 16 KB",
    "Produce of 16 KB in a transaction",
)
SINGLE, FETCHED = "one record at a time", "Fetch of 16 KB"


def loads(requests: int, transacted: int) -> list[Load]:
    """Return the loads of brokers and of the floor."""
    work: list[Load] = [partial(produce, name=name, count=requests) for name in (*PRODUCED, SINGLE)]
    work += [partial(fetch, count=requests)]
    work += [partial(transactions, producers=number, count=transacted) for number in (1, 8)]
    return work


def coordinated_loads(requests: int) -> list[Load]:
    """Return the loads of group coordinators."""
    return [
        partial(each, count=requests) for each in (offset_commits, heartbeats, txn_offset_commits)
    ]


def loads_of_several(processes: int, requests: int, transacted: int) -> list[Load]:
    """Return the loads of several processes on one host, and of one beside them."""
    named = f"transactions of one record, beside {processes} processes"
    return [
        partial(produce_of_several, clients=processes, count=requests),
        partial(transactions, producers=8, count=transacted, name=named),
    ]


def measured(
    at: System, client: raw.Client, requests: Iterable[bytes | bytearray], count: int, window: int
) -> Figures:
    """Return the figures of requests of which `window` are in flight."""
    with Cost(*at.pids) as cost:
        taken = client.stream(requests, window)
    return cost.of(count) | percentiles(taken, "us")


# -- Produce and Fetch -----------------------------------------------------------------------------


def _large(topic: str, producer: raw.Producer) -> raw.Batch:
    return raw.batch_of(topic, producer, records=RECORDS_16_KB, record_bytes=RECORD_BYTES)


def _small(topic: str, producer: raw.Producer) -> raw.Batch:
    return raw.batch_of(topic, producer, records=1, record_bytes=SMALL_BYTES)


@contextmanager
def producing(
    at: System, name: str, count: int
) -> Iterator[tuple[raw.Client, raw.Batch, Iterator[bytearray]]]:
    """Have so many Produce requests of one kind ready during a block, after a first one."""
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
        yield client, first, raw.successors(first, producer, count)


def produce(at: System, name: str, count: int) -> Round:
    """Measure Produce requests of one kind."""
    with producing(at, name, count) as (client, first, frames):
        figures = measured(at, client, frames, count, 1 if name == SINGLE else WINDOW)
        if error := raw.error_of(first.frame, client.last_answer):
            raise RuntimeError(f"{name}: {at.name} answered {error}")
    return {name: figures}


@contextmanager
def fetching(at: System, count: int) -> Iterator[tuple[raw.Client, raw.Batch, Iterator[bytes]]]:
    """Have so many Fetch requests of one batch each ready during a block, from the first batch of a
    topic on."""
    topic = f"fetch-{time.time_ns()}"
    first = _large(topic, raw.PLAIN)
    answers = [floors.produced(topic, first), floors.fetched(topic, first.size)]
    with at.serving(topic, answers), at.leader(topic) as client:
        raw.accepted(client, first.frame)
        client.stream(raw.successors(first, raw.PLAIN, count), WINDOW)
        offsets = range(0, RECORDS_16_KB * count, RECORDS_16_KB)
        frames = [raw.fetch_request(topic, offset=each, max_bytes=16 * 1024) for each in offsets]
        yield client, first, iter(frames)


def fetch(at: System, count: int) -> Round:
    """Measure Fetch requests of one batch each."""
    with fetching(at, count) as (client, first, frames):
        figures = measured(at, client, frames, count, window=1)
        if len(client.last_answer) < first.size:
            raise RuntimeError(f"{at.name} has sent less than a batch")
    return {FETCHED: figures}


def produce_of_several(system: System, clients: int, count: int) -> Round:
    """Measure small Produce requests of several clients, `count` of each.

    Each has a partition of its own: of the one broker, or one of each process.
    """
    topic, share = f"clients-{time.time_ns()}", clients // len(system.ports)
    # Each process leads some of so many partitions.
    create_topics(system.servers, {topic: 4 * clients})
    led = administer(system.servers, partial(_led, topic, range(4 * clients)))
    several = [
        {"port": port, "topic": topic, "partition": each, "count": count}
        for port in system.ports
        for each in led[port][:share]
    ]
    with ready("requests.send", several) as all_of_them, Cost(*system.pids) as cost:
        all_of_them()
    administer(system.servers, lambda cluster: Admin(cluster).delete_topic(topic))
    name = f"Produce of 10 records, {clients} clients"
    return {name: cost.of(clients * count) | {"cores": cost.cpu / cost.seconds}}


async def _led(topic: str, partitions: range, cluster: Cluster) -> dict[int, list[int]]:
    """Return partitions by the port of their leader."""
    found = defaultdict(list)
    for each in partitions:
        found[cluster.nodes[await cluster.leader(topic, each)].port].append(each)
    return found


def send(port: int, topic: str, partition: int, count: int) -> None:
    """Send small Produce requests, in a process of its own."""
    size = {"records": RECORDS_OF_SEVERAL, "record_bytes": SMALL_BYTES}
    request = raw.produce_request(topic, **size, partition=partition)
    with raw.connect(port) as client:
        raw.accepted(client, request)
        tell("ready")
        told()
        client.stream(repeat(request, count), WINDOW_OF_SEVERAL)


# -- transactions ----------------------------------------------------------------------------------


def transactions(at: System, producers: int, count: int, name: str = "") -> Round:
    """Measure transactions of one record by several producers at a time."""
    topic, each = f"txn-{producers}-{time.time_ns()}", count // producers
    first = _small(topic, raw.Producer(topic, 1000, 0))
    answers = [floors.produced(topic, first), *floors.transacted(topic)]
    taken: list[float] = []
    refused: list[bytes] = []
    with at.serving(topic, answers), ExitStack() as stack:
        talks = [
            transactor(at, stack, f"{topic}-{number}", topic, each, taken, refused)(each)
            for number in range(producers)
        ]
        with Cost(*at.pids) as cost:
            raw.converse(talks)
    found = cost.of(len(taken)) | percentiles(taken, "us")
    name = name or f"transaction of one record, {producers} producer{'s' if producers > 1 else ''}"
    return {name: found | {"retries": len(refused) / len(taken)}}


def transactor(
    at: System,
    stack: ExitStack,
    transactional_id: str,
    topic: str,
    most: int,
    taken: list[float],
    refused: list[bytes],
) -> Callable[[int], raw.Talk]:
    """Return the function for the next transactions of a producer, which is ready: one after the
    other, with a record each, `most` in all. They note their seconds, and the requests that were
    refused at first."""
    producer = at.producer(transactional_id)
    coordinator = stack.enter_context(at.coordinator(transactional_id))
    leader = stack.enter_context(at.leader(topic))
    first = _small(topic, producer)
    add, end = raw.added(topic, producer), raw.ended(producer)
    raw.accepted(coordinator, add)
    raw.accepted(leader, first.frame)
    raw.accepted(coordinator, end)
    batches = map(bytes, raw.successors(first, producer, most))

    def talk(count: int) -> raw.Talk:
        # Answers without an error come again, and need not be decoded.
        accepted: set[bytes] = set()
        for batch in islice(batches, count):
            began = time.perf_counter()
            for client, request in ((coordinator, add), (leader, batch), (coordinator, end)):
                while (answer := (yield client, request)) not in accepted:
                    error = raw.error_of(request, answer)
                    if not error:
                        if len(accepted) < 3:
                            accepted.add(answer)
                        break
                    if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                        raise RuntimeError(f"a transaction was refused: {error}")
                    refused.append(request)
                    yield time.monotonic() + RETRY_S
            taken.append(time.perf_counter() - began)

    return talk


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
        return {"OffsetCommit": _repeated(system, client, offset_commit, 8, request, count)}


def heartbeats(system: System, count: int) -> Round:
    """Measure the heartbeats of the one member of a stable group of the classic protocol."""
    group = f"beats-{time.time_ns()}"

    async def joined(cluster: Cluster) -> GroupMetadata:
        member = GroupMember(cluster, Consumer(cluster), group, [_TOPIC])
        await member.ensure_joined()
        await member.abandon()
        return member.metadata

    with system.serving(_TOPIC), system.coordinator(group, raw.GROUP) as client:
        member = administer(system.servers, joined)
        request = {
            "group_id": group,
            "generation_id": member.generation,
            "member_id": member.member_id,
        }
        return {"Heartbeat": _repeated(system, client, heartbeat, 4, request, count)}


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
        return {"TxnOffsetCommit": figures}


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
    return measured(system, client, repeat(frame, count), count, WINDOW)
