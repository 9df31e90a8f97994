"""W2: consume, transform, produce, three groups in a row; members crash and come back."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import Place
from barnabas.verify.wire.batches import Sent
from barnabas.verify.wire.inspection import committed_offset, ends
from barnabas.verify.wire.reader import Found, Reader
from barnabas.verify.wire.recorder import NotDone
from barnabas.verify.wire.transactor import Transactor
from barnabas.verify.workloads.ownership import Fixed, Joined, Ownership, subscribe
from barnabas.verify.workloads.producing import Producing, by_chance
from barnabas.verify.workloads.workload import Stage, Topic, read_on

STAGES: Final = 3
WORKERS: Final = 2
DRAIN_PATIENCE: Final = 60.0
_ABORTS: Final = 0.1
_CRASHES: Final = 0.04
_RARE_CRASHES: Final = 0.005
"""Where a crash holds up the group until its transaction or its session has timed out."""
_LOOKS: Final = 0.3
"""Share of transactions after which the committed offset is asked for."""


class Pipeline:
    """Producers, and three stages of workers who own their partitions."""

    topics: Sequence[Topic] = tuple(Topic(f"stage{number}") for number in range(STAGES + 1))
    stages: Sequence[Stage] = tuple(
        Stage(f"stage{number}", f"stage{number + 1}", f"group{number}") for number in range(STAGES)
    )

    joins = False
    """Whether workers are members of their groups."""

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        first = context.places("stage0")
        choose = by_chance(context, first, most=3)
        sources = [
            Producing(context, f"s{number}", f"s{number}", number, choose)
            for number in range(max(1, context.options.producers // 2))
        ]
        done = [asyncio.Event() for _ in range(STAGES + 1)]
        last = context.places(f"stage{STAGES}")
        return [
            partial(_all, [source.run for source in sources], done[0]),
            *(
                partial(_run_stage, context, number, done[number], done[number + 1], self.joins)
                for number in range(STAGES)
            ),
            partial(_watch, context),
            partial(read_on, context, "committed", last, committed=True),
        ]

    async def finish(self, context: Context) -> None:
        """Nothing remains to be done: the stages have drained."""


class Members(Pipeline):
    """The same with groups whose members join, leave and crash."""

    joins = True

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        topic = context.topic(f"stage{STAGES}")
        subscribers = [partial(subscribe, context, f"subscriber{each}", topic) for each in range(2)]
        return [*super().parts(context), *subscribers]


async def _all(parts: Sequence[Callable[[], Awaitable[None]]], done: asyncio.Event) -> None:
    await asyncio.gather(*(part() for part in parts))
    done.set()


async def _run_stage(
    context: Context, number: int, before: asyncio.Event, done: asyncio.Event, joins: bool
) -> None:
    places = context.places(f"stage{number}")
    workers = [
        _Worker(context, number, index, places[index::WORKERS], before, joins)
        for index in range(WORKERS)
    ]
    await _all([worker.run for worker in workers], done)


class _Crashed(Exception):
    """The worker is gone, in the middle of what it did."""


class _Worker:
    """Owns some partitions of a stage, over as many lives as it takes."""

    def __init__(
        self,
        context: Context,
        stage: int,
        index: int,
        places: Sequence[Place],
        before: asyncio.Event,
        joins: bool,
    ) -> None:
        self._joins = joins
        self._context = context
        self._stage = stage
        self._name = f"p{stage}{index}"
        self._number = stage + index
        self._places = places
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
                    self._context.problem(f"{self._name} did not come to the end")
                    return
            self._life += 1
            try:
                await self._live(deadline)
                return
            except _Crashed:
                continue
            except (NotDone, KafkaError, BrokerUnreachable, TimeoutError):
                await self._context.wait(0.05)

    async def _live(self, deadline: float | None) -> None:
        """From a start to a crash, a failure, or the end of the input."""
        context = self._context
        name = f"{self._name}.{self._life}"
        cluster = context.cluster()
        reader = Reader(context.history, cluster, f"{name}-reader", committed=True)
        owner = self._owner(cluster, reader)
        try:
            # The middle stage is one whose workers take a new id each time.
            own_id = name if self._stage == 1 else self._name
            producer = context.transactor(cluster, name, own_id, self._number)
            await producer.init()
            while deadline is None or time.monotonic() < deadline:
                await owner.ready()
                found = await reader.poll(txn=f"{name}-{self._count + 1}")
                if found:
                    self._count += 1
                    producer.begin(f"{name}-{self._count}")
                    await self._process(producer, owner, reader, found)
                elif await self._is_drained(cluster, reader):
                    break
            await owner.leave()
        finally:
            await cluster.close()

    def _owner(self, cluster: Cluster, reader: Reader) -> Ownership:
        if self._joins:
            topic = self._context.topic(f"stage{self._stage}")
            return Joined(cluster, reader, self._group, topic)
        return Fixed(self._context.history, cluster, reader, self._group, self._places)

    async def _process(
        self, producer: Transactor, owner: Ownership, reader: Reader, found: Sequence[Found]
    ) -> None:
        """One transaction: what was found, made into something else."""
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
        share = _RARE_CRASHES if self._stage == 1 or self._joins else _CRASHES
        if not self._context.stopping.is_set() and self._chance.random() < share:
            raise _Crashed

    async def _is_drained(self, cluster: Cluster, reader: Reader) -> bool:
        if not self._before.is_set():
            return False
        # As a member it may have none: then the others have all.
        limits = await ends(cluster, list(reader.positions))
        return all(reader.positions[at] >= each.high_watermark for at, each in limits.items())


def _by_partition(found: Sequence[Found]) -> dict[Place, list[Found]]:
    groups: dict[Place, list[Found]] = {}
    for each in found:
        groups.setdefault(each.at, []).append(each)
    return groups


async def _watch(context: Context) -> None:
    """Asks for committed offsets all the time, as somebody would who takes over."""
    cluster = context.cluster()
    chance = context.random("watcher")
    while not context.stopping.is_set():
        stage = chance.randrange(STAGES)
        at = chance.choice(context.places(f"stage{stage}"))
        try:
            group = context.topic(f"group{stage}")
            await committed_offset(context.history, cluster, "watcher", group, at)
        except NotDone:
            # Told again when the run ends.
            continue
        await context.pause(0.02)
