"""The identity files: `meta.properties` of a log directory, `partition.metadata` of a partition."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.protocol.types import ZERO_UUID, uuid_from_text, uuid_text
from barnabas.storage.files.files import Files, write_atomic

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"

_VERSION = "1"
_READABLE = ("0", "1")
"""0 is that of Kafka's brokers on ZooKeeper, which a file without one has too, 1 of those on KRaft;
the entries read are the same."""
_PARTITION_VERSION = "0"


class MetaPropertiesError(Exception):
    """The directory is of another broker, cluster or release, or its `meta.properties` damaged."""


class MetaProperties(NamedTuple):
    """The broker and cluster that a log directory belongs to, and the directory's own id."""

    broker_id: int
    cluster_id: str
    directory_id: bytes


def read_meta(files: Files, log_dir: str) -> MetaProperties | None:
    """Return None if the directory is new; raises MetaPropertiesError, OSError."""
    path = os.path.join(log_dir, META_PROPERTIES)
    if not files.exists(path):
        return None
    entries = _read_properties(files, path, "=")
    _check_version(path, entries, *_READABLE)
    try:
        return MetaProperties(
            broker_id=int(entries.get("broker.id") or entries["node.id"]),
            cluster_id=entries["cluster.id"],
            directory_id=uuid_from_text(entries["directory.id"]),
        )
    except KeyError as error:
        raise MetaPropertiesError(f"{path} is damaged: it has no {error.args[0]}") from None
    except ValueError as error:
        raise MetaPropertiesError(f"{path} is damaged: {error}") from None


def require_cluster(found: str, expected: str, log_dir: str) -> str:
    """Return `found`; raises MetaPropertiesError in Kafka's words if another cluster is expected.

    An empty `expected` accepts every cluster.
    """
    if expected and expected != found:
        path = os.path.join(log_dir, META_PROPERTIES)
        raise MetaPropertiesError(
            f"Invalid cluster.id in: {path}. Expected {expected}, but read {found}"
        )
    return found


def write_meta(files: Files, log_dir: str, meta: MetaProperties) -> None:
    """Write `meta.properties` durably; raises OSError."""
    lines = [
        f"version={_VERSION}",
        f"broker.id={meta.broker_id}",
        f"cluster.id={meta.cluster_id}",
        f"directory.id={uuid_text(meta.directory_id)}",
    ]
    path = os.path.join(log_dir, META_PROPERTIES)
    write_atomic(files, path, "".join(f"{line}\n" for line in lines).encode())


def read_topic_id(files: Files, directory: str) -> bytes:
    """Return the topic id of a partition's directory; ZERO_UUID if a crash left none.

    Raises MetaPropertiesError if a newer release wrote it.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        entries = _read_properties(files, path, ":")
    except FileNotFoundError:
        return ZERO_UUID
    try:
        topic_id = uuid_from_text(entries["topic_id"])
    except (KeyError, ValueError):
        return ZERO_UUID
    _check_version(path, entries, _PARTITION_VERSION)
    return topic_id


def write_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    """Write `partition.metadata`, not durably: the first flush of the log syncs it."""
    file = files.open(os.path.join(directory, PARTITION_METADATA), create=True)
    file.append(f"version: {_PARTITION_VERSION}\ntopic_id: {uuid_text(topic_id)}\n".encode())


def _check_version(path: str, entries: Mapping[str, str], *readable: str) -> None:
    found = entries.get("version", "0")
    if found not in readable:
        raise MetaPropertiesError(
            f"{path} has format {found}, this version of Barnabas reads {' and '.join(readable)}: "
            "start the version that wrote it"
        )


def _read_properties(files: Files, path: str, separator: str) -> dict[str, str]:
    lines = files.read_bytes(path).decode(errors="replace").splitlines()
    pairs = [line.split(separator, 1) for line in lines if separator in line]
    return {key.strip(): value.strip() for key, value in pairs if not key.startswith("#")}
