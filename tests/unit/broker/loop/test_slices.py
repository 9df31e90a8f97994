"""The slicer: long work leaves the event loop to other work after each slice."""

import asyncio
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.loop.slices import QUEUED_S, SLICE_S, TURN_S, Slicer
from barnabas.protocol.steps import Steps

STEP_S = 1 / 8192
"""Sums of it are exact."""


class Rig:
    """A slicer whose clock advances with each step of its work."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slicer = Slicer(lambda: self.time)
        self.taken: list[Any] = []
        """The names of works, one for each step."""
        self.closed: list[Any] = []

    def work(self, name: Any, steps: int, seconds: float = STEP_S) -> Steps[Any]:
        try:
            for _ in range(steps):
                self.taken.append(name)
                self.time += seconds
                yield None
        except GeneratorExit:
            self.closed.append(name)
            raise
        return name


async def test_short_work_is_done_at_once() -> None:
    rig = Rig()
    assert rig.slicer.run(rig.work("a", 2)).result() == "a"


async def test_error_of_work_is_the_error_of_its_future() -> None:
    def work() -> Steps[None]:
        yield None
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await Rig().slicer.run(work())


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=12))
def test_no_iteration_is_longer_than_two_turns(arrivals: list[tuple[int, int]]) -> None:
    """Each arrival is an iteration of the loop, and a number of steps."""

    async def scenario() -> None:
        rig, works = Rig(), []
        for iteration in range(6):
            before = rig.time
            for name, (when, steps) in enumerate(arrivals):
                if when == iteration:
                    works.append((name, rig.slicer.run(rig.work(name, steps))))
            await asyncio.sleep(0)
            assert rig.time - before <= 2 * (TURN_S + STEP_S)
        while not all(work.done() for _, work in works):
            before = rig.time
            await asyncio.sleep(0)
            assert rig.time - before <= TURN_S + STEP_S
        for name, work in works:
            assert work.result() == name
            assert rig.taken.count(name) == arrivals[name][1]

    asyncio.run(scenario())


async def test_queued_works_take_turns() -> None:
    rig = Rig()
    works = [rig.slicer.run(rig.work(name, 100)) for name in range(3)]
    del rig.taken[:]
    await asyncio.gather(*works)
    slice_steps = ceil(QUEUED_S / STEP_S)
    assert rig.taken[: 3 * slice_steps] == [name for name in range(3) for _ in range(slice_steps)]
    assert all(rig.taken[:120].count(name) >= 35 for name in range(3))


async def test_short_work_does_not_wait_for_long_work_that_came_before() -> None:
    rig = Rig()
    long = [rig.slicer.run(rig.work("long", 1000)) for _ in range(20)]
    await asyncio.sleep(0)
    assert rig.slicer.run(rig.work("short", 2)).result() == "short"
    await asyncio.gather(*long)


async def test_new_works_share_the_time_of_an_iteration() -> None:
    rig = Rig()
    works = [rig.slicer.run(rig.work(name, 8)) for name in range(10)]
    assert rig.time <= TURN_S + STEP_S
    assert [work.done() for work in works[:4]] == [True] * 4
    assert not any(work.done() for work in works[6:])
    await asyncio.gather(*works)


async def test_new_work_gets_one_slice_at_once() -> None:
    rig = Rig()
    work = rig.slicer.run(rig.work("a", 100))
    assert rig.time <= SLICE_S + STEP_S
    await work


async def test_resumed_work_gets_one_slice_at_once() -> None:
    rig = Rig()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def work() -> Steps[None]:
        yield future
        yield from rig.work("a", 100)

    running = rig.slicer.run(work())
    future.set_result(None)
    await asyncio.sleep(0)
    assert 0 < rig.time <= SLICE_S + STEP_S
    await running


@pytest.mark.parametrize("others_s", [0.0, QUEUED_S / 2, 3 * QUEUED_S, 2 * TURN_S])
async def test_queued_work_gets_as_much_time_as_all_else_took(others_s: float) -> None:
    rig = Rig()
    work = rig.slicer.run(rig.work("a", 1000))
    for _ in range(3):
        # The rest of an iteration of the loop, before the turn.
        rig.time += others_s
        before = rig.time
        await asyncio.sleep(0)
        fair = min(TURN_S, max(QUEUED_S, others_s))
        assert fair <= rig.time - before <= fair + STEP_S
    await work


async def test_cancelled_work_is_closed_and_takes_no_more_steps() -> None:
    rig = Rig()
    work, other = rig.slicer.run(rig.work("a", 100)), rig.slicer.run(rig.work("b", 100))
    work.cancel()
    assert rig.closed == ["a"]
    del rig.taken[:]
    await other
    assert "a" not in rig.taken


async def test_work_that_cancels_itself_is_closed_after_its_step() -> None:
    rig, closed = Rig(), []
    futures: list[asyncio.Future[Any]] = []

    def work() -> Steps[None]:
        try:
            for _ in range(100):
                rig.time += STEP_S
                yield None
                if futures:
                    futures[0].cancel()
        except GeneratorExit:
            closed.append(True)
            raise

    futures.append(rig.slicer.run(work()))
    with pytest.raises(asyncio.CancelledError):
        await futures[0]
    await rig.slicer.run(rig.work("later", 1))
    assert closed


async def test_work_waits_for_a_future_it_yields() -> None:
    rig = Rig()
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def work() -> Steps[str]:
        return (yield future)

    running = rig.slicer.run(work())
    await rig.slicer.run(rig.work("others run meanwhile", 50))
    assert not running.done()
    future.set_result("awaited")
    assert await running == "awaited"


async def test_error_of_an_awaited_future_is_raised_in_the_work() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def work() -> Steps[str]:
        try:
            return (yield future)
        except OSError as error:
            return str(error)

    running = Rig().slicer.run(work())
    future.set_exception(OSError("disk"))
    assert await running == "disk"


async def test_cancelled_task_closes_the_work_it_awaits() -> None:
    rig = Rig()

    async def handle() -> Any:
        return await rig.slicer.run(rig.work("a", 1000))

    task = asyncio.ensure_future(handle())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.closed == ["a"]


async def test_loop_of_a_task_makes_room_after_each_slice() -> None:
    rig = Rig()

    async def loop(name: str) -> None:
        async for _ in rig.slicer.each(range(4)):
            rig.taken.append(name)
            rig.time += SLICE_S / 2

    await asyncio.gather(loop("a"), loop("b"))
    assert rig.taken == ["a", "a", "b", "b", "a", "a", "b", "b"]


async def test_loops_of_many_tasks_share_the_time_of_an_iteration() -> None:
    rig = Rig()
    seen: list[int] = []

    async def loop() -> None:
        async for _ in rig.slicer.each(range(3)):
            rig.taken.append(None)
            rig.time += SLICE_S

    tasks = [asyncio.create_task(loop()) for _ in range(100)]
    await asyncio.sleep(0)
    while not all(task.done() for task in tasks):
        before = len(rig.taken)
        await asyncio.sleep(0)
        seen.append(len(rig.taken) - before)
    # A task may begin the iteration before its turn is counted.
    assert max(seen) <= TURN_S / SLICE_S
    assert len(rig.taken) == 300


async def test_short_loop_of_a_task_waits_for_nothing() -> None:
    rig = Rig()
    coroutine = rig.slicer.each(range(1)).__anext__()
    with pytest.raises(StopIteration):
        coroutine.send(None)
