"""Files and directories that nobody finds any more, until their time has come."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.storage.files import Files
from barnabas.storage.log import Log


class _Doomed(NamedTuple):
    due_ms: int
    path: str


class Removals:
    """Removed `file.delete.delay.ms` after it was set aside. Times in ms since the epoch."""

    def __init__(self, files: Files, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._now_ms = now_ms
        self._doomed: list[_Doomed] = []

    def add(self, path: str, delay_ms: int) -> None:
        self._doomed.append(_Doomed(self._now_ms() + delay_ms, path))

    def due(self, logs: Iterable[Log]) -> list[str]:
        """Paths whose time has come, each told once: for `remove`, in a thread.

        What `logs` have let go of meanwhile is noted first.
        """
        for log in logs:
            for path in log.doomed:
                self.add(path, log.config.file_delete_delay_ms)
            log.doomed.clear()
        now_ms = self._now_ms()
        due = [each.path for each in self._doomed if each.due_ms <= now_ms]
        self._doomed = [each for each in self._doomed if each.due_ms > now_ms]
        return due

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files and directories; raises OSError."""
        for path in paths:
            if not self._files.exists(path):
                # Its log was deleted meanwhile, and took it along.
                continue
            if self._files.is_dir(path):
                self._files.remove_tree(path)
            else:
                self._files.unlink(path)
