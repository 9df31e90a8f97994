"""A long load: its effect on other tasks, and its memory after a resignation."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from barnabas.broker.loop.slices import Slicer
from barnabas.coordinator.decision import Decision, Instant
from barnabas.coordinator.loading import SLICE_SECONDS
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.protocol.records.record import Record, build_batch
from tests.support.coordinator.harness import FakeLog, Time

BATCHES, RECORDS = 60, 1_000


class Entry(NamedTuple):
    """An object that the garbage collector tracks."""

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

    def replay_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> Any:
        raise NotImplementedError

    @property
    def state(self) -> "Table":
        return self

    def loaded(self, _now: Instant) -> Decision[Any, None]:
        return Decision(None)


class TickingTime(Time):
    """A clock that advances with every read, and notes for how long the loop was held."""

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
    """Return a log with many more objects than the collector's youngest generation holds."""
    log = FakeLog()
    for batch in range(BATCHES):
        keys = [b"%d-%d" % (batch, number) for number in range(RECORDS)]
        log.append(build_batch([Record(at, 0, key, key) for at, key in enumerate(keys)]), 0)
    return log


async def loaded(time: Time) -> CoordinatorRuntime[Table, Any]:
    runtime = CoordinatorRuntime(
        lambda *_: Table(),
        clock=time,
        timers=time,
        slices=Slicer(time.monotonic),
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
    """Record the generations that the garbage collector goes through; nothing stays frozen."""
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


async def test_long_load_triggers_no_full_garbage_collection(collections: list[int]) -> None:
    runtime = await loaded(TickingTime())
    assert runtime.read(0, lambda table: len(table.entries)) == BATCHES * RECORDS
    assert 0 in collections
    assert 2 not in collections


async def test_load_yields_event_loop_after_every_slice() -> None:
    time = TickingTime()
    await loaded(time)
    gc.unfreeze()
    assert len(time.held) > BATCHES * RECORDS / 100
    assert max(time.held) < SLICE_SECONDS + 4 * time.TICK


async def test_frozen_objects_of_load_are_freed_after_resignation() -> None:
    runtime = await loaded(TickingTime())
    assert gc.get_freeze_count() > BATCHES * RECORDS / 2
    table = runtime.read(0, weakref.ref)
    assert table() is not None
    runtime.resigned(0)
    await asyncio.sleep(0)
    gc.collect()
    assert table() is None
