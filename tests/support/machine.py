"""Bounds of CPU time, which depend on how quick a core is at the moment."""

import time
from typing import Final

_STEPS: Final = 100_000
_USUAL_S: Final = 0.003
"""The CPU time of the loop below on the machine where the bounds were set."""


def bound(seconds: float) -> float:
    """Return what a bound of CPU time is on this core now: never less, and more on a slow one."""
    began, total = time.thread_time(), 0
    for each in range(_STEPS):
        total += each
    return seconds * max(1.0, (time.thread_time() - began) / _USUAL_S)
