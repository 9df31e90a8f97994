"""Answers of handlers whose work is in steps: the steps, taken and counted without waiting."""

import asyncio
from collections.abc import Awaitable
from inspect import isawaitable
from itertools import count
from types import GeneratorType
from typing import Any

from barnabas.broker.server.slices import SLICE_S, Slicer
from barnabas.protocol.steps import Steps


class CountingSlicer(Slicer):
    """A slicer that counts the steps of work, and the turns of tasks: each item of their loops
    takes a whole slice."""

    def __init__(self) -> None:
        ticks = count()
        super().__init__(lambda: next(ticks) * 2 * SLICE_S)
        self.turns = 0

    def run(self, steps: Steps[Any]) -> Any:
        async def result() -> Any:
            answer, taken_steps = taken(steps)
            self.turns += taken_steps
            return answer

        return result()

    def turn(self) -> "asyncio.Future[None]":
        self.turns += 1
        turn = asyncio.get_running_loop().create_future()
        turn.set_result(None)
        return turn


async def counted_steps(answer: Any, slicer: CountingSlicer) -> tuple[Any, int]:
    """Return a handler's answer, and the steps of its generators and of its tasks' loops."""
    before, steps = slicer.turns, 0
    while True:
        answer, more = taken(answer)
        steps += more
        if not isawaitable(answer):
            return answer, steps + slicer.turns - before
        answer = await answer


def taken(answer: Any) -> tuple[Any, int]:
    """Return what a handler's generator returns, and the number of its steps."""
    steps = 0
    while isinstance(answer, GeneratorType):
        generator = answer
        try:
            while True:
                assert next(generator) is None
                steps += 1
        except StopIteration as stop:
            answer = stop.value
    return answer, steps


def all_taken(answer: Any) -> Any:
    """Return a handler's answer, or a future of it."""
    answer, _ = taken(answer)
    if isawaitable(answer) and not isinstance(answer, asyncio.Future):
        return asyncio.ensure_future(_later(answer))
    return answer


async def _later(waiting: Awaitable[Any]) -> Any:
    answer, _ = taken(await waiting)
    return answer
