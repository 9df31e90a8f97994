"""How late the event loop is: what a request waits before anybody looks at it."""

import asyncio
from typing import Final

from barnabas.metrics.registry import HistogramCell

_INTERVAL_SECONDS: Final = 0.25


class LoopLag:
    """Sets a timer again and again, and observes in seconds how much too late it went off."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cell: HistogramCell) -> None:
        self._loop = loop
        self._cell = cell
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to sample."""
        due = self._loop.time() + _INTERVAL_SECONDS
        self._timer = self._loop.call_at(due, self._sample, due)

    def stop(self) -> None:
        """End sampling; the timer would keep the loop from being idle."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sample(self, due: float) -> None:
        self._cell.observe(max(0.0, self._loop.time() - due))
        self.start()
