"""A disk that loses power with its process: data that was not fsynced is lost at the next start.

    cache    the files that the broker reads and writes, as through the kernel's page cache
    device   the data that fsync has saved: the bytes of files, and the names in directories

`restore` makes a new cache from the device. So a kill -9 is a power loss, and the worst one that
POSIX allows: every byte and every name that was not fsynced is lost.
"""

import json
import os
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.storage.files.files import OsFile, OsFiles


@dataclass(slots=True)
class _Saved:
    """The part of one file that is on the device; up to `clean` the cache holds the same bytes."""

    path: Path
    clean: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class LossyFile(OsFile):
    """See `barnabas.storage.files.files.File`."""

    __slots__ = ("_saved",)

    def __init__(self, path: str, fd: int, saved: _Saved) -> None:
        super().__init__(path, fd)
        self._saved = saved

    def truncate(self, size: int) -> None:
        with self._saved.lock:
            super().truncate(size)
            self._saved.clean = min(self._saved.clean, size)

    def sync(self) -> None:
        saved = self._saved
        with saved.lock:
            size = self.size()
            fresh = self.read(size - saved.clean, saved.clean)
            with open(saved.path, "r+b") as file:
                file.seek(saved.clean)
                file.write(fresh)
                file.truncate(size)
            saved.clean = size


class LossyFiles(OsFiles):
    """See `barnabas.storage.files.files.Files`."""

    def __init__(self, device: Path) -> None:
        super().__init__()
        self._device = device
        self._files: dict[int, _Saved] = {}
        self._lock = threading.Lock()

    def open(self, path: str, *, create: bool = False) -> LossyFile:
        plain = super().open(path, create=create)
        return LossyFile(path, os.dup(plain._fd), self._saved(path))

    def make_dir(self, path: str) -> None:
        super().make_dir(path)
        # Inode numbers are reused: the names of the previous owner do not count.
        _names(self._device, os.stat(path).st_ino).unlink(missing_ok=True)

    def sync_dir(self, path: str) -> None:
        """Save the names of a directory; the content of a file that was never synced is lost all
        the same."""
        names = {}
        for entry in os.scandir(path):
            if not entry.is_dir():
                self._saved(entry.path)
            names[entry.name] = (entry.is_dir(), entry.inode())
        target = _names(self._device, os.stat(path).st_ino)
        fresh = target.with_suffix(f".{threading.get_ident()}")
        fresh.write_text(json.dumps(names))
        fresh.replace(target)

    def _saved(self, path: str) -> _Saved:
        number = os.stat(path).st_ino
        with self._lock:
            if number not in self._files:
                # A second link, so that the inode number is not reused.
                os.link(path, self._device / "pins" / str(number))
                saved = _bytes(self._device, number)
                saved.touch()
                self._files[number] = _Saved(saved)
            return self._files[number]


def restore(device: Path, cache: Path) -> LossyFiles:
    """Start the machine again: fill `cache` with the content of `device`, or create both.

    The process may be killed at any point: the old device is removed when the new one is complete.
    """
    old, trash = device.with_suffix(".old"), device.with_suffix(".trash")
    if device.exists() and not old.exists():
        device.rename(old)
    for left in (device, cache, trash):
        shutil.rmtree(left, ignore_errors=True)
    for name in ("pins", "bytes", "names"):
        (device / name).mkdir(parents=True)
    files = LossyFiles(device)
    files.make_dir(str(cache))
    (device / "root").write_text(str(cache.stat().st_ino))
    if old.exists():
        _copy(old, int((old / "root").read_text()), cache, files)
        old.rename(trash)
    return files


def _copy(old: Path, number: int, directory: Path, files: LossyFiles) -> None:
    """Copy one directory, by its former inode number."""
    listing = _names(old, number)
    names = json.loads(listing.read_text()) if listing.exists() else {}
    for name, (is_dir, inner) in names.items():
        path = str(directory / name)
        if is_dir:
            files.make_dir(path)
            _copy(old, inner, directory / name, files)
        else:
            file = files.open(path, create=True)
            file.append(_bytes(old, inner).read_bytes())
            file.sync()
    files.sync_dir(str(directory))


def _names(device: Path, number: int) -> Path:
    return device / "names" / str(number)


def _bytes(device: Path, number: int) -> Path:
    return device / "bytes" / str(number)
