"""The event loop as coordinators know it."""

import asyncio
from collections.abc import Callable


class LoopTimers:
    """`coordinator.ports.Timers` on the running loop, so on virtual time where that is virtual."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def pause(self) -> None:
        await asyncio.sleep(0)
