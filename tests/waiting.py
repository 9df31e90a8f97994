"""Waiting for what others bring about: for a condition, up to a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

T = TypeVar("T")

IN_TIME_S = 60.0


def until(see: Callable[[], T], told: Callable[[], object] = lambda: None) -> T:
    """What `see` returns once that is true; a failure shows what is `told` then."""
    give_up = time.monotonic() + IN_TIME_S
    while not (seen := see()):
        assert time.monotonic() < give_up, told()
        time.sleep(0.02)
    return seen


async def eventually(see: Callable[[], T | Awaitable[T]]) -> T:
    """As `until` for a test on the loop; `see` may have to be awaited."""
    async with asyncio.timeout(IN_TIME_S):
        while True:
            seen = see()
            if isawaitable(seen):
                seen = await seen
            if seen:
                return seen
            await asyncio.sleep(0.002)
