"""How long a broker's event loop was held, told to whoever sends SIGUSR1.

A timer goes off every 2 ms; how much later than that is what a request would have waited. The
resolution is that of the loop's timers, a millisecond. On a busy machine most of it is waiting for
a core, so the processor time of the loop's thread is told too: what the broker itself took.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

_EVERY_S = 0.002
_ANSWERED_WITHIN_S = 10.0
_FILE = "held"


class Held(NamedTuple):
    """Of the stretches in which nobody else had a turn; in ms."""

    p99: float
    longest: float
    longest_work: float
    """Processor time of the loop's own thread."""


class LoopHold:
    """The part inside the broker's process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._loop = asyncio.get_running_loop()
        self._stretches: list[float] = []
        self._longest_work = 0.0
        self._seen, self._worked = time.perf_counter(), time.thread_time()

    def start(self) -> None:
        """Begin to measure; every SIGUSR1 writes down what was since the last."""
        self._loop.add_signal_handler(signal.SIGUSR1, self._tell)
        self._loop.call_later(_EVERY_S, self._tick)

    def _tick(self) -> None:
        now, worked = time.perf_counter(), time.thread_time()
        self._stretches.append(max(0.0, now - self._seen - _EVERY_S))
        self._longest_work = max(self._longest_work, worked - self._worked)
        self._seen, self._worked = now, worked
        self._loop.call_later(_EVERY_S, self._tick)

    def _tell(self) -> None:
        stretches, self._stretches = sorted(self._stretches) or [0.0], []
        work, self._longest_work = self._longest_work, 0.0
        held = stretches[len(stretches) * 99 // 100], stretches[-1], work
        unfinished = self._path.with_suffix(".tmp")
        unfinished.write_text(" ".join(f"{seconds * 1000:.3f}" for seconds in held))
        unfinished.rename(self._path)


def held_since_last(pid: int, directory: Path) -> Held:
    """Asks the broker in another process; TimeoutError where it does not answer."""
    path = directory / _FILE
    path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    end = time.monotonic() + _ANSWERED_WITHIN_S
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError("the broker does not tell how long its loop was held")
        time.sleep(0.002)
    p99, longest, work = map(float, path.read_text().split())
    return Held(p99, longest, work)
