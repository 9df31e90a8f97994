"""The limits of the broker on the bytes of requests that are being received or answered, and of
responses that are not read."""

from typing import Final, Protocol

ROUND_MS: Final = 250
"""The interval in ms of the check for peers that hold memory while others wait."""
PATIENCE: Final = 4
"""The rounds that a request waits for memory before others are closed for it."""
STANDING: Final = 64 * 1024
"""An incomplete request that brings fewer bytes in a round is closed for one that waits."""
PACE: Final = 8
"""The rounds in which an incomplete request has to fill the memory that it holds, while a smaller
one waits."""
PARKED: Final = 40
"""The rounds after which a request that the broker has not answered is closed for one that
waits."""

STRANGERS_BYTES: Final = 1024 * 1024
"""The memory for requests of clients that have not authenticated: a login takes a few KB, only
tokens may be longer."""


class Holder(Protocol):
    """A connection, as the memory limit uses it."""

    @property
    def receiving(self) -> int | None:
        """The received bytes of an incomplete request; None without one, and while reading is
        paused."""
        ...

    @property
    def announced(self) -> int:
        """The size of the incomplete request."""
        ...

    @property
    def oldest(self) -> object | None:
        """The first request that waits for its response."""
        ...

    def memory_granted(self) -> None:
        """Continue: the requested memory is granted."""
        ...

    def abort(self) -> None: ...


class SlowReader(Protocol):
    """A connection with a response that its peer has not read."""

    active_at: float
    """The time of the last progress."""

    @property
    def unread(self) -> int:
        """The bytes of the response in memory."""
        ...

    def abort(self) -> None: ...


class UnreadAnswers:
    """The responses that wait in memory for their peers (`queued.max.response.bytes`).

    A connection begins no request while its peer does not read, so each has few of them. If they
    exceed the limit together, the connections that stand longest are closed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes: dict[SlowReader, int] = {}
        """The bytes of each response when its peer stopped reading."""
        self._total = 0

    @property
    def total(self) -> int:
        """The bytes of all of them, at most."""
        return self._total

    def add(self, reader: SlowReader) -> None:
        """Count the response of a connection whose socket is full."""
        self.remove(reader)
        self._bytes[reader] = size = reader.unread
        self._total += size
        if self._total > self._limit:
            self._cut()

    def remove(self, reader: SlowReader) -> None:
        """Forget a connection whose peer has read all, or that is closed."""
        self._total -= self._bytes.pop(reader, 0)

    def _cut(self) -> None:
        for reader in self._bytes:
            self._bytes[reader] = reader.unread
        self._total = sum(self._bytes.values())
        for reader in sorted(self._bytes, key=lambda each: each.active_at):
            if self._total <= self._limit:
                break
            self.remove(reader)
            reader.abort()


class RequestMemory:
    """The memory for large requests (`queued.max.request.bytes`), for the smallest request first.

    A connection requests memory as bytes arrive, not for the announced size. So all holders may
    wait for more at the same time. Then one of them may exceed the limit, because all of them would
    wait for ever otherwise; `socket.request.max.bytes` bounds the excess.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._held: dict[Holder, int] = {}
        self._waiting: dict[Holder, tuple[int, int]] = {}
        """The announced and the requested bytes of each holder that waits, in their order."""
        self._waited: dict[Holder, int] = {}
        """The rounds that a holder has waited with its request."""
        self._exceeding: Holder | None = None
        self._come: dict[Holder, int] = {}
        """The received bytes at the last round of those that were receiving then."""
        self._parked: dict[Holder, tuple[object, int]] = {}
        """The oldest unanswered request at the last round, and for how many rounds it was that."""

    @property
    def used(self) -> int:
        """The granted bytes."""
        return self._used

    def resize(self, holder: Holder, size: int) -> bool:
        """Grant `holder` `size` bytes in all; return False if it has to wait."""
        held = self._held.get(holder, 0)
        if not size:
            self._waited.pop(holder, None)
        fits = not self._waiting and self._used + size - held <= self._limit
        if size <= held or fits:
            self._waiting.pop(holder, None)
            self._grant(holder, size)
            if size < held:
                self._grant_waiting()
            return True
        self._waiting[holder] = (holder.announced, size)
        self._grant_waiting(asking=holder)
        return holder not in self._waiting

    def leave(self, holder: Holder) -> None:
        """Remove a holder whose connection is closed."""
        self._waiting.pop(holder, None)
        self._waited.pop(holder, None)
        self._grant(holder, 0)
        self._grant_waiting()

    def cut_slow(self) -> int:
        """Close connections that hold memory for which others wait; return their number.

        Called every ROUND_MS. A request that has waited for PATIENCE rounds gets the memory of
        incomplete ones that stand, then of larger ones that are slow, then of those that the broker
        does not answer. A peer has at least one whole round.
        """
        if not self._waiting:
            self._come, self._parked = {}, {}
            return 0
        for holder in self._waiting:
            self._waited[holder] = self._waited.get(holder, 0) + 1
        brought, unanswered = self._look()
        urgent = [each for each in self._waiting if self._waited[each] >= PATIENCE]
        if not urgent:
            return 0
        first = min(urgent, key=lambda each: self._waiting[each][0])
        size = max(self._waiting[first])
        missing = self._used + size - self._held.get(first, 0) - self._limit
        slow = [
            each
            for each in sorted(brought, key=brought.__getitem__)
            if brought[each] < STANDING
            or (each.announced > size and brought[each] * PACE < self._held[each])
        ]
        cut = 0
        for holder in slow + unanswered:
            if missing <= 0:
                break
            missing -= self._held[holder]
            holder.abort()
            cut += 1
        return cut

    def _look(self) -> tuple[dict[Holder, int], list[Holder]]:
        """Return what incomplete requests have brought in a round, and the holders that wait for a
        response since PARKED rounds."""
        come: dict[Holder, int] = {}
        parked: dict[Holder, tuple[object, int]] = {}
        brought: dict[Holder, int] = {}
        for holder in self._held:
            if (oldest := holder.oldest) is not None:
                first, rounds = self._parked.get(holder, (None, 0))
                parked[holder] = (oldest, rounds + 1 if first is oldest else 0)
            if holder not in self._waiting and (size := holder.receiving) is not None:
                come[holder] = size
                # Fewer bytes than before are of another request.
                if (before := self._come.get(holder)) is not None and size >= before:
                    brought[holder] = size - before
        self._come, self._parked = come, parked
        return brought, [each for each, (_, rounds) in parked.items() if rounds >= PARKED]

    def _grant(self, holder: Holder, size: int) -> None:
        self._used += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        if self._used <= self._limit:
            self._exceeding = None

    def _grant_waiting(self, asking: Holder | None = None) -> None:
        while self._waiting:
            holder = min(self._waiting, key=lambda each: self._waiting[each][0])
            _, size = self._waiting[holder]
            if self._used + size - self._held.get(holder, 0) > self._limit:
                if not self._all_wait():
                    return
                if self._exceeding is not None:
                    holder = self._exceeding
                    _, size = self._waiting[holder]
                self._exceeding = holder
            del self._waiting[holder]
            self._grant(holder, size)
            if holder is not asking:
                holder.memory_granted()

    def _all_wait(self) -> bool:
        """Return whether no memory comes free: its holders wait for more of it, and for nothing
        else."""
        return self._held.keys() <= self._waiting.keys() and all(
            each.oldest is None for each in self._held
        )
