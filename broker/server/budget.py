"""The broker-wide bound on the bytes of requests that are being received or answered."""

from collections import deque
from collections.abc import Callable


class RequestMemory:
    """Grants room for large requests, first come first served (`queued.max.request.bytes`).

    A request larger than the whole bound is granted when nothing else holds room: it is limited
    by `socket.request.max.bytes`, and refusing it for ever would hang its client.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def used(self) -> int:
        """Bytes granted now."""
        return self._used

    def acquire(self, size: int, granted: Callable[[], None]) -> bool:
        """Take `size` bytes at once, or queue `granted` for when they are there."""
        if not self._waiting and self._fits(size):
            self._used += size
            return True
        self._waiting.append((size, granted))
        return False

    def release(self, size: int) -> None:
        """Give `size` bytes back and grant those who waited for them."""
        self._used -= size
        while self._waiting and self._fits(self._waiting[0][0]):
            wanted, granted = self._waiting.popleft()
            self._used += wanted
            granted()

    def abandon(self, granted: Callable[[], None]) -> None:
        """Forget a waiter whose connection is gone."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._limit
