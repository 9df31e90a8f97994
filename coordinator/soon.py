"""Answers that are mostly at hand, and sometimes have to be committed or waited for first.

Whoever loses interest cancels the future it holds, and with that all that only it waited for.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Soon: TypeAlias = T | asyncio.Future[T]
"""An answer, or where something has to be committed first, a future of it."""


def then(answer: "Soon[T]", make: Callable[[T], R]) -> "Soon[R]":
    """`make` of the answer, at once where it is there."""
    if isinstance(answer, asyncio.Future):
        return _after(answer, make)
    return make(answer)


async def settled(answer: "Soon[T]") -> T:
    """The answer, waited for where it is not there yet."""
    return await answer if isinstance(answer, asyncio.Future) else answer


def promised(work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
    """Carry work on as a task, for as long as somebody wants its outcome."""
    return _after(asyncio.ensure_future(work), lambda outcome: outcome)


def unheeded(answer: "Soon[Any]") -> None:
    """Let an answer go that nobody waits for, whatever it is."""
    if isinstance(answer, asyncio.Future):
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())


def _after(inner: "asyncio.Future[T]", make: Callable[[T], R]) -> "asyncio.Future[R]":
    outer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def arrived(done: "asyncio.Future[T]") -> None:
        if outer.done():
            if not done.cancelled():
                done.exception()
        elif done.cancelled():
            outer.cancel()
        elif (error := done.exception()) is not None:
            outer.set_exception(error)
        else:
            try:
                outer.set_result(make(done.result()))
            except Exception as fault:
                outer.set_exception(fault)

    def abandoned(done: "asyncio.Future[R]") -> None:
        if done.cancelled():
            inner.cancel()

    inner.add_done_callback(arrived)
    outer.add_done_callback(abandoned)
    return outer
