"""The measuring client, loads and windows of `benchmarks.limits`.

A round has three windows: calm, disturbed, calm. The ratio is the disturbed one over the mean of
its neighbours. The two calm windows differ by noise: a ratio below that shows nothing.
"""

import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any, NamedTuple

from benchmarks import raw
from tests.support.brokers.loop_hold import Held

READY_WITHIN_S = 60.0
EVERY_S = 0.002
SETTLE_SHARE = 0.2
"""Seconds to wait before a window, so that the cost of the change itself is not measured."""


class Window(NamedTuple):
    """The measurements of one window, in ms."""

    p99: float
    held: Held


class Felt(NamedTuple):
    """The effect of a disturbance on other clients, in ms; medians over the rounds."""

    calm_p99: float
    disturbed_p99: float
    ratio: float
    noise: float
    """The ratio of two calm windows of a round: the greater p99 over the smaller."""
    calm: Held
    disturbed: Held
    """The longest of all windows, not their median."""


class Load:
    """A load of `limits_loads` in its own process."""

    def __init__(self, name: str, port: int, count: int) -> None:
        self._name = name
        command = [sys.executable, "-m", "benchmarks.limits_loads", name, str(port), str(count)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            ready = selector.select(READY_WITHIN_S)
        if not ready or not self._process.stdout.readline():
            self.end()
            raise RuntimeError(f"the load {name} did not start")

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def check(self) -> None:
        """Raise if the load has ended: nothing was measured then."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the load {self._name} ended by itself")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Probe:
    """Sends one record at a time to its own topic, and asks the broker for its loop's delays."""

    def __init__(self, port: int, held: Callable[[], Held], topic: str = "probe") -> None:
        self._held = held
        self._client = raw.connect(port)
        self._request = raw.produce_request(topic, records=1, record_bytes=100)
        raw.acknowledged(self._client, self._request)

    def window(self, seconds: float) -> Window:
        """Measure requests for that many seconds."""
        self._held()
        p99 = self.p99_ms(seconds)
        return Window(p99, self._held())

    def p99_ms(self, seconds: float) -> float:
        """Return the 99th percentile of the latencies of that many seconds, in ms."""
        clock, taken = time.perf_counter, []
        due = clock()
        end = due + seconds
        while due < end:
            began = clock()
            self._client.exchange(self._request)
            taken.append(clock() - began)
            due = max(due + EVERY_S, clock())
            time.sleep(max(0.0, due - clock()))
        taken.sort()
        return taken[len(taken) * 99 // 100] * 1000


def alternating(
    probe: Probe, rounds: int, window_s: float, disturbed: Callable[[], AbstractContextManager[Any]]
) -> Felt:
    """Run rounds of a window without, with and without a disturbance."""
    windows = []
    for number in range(rounds * 3):
        with disturbed() if number % 3 == 1 else nullcontext():
            probe.p99_ms(window_s * SETTLE_SHARE)
            windows.append(probe.window(window_s))
    return felt(windows)


def felt(windows: list[Window]) -> Felt:
    """Return the effect, from windows in rounds of three."""
    before, during, after = windows[0::3], windows[1::3], windows[2::3]
    triples = [(b.p99, d.p99, a.p99) for b, d, a in zip(before, during, after, strict=True)]
    return Felt(
        median(window.p99 for window in before + after),
        median(window.p99 for window in during),
        median(2 * d / (b + a) for b, d, a in triples),
        median(max(b, a) / min(b, a) for b, _, a in triples),
        _held(before + after),
        _held(during),
    )


def _held(windows: list[Window]) -> Held:
    return Held(
        median(window.held.p99 for window in windows),
        max(window.held.longest for window in windows),
        max(window.held.longest_work for window in windows),
    )
