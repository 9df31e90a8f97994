"""What a log directory says of itself: whose it is, and how the last process left it."""

import os
from random import Random
from typing import NamedTuple

from barnabas.storage.files import Files, write_atomic
from barnabas.storage.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    read_meta,
    write_meta,
)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = ".boot_id"


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
    """There was no such process. Another directory may have been lost in its place."""
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


def mark_closed(files: Files, path: str) -> None:
    """Everything in the directory is durable, and nobody works on it any more."""
    write_atomic(files, os.path.join(path, CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')
