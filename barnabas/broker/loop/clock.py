"""The clock of a broker: wall time for records, monotonic time for timeouts; and its timers."""

import asyncio
import time
from collections.abc import Callable


class SystemClock:
    """The clock of this machine; a simulation has its own."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)


class LoopTimers:
    """The timers of the running event loop, in the interface of `coordinator.ports.Timers`."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `callback` once, after `seconds`; of virtual time if the loop's time is virtual."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def pause(self) -> None:
        """Let the event loop run every other task that is ready."""
        await asyncio.sleep(0)
