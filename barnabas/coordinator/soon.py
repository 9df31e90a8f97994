"""Answers that are available at once, or come as a future, and work in steps that waits for them.

A caller that cancels a future returned by one of these functions also cancels the work behind it.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import GeneratorType
from typing import Any, Final, TypeAlias, TypeVar, cast

from barnabas.protocol.steps import Steps

T = TypeVar("T")
R = TypeVar("R")
Soon: TypeAlias = T | asyncio.Future[T]
"""An answer, or a future of it if something must be committed first."""


def map_answer(answer: Soon[T], make: Callable[[T], R]) -> Soon[R]:
    """Return the result of `make` on the answer, at once if the answer is available."""
    if isinstance(answer, asyncio.Future):
        return chain(answer, make)
    return make(answer)


def chain(answer: asyncio.Future[T], make: Callable[[T], Soon[R]]) -> asyncio.Future[R]:
    """Return the result of `make` on the answer, where `make` may return a future too."""
    outer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
    behind: asyncio.Future[Any] = answer

    def passed_on(done: asyncio.Future[R]) -> None:
        if outer.done():
            if not done.cancelled():
                done.exception()
        elif done.cancelled():
            outer.cancel()
        elif (error := done.exception()) is not None:
            outer.set_exception(error)
        else:
            outer.set_result(done.result())

    def answered(done: asyncio.Future[T]) -> None:
        nonlocal behind
        if outer.done() or done.cancelled() or done.exception() is not None:
            passed_on(done)  # type: ignore[arg-type]
            return
        try:
            result = make(done.result())
        except Exception as fault:
            outer.set_exception(fault)
            return
        if isinstance(result, asyncio.Future):
            behind = result
            result.add_done_callback(passed_on)
        else:
            outer.set_result(result)

    def outer_done(done: asyncio.Future[R]) -> None:
        if done.cancelled():
            behind.cancel()

    answer.add_done_callback(answered)
    outer.add_done_callback(outer_done)
    return outer


def at_hand(answer: Soon[T]) -> T:
    """Return an answer of which its caller knows that it is available."""
    assert not isinstance(answer, asyncio.Future)
    return answer


def settle(answer: Soon[T] | Steps[Soon[T]]) -> Steps[T]:
    """Return the result of work in any form, after waiting for it."""
    result: Any = answer
    if isinstance(answer, GeneratorType):
        result = yield from answer
    if isinstance(result, asyncio.Future):
        result = yield result
    return cast(T, result)


async def wait(answer: Soon[T]) -> T:
    """Return the answer, after waiting for it if it is a future."""
    return await answer if isinstance(answer, asyncio.Future) else answer


_tasks: Final[set[asyncio.Future[Any]]] = set()
"""The tasks that run: the event loop itself holds them weakly."""


def in_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run a coroutine as a task, for a request: it runs to its end if the connection is closed."""
    task = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


def spawn(work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Run a coroutine as a task; the task is cancelled with the future that is returned."""
    return chain(asyncio.ensure_future(work), lambda outcome: outcome)


def ignore(answer: Soon[Any]) -> None:
    """Drop an answer, or its error, without a warning from asyncio."""
    if isinstance(answer, asyncio.Future):
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
