"""The broker-wide bound on the bytes of requests that are being received or answered."""

from typing import Final, Protocol

ROUND_MS: Final = 10_000
"""How often it is asked who holds room and makes others wait."""
LEAST_PER_ROUND: Final = 512 * 1024
"""Bytes of its request that a peer must bring in a round to keep room that others wait for."""


class Holder(Protocol):
    """A connection, as far as its memory goes."""

    @property
    def receiving(self) -> int | None:
        """Bytes of the request that have come; None where the broker has the next word."""
        ...

    def memory_granted(self) -> None:
        """What it asked for and has waited for is there."""
        ...

    def abort(self) -> None: ...


class RequestMemory:
    """Grants room for large requests, first come first served (`queued.max.request.bytes`).

    Room is asked for as bytes arrive, not as they are announced. So all who hold some may come to
    wait for more, and then the one that holds most may exceed the bound: it is limited by
    `socket.request.max.bytes`, and everybody would wait for ever otherwise.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._held: dict[Holder, int] = {}
        self._waiting: dict[Holder, int] = {}
        self._come: dict[Holder, int] = {}

    @property
    def used(self) -> int:
        """Bytes granted now."""
        return self._used

    def resize(self, holder: Holder, size: int) -> bool:
        """Let `holder` have `size` bytes in all; where they are not there, it is told later."""
        held = self._held.get(holder, 0)
        if size <= held or (not self._waiting and self._used + size - held <= self._limit):
            self._grant(holder, size)
            if size < held:
                self._grant_waiting()
            return True
        self._waiting[holder] = size
        self._grant_waiting(asking=holder)
        return holder not in self._waiting

    def leave(self, holder: Holder) -> None:
        """Forget a holder whose connection is gone."""
        self._waiting.pop(holder, None)
        self._grant(holder, 0)
        self._grant_waiting()

    def cut_slow(self) -> int:
        """Cut those who hold room that others wait for and bring too little; how many they were.

        Called every ROUND_MS: a peer has had one whole round before it is judged.
        """
        come: dict[Holder, int] = {}
        if self._waiting:
            for holder in self._held.keys() - self._waiting.keys():
                if (size := holder.receiving) is not None:
                    come[holder] = size
        slow = [
            holder
            for holder, size in come.items()
            if 0 <= size - self._come.get(holder, -LEAST_PER_ROUND) < LEAST_PER_ROUND
        ]
        self._come = come
        for holder in slow:
            holder.abort()
        return len(slow)

    def _grant(self, holder: Holder, size: int) -> None:
        self._used += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size

    def _grant_waiting(self, asking: Holder | None = None) -> None:
        while self._waiting:
            holder, size = next(iter(self._waiting.items()))
            if self._used + size - self._held.get(holder, 0) > self._limit:
                if not self._held.keys() <= self._waiting.keys():
                    return
                holder = max(self._waiting, key=lambda each: self._held.get(each, 0))
                size = self._waiting[holder]
            del self._waiting[holder]
            self._grant(holder, size)
            if holder is not asking:
                holder.memory_granted()
