"""Answers of handlers whose work is in steps: the steps, taken and counted without a slicer."""

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from itertools import count
from types import GeneratorType
from typing import Any

from barnabas.broker.loop.slices import SLICE_S, Slicer
from barnabas.protocol.steps import Future, Steps


class CountingSlicer(Slicer):
    """A slicer that counts the steps of work, and the turns of tasks: each item of their loops
    takes a whole slice."""

    def __init__(self) -> None:
        ticks = count()
        super().__init__(lambda: next(ticks) * 2 * SLICE_S)
        self.turns = 0

    def run(self, steps: Steps[Any], waits: Callable[[Future], None] | None = None) -> Any:
        assert waits is None, "no dispatcher"

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
    """Return a handler's answer, and the steps of its generator and of its tasks' loops."""
    walk = _Walk(answer)
    before = slicer.turns
    answer = await walk.to_the_end()
    return answer, walk.steps + slicer.turns - before


def taken(answer: Any) -> tuple[Any, int]:
    """Return what a handler's generator returns, and the number of its steps.

    If the generator waits, return a future of its answer, and the steps before that.
    """
    walk = _Walk(answer)
    return walk.on(), walk.steps


def all_taken(answer: Any) -> Any:
    """Return a handler's answer, or a future of it."""
    return _Walk(answer).on()


class _Walk:
    """A walk through the steps of a handler."""

    def __init__(self, answer: Any) -> None:
        self.steps = 0
        self._answer = answer
        self._step = partial(next, answer) if isinstance(answer, GeneratorType) else None
        self._awaited: Any = None

    def on(self) -> Any:
        """Take the steps up to the answer; return a task for the rest if they wait."""
        if self._ends():
            return self._answer
        return asyncio.ensure_future(self.to_the_end())

    async def to_the_end(self) -> Any:
        try:
            while self._awaited is not None or not self._ends():
                awaited, self._awaited = self._awaited, None
                try:
                    self._step = partial(self._answer.send, await awaited)
                except Exception as error:
                    self._step = partial(self._answer.throw, error)
        except asyncio.CancelledError:
            self._answer.close()
            raise
        return await self._answer if isawaitable(self._answer) else self._answer

    def _ends(self) -> bool:
        """Take steps up to the answer, or to a future for which they wait."""
        try:
            while self._step is not None:
                self._awaited = self._step()
                if self._awaited is not None:
                    return False
                self.steps += 1
                self._step = partial(next, self._answer)
        except StopIteration as stop:
            self._answer, self._step = stop.value, None
        return True
