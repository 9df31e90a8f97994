"""The mark files of a log directory: its owner, and the state in which the last process left it."""

import os
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from barnabas.protocol.types import ZERO_UUID, uuid_text
from barnabas.storage.files.files import Files, write_atomic
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.opening.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    read_meta,
    write_meta,
)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = ".boot_id"
DIRECTORY_IDS = ".log_dirs"
"""The ids of all directories of the broker, written into each of them if there are several."""


class BrokerIdentity(NamedTuple):
    """The broker that owns the directories; the kernel's `boot_id` changes at every reboot."""

    broker_id: int
    cluster_id: str
    boot_id: str


class Marks(NamedTuple):
    """The state in which the last process left a directory."""

    clean: bool
    """Whether the directory was closed."""
    is_new: bool
    """Whether no process had the directory before, or one of its directories is missing: logs may
    have been lost."""
    same_boot: bool
    """Whether the machine has not rebooted since: its page cache has lost nothing."""

    def worst(self, other: "Marks") -> "Marks":
        """Return the worse of each mark of two directories."""
        return Marks(
            self.clean and other.clean,
            self.is_new or other.is_new,
            self.same_boot and other.same_boot,
        )


def claim(files: Files, path: str, identity: BrokerIdentity, rng: Random) -> bytes:
    """Check that the directory is this broker's, and return its id; raises MetaPropertiesError."""
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
    """Read the marks, and mark the directory as in use (not closed)."""
    mark = os.path.join(path, CLEAN_SHUTDOWN)
    same_boot = _is_marked(files, path, boot_id)
    clean = files.exists(mark)
    is_new = not clean and not files.exists(os.path.join(path, BOOT_ID))
    if clean:
        # A directory that was closed has survived every reboot until now.
        mark_boot(files, path, boot_id)
        files.unlink(mark)
        files.sync_dir(path)
    return Marks(clean, is_new, same_boot)


def mark_boot(files: Files, path: str, boot_id: str) -> None:
    """Record that the directory's unflushed data depends on the current boot."""
    if not _is_marked(files, path, boot_id):
        write_atomic(files, os.path.join(path, BOOT_ID), boot_id.encode())


def _is_marked(files: Files, path: str, boot_id: str) -> bool:
    boot_path = os.path.join(path, BOOT_ID)
    return files.exists(boot_path) and files.read_bytes(boot_path) == boot_id.encode()


def take_missing(files: Files, dirs: Iterable[LogDir]) -> Marks:
    """Return marks that say whether a directory of the last run is missing, and write the new list.

    A missing directory stays on the list until `forget_last_run`. The id of an offline directory
    cannot be read, so for each offline directory one missing id is tolerated.
    """
    dirs = list(dirs)
    known, here = _known(files, dirs), _ids(dirs)
    missing = known - here
    _on_each(dirs, lambda each: _write_directory_ids(files, each, known | here))
    is_missing = len(missing) > len(dirs) - len(here)
    return Marks(clean=not is_missing, is_new=is_missing, same_boot=True)


def forget_last_run(files: Files, dirs: Iterable[LogDir], boot_id: str) -> None:
    """Forget the losses of the last run, because the cluster knows of them now.

    A directory whose disk fails goes offline.
    """
    dirs = list(dirs)
    _on_each(dirs, lambda each: mark_boot(files, each.path, boot_id))
    here = _ids(dirs)
    if len(here) == len(dirs):
        _on_each(dirs, lambda each: _write_directory_ids(files, each, here))


def _on_each(dirs: Iterable[LogDir], do: Callable[[LogDir], None]) -> None:
    """Call `do` for each online directory; one whose disk fails meanwhile goes offline."""
    for log_dir in dirs:
        if log_dir.failure is None:
            try:
                do(log_dir)
            except OSError as error:
                log_dir.take_offline(error)


def _ids(dirs: Iterable[LogDir]) -> set[str]:
    return {uuid_text(each.directory_id) for each in dirs if each.directory_id != ZERO_UUID}


def _known(files: Files, dirs: Iterable[LogDir]) -> set[str]:
    """Return the directory ids that earlier runs knew. A damaged list yields ids that do not
    exist, which count as missing directories: this is safe."""
    known: set[str] = set()
    _on_each(dirs, lambda each: known.update(_read_directory_ids(files, each)))
    return known


def _read_directory_ids(files: Files, log_dir: LogDir) -> set[str]:
    path = os.path.join(log_dir.path, DIRECTORY_IDS)
    if not files.exists(path):
        return {uuid_text(log_dir.directory_id)}
    return set(files.read_bytes(path).decode(errors="replace").split())


def _write_directory_ids(files: Files, log_dir: LogDir, ids: set[str]) -> None:
    if _read_directory_ids(files, log_dir) != ids:
        text = "".join(f"{each}\n" for each in sorted(ids))
        write_atomic(files, os.path.join(log_dir.path, DIRECTORY_IDS), text.encode())


def mark_closed(files: Files, path: str) -> None:
    """Mark the directory as closed: everything in it is durable, and no process uses it any
    more."""
    write_atomic(files, os.path.join(path, CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')
