"""The clock of the house: wall time for records, monotonic time for waits."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the broker reads time; the simulation lends its own."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as records and metadata carry them."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring and waiting."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
