"""What a broker does now and then, each on its own interval and never two runs of one at once."""

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.broker.observability.logging import get_logger

_log = get_logger(__name__)


class Rounds:
    """Chores of the event loop; a chore that waits for the disk does so off the loop."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(
        self, name: str, interval_ms: Callable[[], int], chore: Callable[[], Awaitable[None]]
    ) -> None:
        """Run `chore` again and again. The interval is asked anew each time: it may be dynamic."""
        self._tasks.append(
            asyncio.get_running_loop().create_task(self._go_round(name, interval_ms, chore))
        )

    async def stop(self) -> None:
        """Begin nothing more, and wait until what runs has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _go_round(
        self, name: str, interval_ms: Callable[[], int], chore: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(max(_SHORTEST_MS, min(interval_ms(), _LONGEST_MS)) / 1000)
            try:
                await chore()
            except Exception as error:
                _log.error("chore failed", chore=name, exc_info=error)


_SHORTEST_MS = 1
"""An interval of 0 means as often as possible, and still lets everybody else work."""
_LONGEST_MS = 24 * 60 * 60 * 1000
"""Intervals above a day mean never; waking once a day to ask again costs nothing."""
