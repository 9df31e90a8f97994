"""A long load: what others feel of it, and what is left of it when leadership has gone."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from barnabas.coordinator.decision import Decision, Turn
from barnabas.coordinator.loading import SLICE_SECONDS
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.protocol.records.record import Record, build_batch
from tests.unit.coordinator.harness import FakeLog, Time

BATCHES, RECORDS = 60, 1_000


class Entry(NamedTuple):
    """Something that the garbage collector has to look at."""

    value: bytes


class Table:
    """The last value of each key."""

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        # As a group's state machine and what it lends to its parts.
        self.itself = self

    def decode(self, key: bytes, value: bytes | None) -> tuple[bytes, Entry]:
        return key, Entry(value or b"")

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        raise NotImplementedError

    def replay(self, record: tuple[bytes, Entry], producer_id: int) -> None:  # noqa: ARG002
        key, self.entries[key] = record

    def replay_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        raise NotImplementedError

    def loaded(self, _turn: Turn) -> Decision[None]:
        return Decision(None)


class TickingTime(Time):
    """Every look at the clock costs time, and how long the loop was held is noted."""

    TICK = SLICE_SECONDS / 50

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.held: list[float] = []
        self._since = 0.0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * self.TICK

    async def pause(self) -> None:
        self.held.append(self.looks * self.TICK - self._since)
        await super().pause()
        self._since = self.looks * self.TICK


def full_log() -> FakeLog:
    """Many more records than the collector leaves alone."""
    log = FakeLog()
    for batch in range(BATCHES):
        keys = [b"%d-%d" % (batch, number) for number in range(RECORDS)]
        log.append(build_batch([Record(at, 0, key, key) for at, key in enumerate(keys)]), 0)
    return log


async def loaded(time: Time) -> CoordinatorRuntime[Table]:
    runtime = CoordinatorRuntime(
        Table,
        clock=time,
        timers=time,
        write_timeout_ms=5000,
        load_buffer_bytes=1 << 20,
        report=lambda _, error: pytest.fail(str(error)),
    )
    runtime.elected(0, full_log())
    while runtime.loading:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return runtime


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generations that the garbage collector goes through; nothing stays frozen."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    # A broker that a test of this process could not start may have left it off.
    gc.enable()
    # With little that is old, the collector soon has reason to look at all of it.
    gc.freeze()
    gc.collect()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.unfreeze()


async def test_a_long_load_is_no_work_for_the_garbage_collector(collections: list[int]) -> None:
    runtime = await loaded(TickingTime())
    assert runtime.read(0, lambda table: len(table.entries)) == BATCHES * RECORDS
    assert 0 in collections
    assert 2 not in collections


async def test_a_load_leaves_the_loop_to_others_after_every_slice() -> None:
    time = TickingTime()
    await loaded(time)
    gc.unfreeze()
    assert len(time.held) > BATCHES * RECORDS / 100
    assert max(time.held) < SLICE_SECONDS + 3 * time.TICK


async def test_what_was_loaded_goes_with_the_leadership_though_it_was_frozen() -> None:
    runtime = await loaded(TickingTime())
    assert gc.get_freeze_count() > BATCHES * RECORDS / 2
    table = runtime.read(0, weakref.ref)
    assert table() is not None
    runtime.resigned(0)
    await asyncio.sleep(0)
    gc.collect()
    assert table() is None
