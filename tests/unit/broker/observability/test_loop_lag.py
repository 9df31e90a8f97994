"""The loop's lag."""

import asyncio
import time

from barnabas.broker.observability.loop_lag import LoopLag
from barnabas.metrics.registry import HistogramCell


class Signalling(HistogramCell):
    """Tells when something was observed."""

    def __init__(self) -> None:
        super().__init__((0.05, 10))
        self.observed = asyncio.Event()

    def observe(self, value: float) -> None:
        super().observe(value)
        self.observed.set()


async def test_a_blocked_loop_shows():
    loop, cell = asyncio.get_running_loop(), Signalling()
    lag = LoopLag(loop, cell)
    lag.start()
    loop.call_later(0.2, time.sleep, 0.15)

    await asyncio.wait_for(cell.observed.wait(), 5)
    lag.stop()

    assert cell.counts == [0, 1, 0]
    assert cell.sum >= 0.09
