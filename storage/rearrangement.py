"""Segments on their way into or out of a log that is read and written meanwhile.

What the log knows changes on the event loop, the names on disk in any thread, in turns: a rename
waits for the file system's journal, and that for somebody else's fsync.
"""

from collections.abc import Callable, Generator
from threading import Lock
from typing import Protocol

from barnabas.storage.log_dir import LogDir

DiskWork = Callable[[], None]
"""What waits for the disk; raises OSError."""
Steps = Generator[DiskWork, None, None]
"""Runs on the loop, and yields what is to be done on the disk before it may go on."""


class Rearrangeable(Protocol):
    """A log, as far as a rearrangement knows it."""

    rearrangement: "Rearrangement | None"

    @property
    def log_dir(self) -> LogDir: ...


class Rearrangement:
    """One change of a log's segments: `run` in a thread and `advance` on the loop, until `done`.

    A log has one at a time. Whatever else changes its older segments completes it first, on the
    spot, and a log that is given up cancels it.
    """

    def __init__(self, log: Rearrangeable, steps: Steps) -> None:
        """Takes the first step on the loop. The log has no other rearrangement."""
        assert log.rearrangement is None
        self._log = log
        self._steps = steps
        self._lock = Lock()
        self._work = next(steps, None)
        self._cancelled = False
        self._error: Exception | None = None
        if self._work is not None:
            log.rearrangement = self

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self._log.rearrangement is not self

    def run(self) -> None:
        """Does the disk's part, unless somebody has; a failure is kept for the loop to act on."""
        with self._lock:
            work, self._work = self._work, None
            if work is None or self._cancelled:
                return
            try:
                work()
            except Exception as error:
                self._error = error

    def advance(self) -> None:
        """Goes on once the disk's part is done. Where that failed nothing more is done: raises
        LogDirFailed, or what it was that was not the disk's failure."""
        if self.done or self._work is not None:
            return
        if self._error is not None:
            self._log.rearrangement = None
            if isinstance(self._error, OSError):
                self._log.log_dir.fail(self._error)
            raise self._error
        self._work = next(self._steps, None)
        if self._work is None and not self.done:
            self._log.rearrangement = None

    def complete(self) -> None:
        """Does all that is left on the spot; raises as `advance` does."""
        while not self.done:
            self.run()
            self.advance()

    def cancel(self) -> None:
        """Does nothing more, from any thread; recovery knows what to make of the files."""
        with self._lock:
            self._cancelled = True
            self._log.rearrangement = None
