"""What of a log an fsync has covered, and the fsync itself, split so that only the waiting leaves
the event loop: many appends share one (group commit)."""

import os

from barnabas.storage.files import File, Files
from barnabas.storage.leader_epochs import LeaderEpochCache, write_epochs


class FlushJob:
    """Makes durable what a log held when the job began; it has reached `up_to` once finished.

    With `names` the names in its directory and the directory's own are made durable too; `epochs`
    are a private copy for the checkpoint.
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
        files: list[File],
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
        """Waits for the disk, in whatever thread. A failure is kept in `error` for the loop to
        act on."""
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
    """What is durable of one log, and what waits to be."""

    __slots__ = ("_jobs", "_named", "_unsynced", "flushed_offset")

    def __init__(self, flushed_offset: int) -> None:
        self.flushed_offset = flushed_offset
        # Base offset of the newest segment whose name is durable.
        self._named = -1
        # Files that nothing will be appended to, of rolled segments and producer snapshots.
        self._unsynced: list[File] = []
        self._jobs: list[FlushJob] = []

    def wants(self, files: list[File]) -> None:
        """These files are complete, and no fsync has covered them."""
        self._unsynced += files

    def forget(self) -> None:
        """Nothing will be flushed any more: lets go of the files."""
        self._unsynced = []

    def begin(
        self,
        file_system: Files,
        directory: str,
        active: File | None,
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
        """Counts `job`, as soon as those that began before it are counted too."""
        job.done = True
        while self._jobs and self._jobs[0].done:
            counted = self._jobs.pop(0)
            self.flushed_offset = max(self.flushed_offset, counted.up_to)
            self._named = max(self._named, counted.newest)

    def truncated(self, offset: int) -> None:
        """The log ends at `offset` now, durably: what is under way no longer counts."""
        for job in self._jobs:
            self._unsynced += job.files
        self._jobs.clear()
        self.flushed_offset = min(self.flushed_offset, offset)
        # Segments with these base offsets may come again.
        self._named = min(self._named, offset - 1)
