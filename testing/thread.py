"""A thread with an event loop of its own: a blocking client of the test does not stop it."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
JOIN_TIMEOUT = 30.0
CLEAN_UP_TIMEOUT = 15.0
"""Seconds that work may take to end what it began, once its own time is over."""


class LoopThread:
    """Runs until it is closed; work comes from any other thread."""

    def __init__(self, name: str) -> None:
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name=name, daemon=True)
        self._thread.start()
        started.wait()

    def run(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        """What the work returns or raises; after `timeout` seconds it ends, with TimeoutError.

        It has ended then: what it began, it has undone.
        """
        future = asyncio.run_coroutine_threadsafe(_within(timeout, work), self._loop)
        try:
            return future.result(timeout + CLEAN_UP_TIMEOUT)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(JOIN_TIMEOUT)

    def _run(self, started: threading.Event) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self._loop = runner.get_loop()
            runner.run(self._wait(started))

    async def _wait(self, started: threading.Event) -> None:
        self._stop = asyncio.Event()
        started.set()
        await self._stop.wait()


async def _within(timeout: float, work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(timeout):
        return await work
