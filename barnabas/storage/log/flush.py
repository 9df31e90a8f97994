"""The flush of a log: which offsets an fsync has covered, and the fsync itself.

Only the wait for the disk leaves the event loop, and the encoding of large producer snapshots. Many
appends share one fsync (group commit).

An fsync reports the write errors since its file was opened. Linux 4.17 and later report an error
that no fsync has reported yet to a file that is opened later, too, unless the kernel has dropped
the inode in between. So a file that another source can replace waits closed (`UnsyncedFile`):
indexes and snapshots are rebuilt from the batches, and a log without a readable
`partition.metadata` is set aside. The records of a log have no other source: the active segment
stays open from its first append, and a rolled one until its flush, unless very many wait
(`ROLLED_HELD_OPEN`).
"""

import os
from collections.abc import Iterable, Iterator
from typing import Protocol

from barnabas.storage.files.files import Files, Syncable
from barnabas.storage.log.leader_epochs import LeaderEpochCache, write_epochs

ROLLED_HELD_OPEN = 256
"""Number of logs whose rolled segments stay open until their flush, at most. If all segments of a
broker roll at once, the others are opened again."""


class RolledLog(Protocol):
    """A log, as `RolledLogs` has it."""

    topic: str
    partition: int

    @property
    def awaits_flush(self) -> bool: ...


class RolledLogs:
    """The logs that wait for a flush of rolled segments or of a producer snapshot, oldest first."""

    def __init__(self) -> None:
        self._logs: dict[RolledLog, None] = {}

    def __iter__(self) -> Iterator[RolledLog]:
        """Iterate over the logs of this moment; threads may add others."""
        return iter(list(self._logs))

    def add(self, log: RolledLog) -> bool:
        """Add a log; return whether its segment may stay open until the flush."""
        self._logs[log] = None
        return len(self._logs) <= ROLLED_HELD_OPEN

    def discard(self, log: RolledLog) -> None:
        self._logs.pop(log, None)


class FlushJob:
    """One fsync of everything a log holds at its creation; the log is durable up to `up_to`
    afterwards.

    With `names` the file names in the log's directory, and the directory's own name, become durable
    too. `newest` is the base offset of the newest segment. `epochs` is a private copy for the
    leader epoch checkpoint, None if that has not changed.
    """

    __slots__ = (
        "_directory",
        "_epochs",
        "_file_system",
        "_names",
        "done",
        "error",
        "files",
        "newest",
        "up_to",
    )

    def __init__(
        self,
        file_system: Files,
        directory: str,
        files: list[Syncable],
        *,
        up_to: int,
        newest: int,
        names: bool,
        epochs: LeaderEpochCache | None,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._names = names
        self._epochs = epochs
        self.files = files
        self.up_to = up_to
        self.newest = newest
        self.error: OSError | None = None
        self.done = False

    def run(self) -> None:
        """Wait for the disk, in any thread; keep a failure in `error` for the event loop to
        handle."""
        try:
            for file in self.files:
                file.sync()
            if self._names:
                self._file_system.sync_dir(self._directory)
                self._file_system.sync_dir(os.path.dirname(self._directory))
            if self._epochs is not None:
                write_epochs(self._file_system, self._directory, self._epochs)
        except OSError as error:
            self.error = error


class FlushState:
    """The durable part of one log, and the files that wait for an fsync."""

    __slots__ = ("_jobs", "_named", "_unsynced", "flushed_offset")

    def __init__(self, flushed_offset: int) -> None:
        self.flushed_offset = flushed_offset
        # The base offset of the newest segment whose name is durable.
        self._named = -1
        # Complete files (rolled segments, producer snapshots) that no fsync has covered yet.
        self._unsynced: list[Syncable] = []
        self._jobs: list[FlushJob] = []

    def add_unsynced(self, files: Iterable[Syncable]) -> None:
        """Add complete files that no fsync has covered; the next flush syncs them."""
        self._unsynced += files

    def forget(self) -> None:
        """Release the files: nothing will be flushed any more."""
        self._unsynced = []

    def begin(
        self,
        file_system: Files,
        directory: str,
        active: Syncable | None,
        *,
        up_to: int,
        newest: int,
        epochs: LeaderEpochCache | None,
    ) -> FlushJob:
        job = FlushJob(
            file_system,
            directory,
            [*self._unsynced, active] if active else self._unsynced,
            up_to=up_to,
            newest=newest,
            names=newest > self._named,
            epochs=epochs,
        )
        self._unsynced = []
        self._jobs.append(job)
        return job

    def finish(self, job: FlushJob) -> None:
        """Mark `job` as done. A job counts once all jobs that began before it are done too."""
        job.done = True
        while self._jobs and self._jobs[0].done:
            counted = self._jobs.pop(0)
            self.flushed_offset = max(self.flushed_offset, counted.up_to)
            self._named = max(self._named, counted.newest)

    def give_up(self, job: FlushJob) -> None:
        """Note that `job` could not open a file: its files wait for the next flush."""
        if job in self._jobs:
            self._jobs.remove(job)
            self._unsynced += job.files

    def void_from(self, offset: int) -> None:
        """Note that nothing from `offset` on is durable: running jobs no longer count."""
        for job in self._jobs:
            self._unsynced += job.files
        self._jobs.clear()
        self.flushed_offset = min(self.flushed_offset, offset)
        # Segments with these base offsets may be created again.
        self._named = min(self._named, offset - 1)
