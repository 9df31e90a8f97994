"""The garbage collector of a broker: full collections wait until long work is done."""

import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.broker.loop import collector as collector_module
from barnabas.broker.loop.collector import Collector


class Work:
    """Stands for the slicer."""

    def __init__(self) -> None:
        self.idle_s = 10.0
        self.now = self.cpu_s = 0.0
        self.collection_s = 0.0
        """The time that passes between two looks at the clock."""

    def monotonic(self) -> float:
        self.now += self.collection_s
        return self.now


class Node:
    """A piece of garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


class Rig:
    def __init__(self) -> None:
        self.work: Any = Work()
        self.collector = Collector(self.work, lambda: self.work.cpu_s)

    def look(self) -> None:
        """Look, after so much garbage as lets CPython begin a full collection."""
        for _ in range(11):
            gc.collect(1)
        self.collector.look()


def garbage() -> weakref.ref[Node]:
    node = Node()
    # In the oldest generation.
    gc.collect(1)
    return weakref.ref(node)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    thresholds, rig = gc.get_threshold(), Rig()
    # Not what other tests have left: each look would take longer, by half a second.
    gc.collect()
    gc.freeze()
    rig.collector.start()
    yield rig
    rig.collector.stop()
    gc.set_threshold(*thresholds)


async def test_garbage_is_collected_in_a_quiet_moment(rig: Rig) -> None:
    left = garbage()
    rig.work.idle_s = 0.0
    rig.look()
    assert left() is not None
    rig.work.idle_s = 1.0
    rig.look()
    assert left() is None


async def test_many_short_requests_are_no_quiet_moment(rig: Rig) -> None:
    left = garbage()
    for _ in range(3):
        rig.work.now += 1.0
        rig.work.cpu_s += 0.3
        rig.look()
        assert left() is not None
    rig.work.now += 1.0
    rig.work.cpu_s += 0.1
    rig.look()
    assert left() is None


async def test_cpython_begins_no_full_collection_by_itself(rig: Rig) -> None:
    full = gc.get_stats()[2]["collections"]
    kept = [[] for _ in range(200_000)]
    assert gc.get_stats()[2]["collections"] == full
    assert len(kept) == 200_000
    assert rig.collector


async def test_little_garbage_is_left_alone(rig: Rig) -> None:
    left = garbage()
    rig.collector.look()
    assert left() is not None


async def test_collection_waits_half_a_minute_if_memory_grows(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "_GROWN", 10_000)
    left = garbage()
    rig.work.idle_s = 0.0
    rig.look()
    rig.work.now += 31
    rig.look()
    assert left() is not None
    kept = [[] for _ in range(20_000)]
    rig.look()
    assert left() is None
    assert kept


async def test_objects_that_make_a_collection_long_are_frozen(rig: Rig) -> None:
    before = gc.get_freeze_count()
    kept = [[] for _ in range(1_000)]
    rig.look()
    assert gc.get_freeze_count() <= before
    rig.work.collection_s = 1.0
    rig.look()
    assert gc.get_freeze_count() > before
    assert kept


async def test_garbage_among_frozen_objects_is_collected_when_they_are_twice_as_many(
    rig: Rig,
) -> None:
    rig.work.collection_s = 1.0
    node = Node()
    left = weakref.ref(node)
    rig.look()
    del node
    rig.look()
    assert left() is not None
    kept = [[] for _ in range(gc.get_freeze_count() + 1_000)]
    rig.look()
    rig.work.idle_s = 0.6
    rig.look()
    assert left() is not None
    rig.work.idle_s = 1.0
    rig.look()
    assert left() is None
    assert kept


async def test_many_objects_without_cycles_are_frozen_and_cause_no_collection_of_everything(
    rig: Rig,
) -> None:
    before = gc.get_freeze_count()
    objects = max(before, collector_module._MANY) + 1_000
    kept = [[] for _ in range(objects)]
    rig.collector.note(collector_module._MANY - 1)
    assert gc.get_freeze_count() <= before
    rig.collector.note(objects - collector_module._MANY + 1)
    assert gc.get_freeze_count() > 2 * before
    node = Node()
    left = weakref.ref(node)
    rig.work.collection_s = 1.0
    rig.look()
    del node
    rig.look()
    rig.work.idle_s = 1.0
    rig.look()
    assert left() is not None
    assert kept


async def test_frozen_objects_that_were_freed_cause_no_collection_of_everything(rig: Rig) -> None:
    rig.work.collection_s = 1.0
    node = Node()
    left = weakref.ref(node)
    kept = [[] for _ in range(2 * gc.get_freeze_count() + 1_000)]
    rig.work.idle_s = 0.6
    rig.look()
    del node, kept
    rig.work.idle_s = 1.0
    rig.look()
    assert left() is not None


async def test_frozen_objects_are_counted_when_they_may_be_twice_as_many(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To count those of 10,000 partitions holds the event loop for 60 ms."""
    counts = []
    count = gc.get_freeze_count

    def counted() -> int:
        counts.append(count())
        return counts[-1]

    monkeypatch.setattr(gc, "get_freeze_count", counted)
    rig.work.collection_s = 1.0
    for _ in range(5):
        rig.look()
    assert len(counts) == 1
    kept = [[] for _ in range(counts[0] + 1_000)]
    rig.look()
    rig.look()
    # Once to see that they are so many, once after the collection of everything.
    assert len(counts) == 3
    assert kept
