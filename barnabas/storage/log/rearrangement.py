"""Adding and removing segments of a log that is read and written meanwhile.

Steps on the event loop, which change the log's state, alternate with steps in any thread, which
rename files: a rename waits for the file system's journal, and that for the fsync of other files.
"""

from collections.abc import Callable, Generator
from threading import Lock
from typing import Protocol

from barnabas.storage.files.errors import lacks_descriptors
from barnabas.storage.files.log_dir import LogDir

DiskWork = Callable[[], None]
"""An action that waits for the disk; raises OSError."""
DiskSteps = Generator[DiskWork, None, None]
"""Runs on the event loop, and yields the disk work that must be done before it continues."""


class RearrangedLog(Protocol):
    """The part of a log that a rearrangement uses."""

    rearrangement: "Rearrangement | None"

    @property
    def log_dir(self) -> LogDir: ...


class Rearrangement:
    """One change of a log's segments: `run` in a thread and `advance` on the loop, until `done`.

    A log has at most one. Any other change of its older segments completes it first, synchronously;
    `Log.abandon` cancels it.
    """

    def __init__(self, log: RearrangedLog, steps: DiskSteps) -> None:
        """Take the first step on the event loop. The log must have no other rearrangement."""
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
        """Return whether nothing is left to do."""
        return self._log.rearrangement is not self

    def run(self) -> None:
        """Do the pending disk work, if there is any; keep a failure for the event loop to handle.

        Work that lacked a descriptor stays pending: every step may be repeated.
        """
        with self._lock:
            work, self._work = self._work, None
            if work is None or self._cancelled:
                return
            try:
                work()
            except Exception as error:
                if lacks_descriptors(error):
                    self._work = work
                else:
                    self._error = error

    def advance(self) -> None:
        """Continue after the disk work. If that failed, stop.

        Raises LogDirFailed for an OSError of the disk work, and any other error of it unchanged.
        """
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
        """Do all remaining steps at once; raises as `advance` does."""
        while not self.done:
            self.run()
            self.advance()

    def cancel(self) -> None:
        """Stop, from any thread; recovery handles the files that are left."""
        with self._lock:
            self._cancelled = True
            self._log.rearrangement = None
