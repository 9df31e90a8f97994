"""Periodic tasks, each with its own interval, and never two runs of one task at once."""

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.broker.observability.logging import get_logger

_log = get_logger(__name__)


class PeriodicTasks:
    """The periodic tasks of the event loop. A task runs disk operations outside the loop."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(
        self, name: str, interval_ms: Callable[[], int], task: Callable[[], Awaitable[None]]
    ) -> None:
        """Repeat `task`. The interval is read before each run, because it may be a dynamic key."""
        self._tasks.append(
            asyncio.get_running_loop().create_task(self._repeat(name, interval_ms, task))
        )

    async def stop(self) -> None:
        """Start no more runs, and wait for the end of the current ones."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _repeat(
        self, name: str, interval_ms: Callable[[], int], task: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(max(_SHORTEST_MS, min(interval_ms(), _LONGEST_MS)) / 1000)
            try:
                await task()
            except Exception as error:
                _log.error("periodic task failed", task=name, exc_info=error)


_SHORTEST_MS = 1
"""An interval of 0 means as often as possible, while other tasks still run."""
_LONGEST_MS = 24 * 60 * 60 * 1000
"""An interval above a day means never; the daily check whether it changed costs nothing."""
