"""The lag of the event loop."""

import asyncio
import time

from barnabas.broker.gauges import LoopLag
from barnabas.metrics.registry import HistogramCell


class SignallingCell(HistogramCell):
    """A cell that sets an event when a value is observed."""

    def __init__(self) -> None:
        super().__init__((0.05, 10))
        self.observed = asyncio.Event()

    def observe(self, value: float) -> None:
        super().observe(value)
        self.observed.set()


async def test_blocked_loop_shows_as_lag():
    loop, cell = asyncio.get_running_loop(), SignallingCell()
    lag = LoopLag(loop, cell)
    lag.start()
    loop.call_later(0.2, time.sleep, 0.15)

    await asyncio.wait_for(cell.observed.wait(), 5)
    lag.stop()

    assert cell.counts == [0, 1, 0]
    assert cell.sum >= 0.09
