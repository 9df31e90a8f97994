"""Requests that wait for a partition: for an offset that is reached, or for any change of it.

Offsets are awaited by acks=all, by coordinators and by topics that flush before they acknowledge;
changes are awaited by the delayed fetches of consumers and followers.
"""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Protocol

from barnabas.protocol.errors import KafkaError

Waiter = Callable[[KafkaError | None], None]
"""Called once: with None when the offset was reached, with the error that ended the wait."""


class DelayedFetch(Protocol):
    """A consumer's Fetch that waits for min_bytes."""

    def wake(self) -> None:
        """Look again: a partition of the request has changed."""
        ...


class FollowerWatch(Protocol):
    """A follower's partition that was read to the end of the leader's log."""

    def log_grew(self) -> None:
        """Note that there are more records, or another leader. Called once: after that the watch
        must be registered again."""
        ...

    def watermark_moved(self) -> None:
        """Note that the high watermark or the log start moved: the next answer should say so, but
        needs no separate response."""
        ...


class OffsetWaiters:
    """Callbacks ordered by the offset they wait for; called on progress, never by polling."""

    __slots__ = ("_order", "waiting")

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, Waiter]] = []
        """A heap by offset."""
        self._order = count()

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, offset: int, waiter: Waiter) -> None:
        """Call `waiter` once `offset` is reached; waiters of one offset are called in order."""
        heapq.heappush(self.waiting, (offset, next(self._order), waiter))

    def reached(self, offset: int) -> None:
        """Call all waiters for `offset` or less."""
        heap = self.waiting
        while heap and heap[0][0] <= offset:
            heapq.heappop(heap)[2](None)

    def fail(self, error: KafkaError) -> None:
        """Call all waiters with `error`: the leadership or the log is gone."""
        failed, self.waiting = self.waiting, []
        for _, _, waiter in sorted(failed):
            waiter(error)
