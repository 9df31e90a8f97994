"""Functions that wait for a condition, up to a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

T = TypeVar("T")

IN_TIME_S = 60.0


def until(
    see: Callable[[], T],
    told: Callable[[], object] = lambda: None,
    *,
    within_s: float = IN_TIME_S,
) -> T:
    """Return the first true result of `see`; a failure shows the result of `told`."""
    give_up = time.monotonic() + within_s
    while not (seen := see()):
        assert time.monotonic() < give_up, told()
        time.sleep(0.02)
    return seen


async def eventually(see: Callable[[], T | Awaitable[T]]) -> T:
    """Wait as `until` does in a coroutine; the result of `see` may be awaitable."""
    async with asyncio.timeout(IN_TIME_S):
        while True:
            seen = see()
            if isawaitable(seen):
                seen = await seen
            if seen:
                return seen
            await asyncio.sleep(0.002)
