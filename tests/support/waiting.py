"""Functions that wait for a condition, up to a deadline."""

import asyncio
import threading
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


def call_within(seconds: float, call: Callable[[], None]) -> None:
    """Make a call of a library in C that may never return; raise TimeoutError after `seconds`.

    A time-out of pytest cannot end such a call: the handler of its signal would run afterwards.
    """
    raised: list[Exception] = []

    def carry_out() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    calling = threading.Thread(target=carry_out, daemon=True)
    calling.start()
    calling.join(seconds)
    if calling.is_alive():
        raise TimeoutError(f"not after {seconds} s")
    for error in raised:
        raise error
