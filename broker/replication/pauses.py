"""Partitions that are left alone for a while after an error, and for how long. Pure."""

import heapq
from itertools import count
from typing import Final

from barnabas.broker.replication.follower import Following

_FIRST: Final = 1 / 16
"""Of the longest pause: most errors are over as soon as the leader has heard that it leads."""


def length(failures: int, longest: float) -> float:
    """Seconds of the pause after so many failures in a row before: twice as long each time."""
    return min(longest, longest * _FIRST * 2.0 ** min(failures, 10))


class Pauses:
    """Who pauses until when; times are monotonic seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Following]] = []
        self._order = count()

    def add(self, following: Following, until: float) -> None:
        heapq.heappush(self._heap, (until, next(self._order), following))

    def over(self, now: float) -> list[Following]:
        """Those whose pause has ended, each told once."""
        ended = []
        while self._heap and self._heap[0][0] <= now:
            ended.append(heapq.heappop(self._heap)[2])
        return ended

    def left(self, now: float) -> float | None:
        """Seconds until the next pause ends; None where nobody pauses."""
        return max(0.0, self._heap[0][0] - now) if self._heap else None
