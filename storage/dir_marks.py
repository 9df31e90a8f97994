"""What a log directory says of itself: whose it is, and how the last process left it."""

import os
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from barnabas.protocol.types import ZERO_UUID, uuid_text
from barnabas.storage.files import Files, write_atomic
from barnabas.storage.log_dir import LogDir
from barnabas.storage.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    read_meta,
    write_meta,
)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = ".boot_id"
TOGETHER = ".log_dirs"
"""The ids of all directories of the broker, in each of them, where there are more than one."""


class BrokerIdentity(NamedTuple):
    """Whose directories these are; the kernel has a new `boot_id` after each start."""

    broker_id: int
    cluster_id: str
    boot_id: str


class Marks(NamedTuple):
    """How the last process left a directory."""

    clean: bool
    """It was closed."""
    is_new: bool
    """There was no such process, or it had a directory that is gone: logs may have been lost."""
    same_boot: bool
    """The machine has run through since: its page cache has lost nothing."""

    def worst(self, other: "Marks") -> "Marks":
        """Of two directories together."""
        return Marks(
            self.clean and other.clean,
            self.is_new or other.is_new,
            self.same_boot and other.same_boot,
        )


def claim(files: Files, path: str, identity: BrokerIdentity, rng: Random) -> bytes:
    """The directory's id, once it is known to be this broker's; raises MetaPropertiesError."""
    meta = read_meta(files, path)
    if meta is None:
        meta = MetaProperties(identity.broker_id, identity.cluster_id, rng.randbytes(16))
        write_meta(files, path, meta)
    if (meta.broker_id, meta.cluster_id) != (identity.broker_id, identity.cluster_id):
        raise MetaPropertiesError(
            f"{path} belongs to broker {meta.broker_id} of cluster {meta.cluster_id}, this is "
            f"broker {identity.broker_id} of cluster {identity.cluster_id}"
        )
    return meta.directory_id


def take_marks(files: Files, path: str, boot_id: str) -> Marks:
    """Reads the marks; from now on the directory is not closed any more."""
    mark = os.path.join(path, CLEAN_SHUTDOWN)
    same_boot = _is_marked(files, path, boot_id)
    clean = files.exists(mark)
    is_new = not clean and not files.exists(os.path.join(path, BOOT_ID))
    if clean:
        # What was closed has outlived every boot until now.
        mark_boot(files, path, boot_id)
        files.unlink(mark)
        files.sync_dir(path)
    return Marks(clean, is_new, same_boot)


def mark_boot(files: Files, path: str, boot_id: str) -> None:
    """From now on the directory is at risk in this boot, and in none before it."""
    if not _is_marked(files, path, boot_id):
        write_atomic(files, os.path.join(path, BOOT_ID), boot_id.encode())


def _is_marked(files: Files, path: str, boot_id: str) -> bool:
    boot_path = os.path.join(path, BOOT_ID)
    return files.exists(boot_path) and files.read_bytes(boot_path) == boot_id.encode()


def take_missing(files: Files, dirs: Iterable[LogDir]) -> Marks:
    """Whether a directory of the last run is among `dirs` no more; from now on each knows all.

    What may be missing stays known until `settle`. One without an id is offline, and may be any.
    """
    dirs = list(dirs)
    known, here = _known(files, dirs), _ids(dirs)
    missing = known - here
    _on_each(dirs, lambda each: _mark_together(files, each, known | here))
    is_missing = len(missing) > len(dirs) - len(here)
    return Marks(clean=not is_missing, is_new=is_missing, same_boot=True)


def settle(files: Files, dirs: Iterable[LogDir], boot_id: str) -> None:
    """What the last run may have lost is known to whoever has to know: it need not be said again.

    A directory whose disk fails goes offline.
    """
    dirs = list(dirs)
    _on_each(dirs, lambda each: mark_boot(files, each.path, boot_id))
    here = _ids(dirs)
    if len(here) == len(dirs):
        _on_each(dirs, lambda each: _mark_together(files, each, here))


def _on_each(dirs: Iterable[LogDir], do: Callable[[LogDir], None]) -> None:
    """Of those that are online; one whose disk fails meanwhile is not any more."""
    for log_dir in dirs:
        if log_dir.failure is None:
            try:
                do(log_dir)
            except OSError as error:
                log_dir.take_offline(error)


def _ids(dirs: Iterable[LogDir]) -> set[str]:
    return {uuid_text(each.directory_id) for each in dirs if each.directory_id != ZERO_UUID}


def _known(files: Files, dirs: Iterable[LogDir]) -> set[str]:
    """Of what runs before knew; where that is damaged something is missing, which is safe."""
    known: set[str] = set()
    _on_each(dirs, lambda each: known.update(_read_together(files, each)))
    return known


def _read_together(files: Files, log_dir: LogDir) -> set[str]:
    path = os.path.join(log_dir.path, TOGETHER)
    if not files.exists(path):
        return {uuid_text(log_dir.directory_id)}
    return set(files.read_bytes(path).decode(errors="replace").split())


def _mark_together(files: Files, log_dir: LogDir, ids: set[str]) -> None:
    if _read_together(files, log_dir) != ids:
        text = "".join(f"{each}\n" for each in sorted(ids))
        write_atomic(files, os.path.join(log_dir.path, TOGETHER), text.encode())


def mark_closed(files: Files, path: str) -> None:
    """Everything in the directory is durable, and nobody works on it any more."""
    write_atomic(files, os.path.join(path, CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')
