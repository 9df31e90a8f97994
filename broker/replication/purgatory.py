"""Those who wait for an offset: answers to acks=all, coordinators, flush-before-acknowledge; and
those who wait for a partition to change: readers and followers."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Protocol

from barnabas.protocol.errors import KafkaError

Waiter = Callable[[KafkaError | None], None]
"""Called once: with None when the offset was reached, with the error that ended the wait."""


class Reader(Protocol):
    """A consumer's parked Fetch."""

    def woken(self) -> None:
        """Something of a partition it reads has changed."""
        ...


class Tail(Protocol):
    """A follower that has read a partition to its end."""

    def grown(self) -> None:
        """There is more, or another leader; told once, then the tail must be put back."""
        ...

    def committed(self) -> None:
        """The high watermark or the log's start has moved: worth an answer, but not its own."""
        ...


class OffsetWaiters:
    """Callbacks ordered by the offset they wait for; woken by progress, never by polling."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiter]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, waiter: Waiter) -> None:
        """Call `waiter` once `offset` is reached; waiters of one offset are called in order."""
        heapq.heappush(self._heap, (offset, next(self._order), waiter))

    def reached(self, offset: int) -> None:
        """Wake everybody who waits for `offset` or less."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            heapq.heappop(heap)[2](None)

    def fail(self, error: KafkaError) -> None:
        """Wake everybody with `error`: leadership or the log is gone."""
        waiting, self._heap = self._heap, []
        for _, _, waiter in sorted(waiting):
            waiter(error)
