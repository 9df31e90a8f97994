"""The progress of a job in its checkpoint on a local disk, for `pipeline status`."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from barnabas.pipeline.jobs.checkpoint import local_folder
from barnabas.pipeline.monitor.progress import Progress

_NAME: Final = "barnabas-progress.json"
_INTERVAL: Final = 5.0
"""Seconds after which a progress without a new batch is written again."""


class ProgressFile:
    """The file with the progress of the last run, in the folder of the checkpoint."""

    def __init__(self, location: str) -> None:
        """Use the checkpoint at a location; one that is not on a local disk gets no file."""
        folder = local_folder(location)
        self._path = None if folder is None else folder / _NAME
        self._written: Progress | None = None

    def write(self, progress: Progress) -> None:
        """Write a progress in place of the last one, if a batch has ended or time has passed.

        The job runs on if it cannot be written: Spark itself fails where its folder is full.
        """
        path, last = self._path, self._written
        # Spark makes the folder when it starts the query.
        if path is None or not path.parent.is_dir():
            return
        if last is not None and not _is_new(progress, last):
            return
        self._written = progress
        new = path.with_name(f".{_NAME}.new")
        with suppress(OSError):
            new.write_bytes(progress.to_json() + b"\n")
            os.replace(new, path)

    def read(self) -> Progress | None:
        """Return the progress; None without a file that this version can read."""
        if self._path is None:
            return None
        try:
            return Progress.from_json(Path(self._path).read_bytes())
        except (OSError, ValueError):
            return None


def _is_new(progress: Progress, last: Progress) -> bool:
    if (progress.state, progress.batches) != (last.state, last.batches):
        return True
    return progress.at_seconds - last.at_seconds >= _INTERVAL
