"""A coordinator that moves between brokers during loads and writes, by seeds.

The runtime and its view of a partition are real; the coordinator's state machine only keeps
numbers.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from random import Random
from typing import Any

import pytest

from barnabas.broker.loop.clock import LoopTimers
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.replication.coordinator_log import LedPartition
from barnabas.coordinator.decision import Decision
from barnabas.coordinator.hosted_shard import Mode
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.soon import wait
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import iter_records
from tests.simulation.coordination.partitions import Replica, Replicated, Term
from tests.support.coordinator.numbers_host import Numbers
from tests.support.virtual_loop import VirtualLoop

SEEDS = int(os.environ.get("BARNABAS_HISTORIES", "40"))
PLACE, NODES = ("numbers", 0), (1, 2, 3)
MOVED = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")
WRITE_TIMEOUT_MS = 2000


class Node:
    """A broker with one coordinator, which learns of elections late, but in their order."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._epoch = -1
        self.replica: Replica | None = None
        self.runtime = CoordinatorRuntime(
            lambda *_: Numbers(),
            clock=world,
            timers=LoopTimers(),
            slices=Slicer(world.monotonic),
            write_timeout_ms=WRITE_TIMEOUT_MS,
            load_buffer_bytes=1000,
            report=lambda _, error: world.faults.append(error),
        )

    def told(self, node_id: int, term: Term) -> None:
        if term.epoch <= self._epoch:
            return
        self._epoch = term.epoch
        # As in a partition: a caller that waits for a commit is called before the observers.
        if self.replica is not None:
            self.replica.resign()
        self.replica = None
        if term.leader == node_id:
            self.replica = Replica(self._world.truth, term)
            log = LedPartition(self.replica, self._world)  # type: ignore[arg-type]
            self.runtime.elected(0, log)
        else:
            self.runtime.resigned(0)


class World:
    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._loop = loop
        self.rng = Random(seed)
        self.truth = Replicated(self, PLACE)  # type: ignore[arg-type]
        self.faults: list[BaseException] = []
        self.nodes = {each: Node(self) for each in NODES}
        self.told: Counter[str] = Counter()
        self.acknowledged: set[int] = set()

    # -- the platform ------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def latency(self) -> float:
        return self.rng.uniform(0.0005, 0.02)

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._loop.call_later(seconds, callback)

    def committed(self, _partition: Replicated) -> None:
        """Do nothing: this simulation audits at the end."""

    async def submit(self, _lane: str, work: Callable[[], Any]) -> Any:
        """Let reads take time: a load is long, and is often overtaken by an election."""
        await asyncio.sleep(self.latency())
        return work()

    # -- a run -----------------------------------------------------------------------------------

    async def run(self) -> "World":
        self._elect()
        numbers = iter(range(1000, 20_000))
        writers = [asyncio.create_task(self._write(numbers)) for _ in range(4)]
        for _ in range(60):
            await asyncio.sleep(self.rng.choice((0.002, 0.02, 0.2, 0.6)) * self.rng.random())
            draw = self.rng.random()
            if draw < 0.6:
                self._elect()
            else:
                self.truth.slow = draw < 0.75
            self._look()
        self.truth.slow = False
        for each in writers:
            each.cancel()
        await asyncio.sleep(10)
        self._look()
        assert not self.faults, self.faults
        leader = self.nodes[self.truth.leader]
        found = leader.runtime.read(0, lambda shard: list(shard.numbers))
        self._check(found == self._logged(), "it is not what is logged")
        self._check(len(set(found)) == len(found), "it is logged twice")
        assert not self.faults, self.faults
        assert self.told.keys() <= {"NONE", *MOVED, "COORDINATOR_NOT_AVAILABLE"}
        return self

    def _elect(self) -> None:
        term = self.truth.elect(self.rng.choice(NODES))
        for node_id, node in self.nodes.items():
            delay = self.rng.choice((0.0, 0.01, 0.3)) * self.rng.random()
            self.later(delay, partial(node.told, node_id, term))

    async def _write(self, numbers: Any) -> None:
        while True:
            number, node = next(numbers), self.nodes[self.rng.choice(NODES)]
            mode = self.rng.choice((Mode.EXCLUSIVE, Mode.PIPELINED))
            try:
                await wait(
                    node.runtime.write(0, "lane", lambda *_, it=number: Decision(None, [it]), mode)
                )
            except KafkaError as error:
                self.told[error.code.name] += 1
            else:
                self.told["NONE"] += 1
                self._check(number in self._logged(self.truth.committed), "it is not committed")
                self.acknowledged.add(number)
            self._look()
            await asyncio.sleep(self.latency())

    def _look(self) -> None:
        """Check that a broker that serves in the latest epoch serves all acknowledged numbers."""
        for node in self.nodes.values():
            try:
                shard = node.runtime.read(0, lambda shard: shard)
            except KafkaError:
                continue
            self._check(shard.served, "it is served before it is loaded")
            if node.replica is not None and node.replica.leader_epoch == self.truth.epoch:
                logged, served = self._logged(), shard.numbers
                self._check(served == logged[: len(served)], "it is not what is logged")
                self._check(self.acknowledged <= set(served), "it is served half-loaded")

    def _check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.faults.append(AssertionError(otherwise))

    def _logged(self, end: int | None = None) -> list[int]:
        found = (each for batch in self.truth.batches for each in numbers_in(batch))
        return [number for offset, number in found if end is None or offset < end]


@cache
def numbers_in(batch: bytes) -> list[tuple[int, int]]:
    """Return the numbers in a batch with their offsets."""
    records = iter_records(batch, 0, read_header(batch))
    return [(record.offset, int(record.value or b"")) for record in records]


def run(seed: int) -> World:
    loop = VirtualLoop(seed)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(World(loop, seed).run())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(2))
def test_serving_coordinator_has_all_acknowledged_records(block: int) -> None:
    """KAFKA-9307, 16030, 5600: loads that are overtaken by resignations and newer elections."""
    told: Counter[str] = Counter()
    for seed in range(block, SEEDS, 2):
        told += run(seed).told
    for code in ("NONE", *MOVED):
        assert told[code] > SEEDS, f"{code} is too rare: {told}"


def test_simulation_finds_a_coordinator_that_serves_while_it_loads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulation above finds a missing defence."""
    load = CoordinatorRuntime._load

    async def eager(runtime: CoordinatorRuntime[Any, Any], index: int, hosted: Any) -> None:
        hosted.serving = True
        await load(runtime, index, hosted)

    monkeypatch.setattr(CoordinatorRuntime, "_load", eager)
    with pytest.raises(AssertionError, match="before it is loaded"):
        run(0)


def test_simulation_finds_an_old_load_that_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would replay into a discarded state machine, and serve that one in place of the current
    one."""

    def forgetful(runtime: CoordinatorRuntime[Any, Any], index: int) -> None:
        runtime._loads.pop(index, None)

    monkeypatch.setattr(CoordinatorRuntime, "resigned", forgetful)
    with pytest.raises((AssertionError, KafkaError)):
        run(0)
