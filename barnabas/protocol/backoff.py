"""The wait before an attempt is repeated: it doubles with each failure in a row."""

from typing import Final

FIRST: float = 0.05
LONGEST: Final = 1.0


def wait_after(failures: int, first: float, longest: float) -> float:
    """Return the wait after `failures` earlier failures in a row, in the unit of `first`."""
    return min(longest, first * 2.0 ** min(failures, 32))


class Backoff:
    """The failures in a row of one thing that is tried, and the waits after them in seconds."""

    __slots__ = ("_first", "_longest", "failures")

    def __init__(self, first: float | None = None, longest: float = LONGEST) -> None:
        self._first = FIRST if first is None else first
        self._longest = longest
        self.failures = 0
        """Set it to 0 after a success."""

    @property
    def wait(self) -> float:
        """The wait after the next failure."""
        return wait_after(self.failures, self._first, self._longest)

    def failed(self) -> float:
        """Count a failure, and return the wait before the next attempt."""
        wait = self.wait
        self.failures += 1
        return wait
