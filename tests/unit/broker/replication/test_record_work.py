"""The long work on records: topics take turns at the codecs, and memory is bounded."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import pytest

from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.replication.leader.record_work import (
    LONG_CALL,
    CodecThread,
    Interrupted,
    RecordWork,
)
from barnabas.storage.log.record_steps import Memory, RecordSteps
from tests.support.held_offload import HeldOffload

T = TypeVar("T")


def work_of(limit: int = 100) -> RecordWork:
    return RecordWork(Slicer(lambda: 0.0), InlineOffload(), limit)


def run(
    work: RecordWork, steps: RecordSteps[T], is_wanted: Callable[[], bool] = lambda: True
) -> "asyncio.Future[T]":
    return work.slicer.run(work.carry_out("t", steps, is_wanted))


async def test_topic_with_many_calls_delays_another_by_one_call() -> None:
    offload = HeldOffload()
    codecs = CodecThread(offload, "codec", 100)
    served: list[str] = []
    for number in range(10):
        codecs.call("busy", lambda number=number: served.append(f"busy {number}"))
    codecs.call("other", lambda: served.append("other"))
    for _ in range(11):
        assert len(offload.waiting) == 1
        await offload.one()
    assert served == ["busy 0", "busy 1", "other", *(f"busy {n}" for n in range(2, 10))]


async def test_no_work_waits_for_the_long_calls_of_others_or_their_memory() -> None:
    offload = HeldOffload()
    work = RecordWork(Slicer(lambda: 0.0), offload, 100)

    def steps(size: int, call: int, calls: int) -> RecordSteps[None]:
        yield Memory(size, call)
        for _ in range(calls):
            yield lambda: None

    # Each of the long ones exceeds the memory alone, and the second waits for the first.
    long = [run(work, steps(500, LONG_CALL + 1, 1)) for _ in range(2)]
    short = [run(work, steps(25, LONG_CALL, 3)) for _ in range(2)]
    await asyncio.sleep(0)
    assert offload.queues == ["codec-long", "codec"]
    for _ in range(6):
        await offload.one("codec")
    await asyncio.gather(*short)
    assert offload.queues == ["codec-long"]
    for each in long:
        assert not each.done()
        await offload.one()
        await each


async def test_work_that_turns_out_to_be_long_keeps_its_memory_until_it_has_the_other() -> None:
    offload = HeldOffload()
    work = RecordWork(Slicer(lambda: 0.0), offload, 100)

    def searched(size: int) -> RecordSteps[None]:
        yield Memory(25)
        yield Memory(size, LONG_CALL + 1)
        yield lambda: None

    def appended(size: int) -> RecordSteps[None]:
        yield Memory(size)
        yield lambda: None

    first, second = run(work, searched(50)), run(work, searched(50))
    blocked = [run(work, appended(25)) for _ in range(2)]
    # The first has given back what it held for the second of them; the second search still holds.
    assert offload.queues == ["codec-long", "codec"]
    await offload.one("codec-long")
    await first
    assert offload.queues == ["codec", "codec-long"]
    while offload.waiting:
        await offload.one()
    await asyncio.gather(second, *blocked)


async def test_error_of_a_codec_is_raised_where_it_was_called() -> None:
    def steps() -> Generator[Any, Any, str]:
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            return "caught"
        return "nothing"

    assert await run(work_of(), steps()) == "caught"


async def test_work_waits_for_memory_before_it_takes_it() -> None:
    held: list[str] = []
    offload = HeldOffload()
    work = RecordWork(Slicer(lambda: 0.0), offload, 100)

    def steps(name: str, size: int) -> RecordSteps[None]:
        yield Memory(size)
        held.append(name)
        yield lambda: None
        held.remove(name)

    large, small = run(work, steps("large", 80)), run(work, steps("small", 30))
    await asyncio.sleep(0)
    assert held == ["large"]
    await offload.one()
    await large
    assert held == ["small"]
    await offload.one()
    await small


async def test_cancelled_work_gives_its_memory_back() -> None:
    offload = HeldOffload()
    work = RecordWork(Slicer(lambda: 0.0), offload, 100)
    closed: list[bool] = []

    def steps() -> RecordSteps[None]:
        try:
            yield Memory(100)
            yield lambda: None
        finally:
            closed.append(True)

    first, second = run(work, steps()), run(work, steps())
    third = run(work, steps())
    second.cancel()
    first.cancel()
    assert closed == [True, True]
    await offload.one()
    await offload.one()
    await third


async def test_two_long_records_that_wait_for_each_other_both_end() -> None:
    work = work_of(100)

    def steps() -> RecordSteps[int]:
        yield Memory(40)
        yield lambda: None
        yield Memory(90)
        yield lambda: None
        return 1

    assert await asyncio.gather(*[run(work, steps()) for _ in range(5)]) == [1] * 5


async def test_work_that_nobody_wants_any_more_is_interrupted() -> None:
    closed: list[bool] = []

    def steps() -> RecordSteps[None]:
        try:
            while True:
                yield None
        finally:
            closed.append(True)

    answers = iter((True, True, False))
    with pytest.raises(Interrupted):
        await run(work_of(), steps(), lambda: next(answers))
    assert closed == [True]
