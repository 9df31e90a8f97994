"""The longest time for which a broker's event loop was blocked, written to a file on SIGUSR1.

A timer fires every 2 ms; its delay is the time that a request would have waited. The resolution is
that of the loop's timers, one millisecond. On a busy machine most of the delay is waiting for a
core, so the CPU time of the loop's thread is written too: the broker's own share.
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
    """The longest times in which the loop ran no other callback, in ms."""

    p99: float
    longest: float
    longest_work: float
    """CPU time of the loop's own thread."""


class LoopHold:
    """The measurement inside the broker's process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._loop = asyncio.get_running_loop()
        self._stretches: list[float] = []
        self._longest_work = 0.0
        self._seen, self._worked = time.perf_counter(), time.thread_time()

    def start(self) -> None:
        """Start measuring; every SIGUSR1 writes the figures since the previous one."""
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
    """Ask the broker in another process. Raises TimeoutError if it does not answer."""
    path = directory / _FILE
    path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    end = time.monotonic() + _ANSWERED_WITHIN_S
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError("the broker does not report how long its loop was blocked")
        time.sleep(0.002)
    p99, longest, work = map(float, path.read_text().split())
    return Held(p99, longest, work)
