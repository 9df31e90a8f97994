"""W2: consume, transform, produce in three stages; workers crash and restart."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.group import Protocol as GroupProtocol
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import Partition
from barnabas.verify.wire.batches import Sent
from barnabas.verify.wire.inspection import committed_offset, ends
from barnabas.verify.wire.reader import Reader, ReadRecord
from barnabas.verify.wire.recorder import OperationFailed
from barnabas.verify.wire.transactor import Transactor
from barnabas.verify.workloads.ownership import FixedOwnership, GroupOwnership, Ownership, subscribe
from barnabas.verify.workloads.producer_loop import ProducerLoop, by_chance
from barnabas.verify.workloads.workload import Stage, Topic, read_continuously

STAGES: Final = 3
WORKERS: Final = 2
DRAIN_PATIENCE: Final = 60.0
_ABORTS: Final = 0.1
_CRASHES: Final = 0.04
_RARE_CRASHES: Final = 0.005
"""The share for workers whose crash blocks the group until a transaction or session timeout."""
_LOOKS: Final = 0.3
"""The share of transactions after which the committed offset is read."""


class Pipeline:
    """Producers, and three stages of workers with fixed partitions."""

    topics: Sequence[Topic] = tuple(Topic(f"stage{number}") for number in range(STAGES + 1))
    stages: Sequence[Stage] = tuple(
        Stage(f"stage{number}", f"stage{number + 1}", f"group{number}") for number in range(STAGES)
    )

    protocol: GroupProtocol | None = None
    """The protocol in which the workers are members of their groups; None if they are not."""

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        first = context.partitions("stage0")
        choose = by_chance(context, first, most=3)
        sources = [
            ProducerLoop(context, f"s{number}", f"s{number}", number, choose)
            for number in range(max(1, context.options.producers // 2))
        ]
        done = [asyncio.Event() for _ in range(STAGES + 1)]
        last = context.partitions(f"stage{STAGES}")
        return [
            partial(_all, [source.run for source in sources], done[0]),
            *(
                partial(_run_stage, context, number, done[number], done[number + 1], self.protocol)
                for number in range(STAGES)
            ),
            partial(_watch, context),
            partial(read_continuously, context, "committed", last, committed=True),
        ]

    async def finish(self, context: Context) -> None:
        """Do nothing: the stages have drained."""


class Members(Pipeline):
    """The pipeline with group members that join, leave and crash."""

    protocol: GroupProtocol = "classic"

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        topic = context.topic(f"stage{STAGES}")
        subscribers = [
            partial(subscribe, context, f"subscriber{each}", topic, self.protocol)
            for each in range(2)
        ]
        return [*super().parts(context), *subscribers]


class ConsumerMembers(Members):
    """The same with members in the consumer protocol (KIP-848)."""

    protocol: GroupProtocol = "consumer"


async def _all(parts: Sequence[Callable[[], Awaitable[None]]], done: asyncio.Event) -> None:
    await asyncio.gather(*(part() for part in parts))
    done.set()


async def _run_stage(
    context: Context,
    number: int,
    before: asyncio.Event,
    done: asyncio.Event,
    protocol: GroupProtocol | None,
) -> None:
    partitions = context.partitions(f"stage{number}")
    read: dict[str, frozenset[Partition]] = {}
    workers = [
        _Worker(context, number, index, partitions[index::WORKERS], before, protocol, read)
        for index in range(WORKERS)
    ]
    await _all([worker.run for worker in workers], done)


class _Crashed(Exception):
    """A simulated crash of the worker in the middle of a transaction."""


class _Worker:
    """A worker of a stage, which restarts after each crash."""

    def __init__(
        self,
        context: Context,
        stage: int,
        index: int,
        partitions: Sequence[Partition],
        before: asyncio.Event,
        protocol: GroupProtocol | None,
        read: dict[str, frozenset[Partition]],
    ) -> None:
        """`read` has the partitions that each worker of the stage reads now, by its name."""
        self._protocol = protocol
        self._read = read
        self._context = context
        self._stage = stage
        self._name = f"p{stage}{index}"
        self._number = stage + index
        self._partitions = partitions
        self._before = before
        self._target = context.topic(f"stage{stage + 1}")
        self._group = context.topic(f"group{stage}")
        self._chance = context.random(self._name)
        self._life = 0
        self._count = 0

    async def run(self) -> None:
        deadline: float | None = None
        while True:
            if self._context.stopping.is_set():
                deadline = deadline or time.monotonic() + DRAIN_PATIENCE
                if time.monotonic() > deadline:
                    self._context.problem(f"{self._name} did not reach the end")
                    return
            self._life += 1
            try:
                await self._live(deadline)
                return
            except _Crashed:
                continue
            except (OperationFailed, KafkaError, BrokerUnreachable, TimeoutError):
                await self._context.wait(0.05)

    async def _live(self, deadline: float | None) -> None:
        """Work from a start to a crash, a failure, or the end of the input."""
        context = self._context
        name = f"{self._name}.{self._life}"
        cluster = context.cluster()
        reader = Reader(context.history, cluster, f"{name}-reader", committed=True)
        owner = self._owner(cluster, reader)
        try:
            # The workers of the middle stage take a new transactional id in each life.
            own_id = name if self._stage == 1 else self._name
            producer = context.transactor(cluster, name, own_id, self._number)
            await producer.init()
            while deadline is None or time.monotonic() < deadline:
                await owner.ready()
                self._read[self._name] = frozenset(reader.positions)
                found = await reader.poll(txn=f"{name}-{self._count + 1}")
                if found:
                    self._count += 1
                    producer.begin(f"{name}-{self._count}")
                    await self._process(producer, owner, reader, found)
                elif await self._is_drained(cluster, reader):
                    break
            await owner.leave()
        except _Crashed:
            await owner.crash()
            raise
        except (OperationFailed, KafkaError, BrokerUnreachable, TimeoutError):
            await self._fail(owner)
            raise
        finally:
            self._read.pop(self._name, None)
            await cluster.close()

    async def _fail(self, owner: Ownership) -> None:
        """Leave the group, or crash if that fails too.

        A classic member crashes always: its partitions are stuck no longer than its short session.
        """
        if self._protocol == "consumer":
            with suppress(KafkaError, BrokerUnreachable, TimeoutError):
                await owner.leave()
        await owner.crash()

    def _owner(self, cluster: Cluster, reader: Reader) -> Ownership:
        if self._protocol is not None:
            topic = self._context.topic(f"stage{self._stage}")
            return GroupOwnership(cluster, reader, self._group, topic, self._protocol)
        return FixedOwnership(self._context.history, cluster, reader, self._group, self._partitions)

    async def _process(
        self, producer: Transactor, owner: Ownership, reader: Reader, found: Sequence[ReadRecord]
    ) -> None:
        """Process the records in one transaction."""
        for at, group in _by_partition(found).items():
            records = [Sent(self._context.value(producer.proc), None, each.value) for each in group]
            await producer.send((self._target, at[1]), records)
            self._perhaps_crash()
        moved = {each.at: reader.positions[each.at] for each in found}
        await producer.send_offsets(owner.metadata, moved)
        self._perhaps_crash()
        commit = self._chance.random() >= _ABORTS
        await producer.end(commit=commit)
        if not commit:
            await owner.rewind()
        elif self._chance.random() < _LOOKS:
            at = self._chance.choice(list(moved))
            await committed_offset(
                self._context.history, producer.cluster, producer.proc, self._group, at
            )

    def _perhaps_crash(self) -> None:
        rare = self._stage == 1 or self._protocol is not None
        share = _RARE_CRASHES if rare else _CRASHES
        if not self._context.stopping.is_set() and self._chance.random() < share:
            raise _Crashed

    async def _is_drained(self, cluster: Cluster, reader: Reader) -> bool:
        if not self._before.is_set():
            return False
        # A group member may have no partitions: then other members have them all. But those of a
        # crashed member in the consumer protocol have no reader until its session has ended.
        everything = self._context.partitions(f"stage{self._stage}")
        if self._protocol is not None and not set(everything) <= set().union(*self._read.values()):
            return False
        limits = await ends(cluster, list(reader.positions))
        return all(reader.positions[at] >= each.high_watermark for at, each in limits.items())


def _by_partition(found: Sequence[ReadRecord]) -> dict[Partition, list[ReadRecord]]:
    groups: dict[Partition, list[ReadRecord]] = {}
    for each in found:
        groups.setdefault(each.at, []).append(each)
    return groups


async def _watch(context: Context) -> None:
    """Read committed offsets all the time, as a worker does that takes over."""
    cluster = context.cluster()
    chance = context.random("watcher")
    while not context.stopping.is_set():
        stage = chance.randrange(STAGES)
        at = chance.choice(context.partitions(f"stage{stage}"))
        try:
            group = context.topic(f"group{stage}")
            await committed_offset(context.history, cluster, "watcher", group, at)
        except OperationFailed:
            # The final state is read again at the end of the run.
            continue
        await context.pause(0.02)
