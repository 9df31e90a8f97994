"""One entry of `log.dirs`: its identity, its checkpoints, and whether its disk works."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from threading import Lock as ThreadLock
from typing import Concatenate, NamedTuple, NoReturn, ParamSpec, Protocol, TypeVar

from barnabas.storage.files.checkpoints import (
    CorruptCheckpointError,
    Offsets,
    read_offsets,
    write_offsets,
)
from barnabas.storage.files.errors import LogDirFailed, OutOfDescriptors, lacks_descriptors
from barnabas.storage.files.files import Files

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
DOUBT = ".fsync_failed"
"""Created when the disk fails: what the page cache shows since then may never have reached the
device. The file need not be durable, because a reboot empties the page cache too."""


class Checkpoints(NamedTuple):
    """The offsets that a log directory records for its logs, readable without opening them."""

    recovery_points: Offsets
    log_starts: Offsets
    high_watermarks: Offsets


class LogDir:
    """A log directory. It goes offline for good at its first failed disk call.

    A lack of file descriptors does not count as a failure of the disk: only the call fails.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        directory_id: bytes = bytes(16),
        on_failure: Callable[[LogDirFailed], None] | None = None,
        on_shortage: Callable[[OSError], None] | None = None,
    ) -> None:
        """`on_failure` is called once, by the first call that fails; `on_shortage` by every call
        that finds no free descriptor."""
        self.path = path
        self.directory_id = directory_id
        self.failure: LogDirFailed | None = None
        self.written = Checkpoints({}, {}, {})
        """The checkpoints that were read or written last."""
        # The known content of each checkpoint file: a file that has not changed is
        # not written again.
        self._on_disk: dict[str, Mapping[tuple[str, int], int]] = {}
        self._files = files
        self._on_failure = on_failure
        self._on_shortage = on_shortage
        # A thread writes checkpoints periodically, and the loop writes them when one of their
        # values becomes wrong: then the thread's pending write is void.
        self._lock = ThreadLock()
        self.generation = 0

    def __repr__(self) -> str:
        return f"LogDir({self.path})"

    def take_offline(self, cause: OSError) -> LogDirFailed | OutOfDescriptors:
        """Take the directory offline, unless only descriptors are missing; return the error for the
        caller to raise."""
        if lacks_descriptors(cause):
            if self._on_shortage is not None:
                self._on_shortage(cause)
            return OutOfDescriptors(self.path, str(cause))
        error = LogDirFailed(self.path, str(cause))
        if self.failure is None:
            self.failure = error
            with suppress(OSError):
                # If not even a file can be created, the next process cannot append either.
                self._files.open(os.path.join(self.path, DOUBT), create=True)
            if self._on_failure is not None:
                self._on_failure(error)
        return error

    def fail(self, cause: OSError) -> NoReturn:
        """Take the directory offline, unless only descriptors are missing.

        Raises LogDirFailed or OutOfDescriptors.
        """
        raise self.take_offline(cause) from cause

    def require_online(self) -> None:
        """Raise LogDirFailed if the directory is offline."""
        if self.failure is not None:
            raise LogDirFailed(self.path, "is offline")

    def read_checkpoints(self) -> Checkpoints:
        """Return the checkpoints on disk; a damaged one counts as empty, so its logs are
        scanned."""
        self.written = Checkpoints(
            self._read(RECOVERY_POINTS), self._read(LOG_STARTS), self._read(HIGH_WATERMARKS)
        )
        return self.written

    def write_checkpoints(self, checkpoints: Checkpoints, generation: int) -> bool:
        """Write those that have changed durably, unless they are older than `generation`; return
        whether they were.

        Runs in any thread; raises OSError.
        """
        with self._lock:
            if generation != self.generation:
                return False
            self._write(RECOVERY_POINTS, checkpoints.recovery_points)
            self._write(LOG_STARTS, checkpoints.log_starts)
            self._write(HIGH_WATERMARKS, checkpoints.high_watermarks)
            self.written = checkpoints
            return True

    def void_checkpoints(self) -> None:
        """Void the checkpoints that a thread may be about to write: they are out of date."""
        with self._lock:
            self.generation += 1

    def _read(self, name: str) -> Offsets:
        try:
            offsets = read_offsets(self._files, os.path.join(self.path, name))
        except CorruptCheckpointError:
            return {}
        if offsets:
            self._on_disk[name] = offsets
        return offsets

    def _write(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        if self._on_disk.get(name) == offsets:
            return
        # A write that fails leaves the old or the new content.
        self._on_disk.pop(name, None)
        write_offsets(self._files, os.path.join(self.path, name), offsets)
        self._on_disk[name] = offsets


class LogDirOwner(Protocol):
    """An object whose files are in a log directory."""

    @property
    def log_dir(self) -> LogDir: ...


S = TypeVar("S", bound=LogDirOwner)
P = ParamSpec("P")
R = TypeVar("R")


def on_disk(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method of a LogDirOwner, to raise LogDirFailed if the directory is offline.

    An OSError of the method takes the directory offline, except that a lack of descriptors raises
    OutOfDescriptors.
    """

    @wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        log_dir = self.log_dir
        if log_dir.failure is not None:
            log_dir.require_online()
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            log_dir.fail(error)

    return guarded
