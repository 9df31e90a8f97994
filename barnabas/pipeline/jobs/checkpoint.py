"""The checkpoint of a query on a local disk: its query id, its batches and their offsets.

Spark writes `offsets/N` before batch N, and `commits/N` after it.
"""

import json
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from barnabas.protocol.topic_partition import TopicPartition


class Checkpoint(NamedTuple):
    """The state that a checkpoint holds; a batch is -1 before the first one."""

    query: str
    begun: int
    """The last batch that has begun."""
    done: int
    """The last batch that has ended."""
    offsets: dict[TopicPartition, int]
    """The offsets up to which batch `done` has read."""


def local_folder(location: str) -> Path | None:
    """Return the folder of a checkpoint; None if it is not on a local disk."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path)) if parts.scheme else Path(location)


def read_checkpoint(location: str) -> Checkpoint | None:
    """Return a checkpoint's state; None if it is not on a local disk, or not there yet.

    Raises ValueError if files of it cannot be read.
    """
    root = local_folder(location)
    if root is None:
        return None
    try:
        query = json.loads((root / "metadata").read_text())["id"]
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{root}/metadata is not that of a checkpoint") from None
    done = _last(root / "commits")
    offsets = _offsets(root / "offsets" / str(done)) if done >= 0 else {}
    return Checkpoint(str(query), _last(root / "offsets"), done, offsets)


def _last(directory: Path) -> int:
    names = [each.name for each in directory.iterdir()] if directory.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _offsets(path: Path) -> dict[TopicPartition, int]:
    """Return the offsets of a batch's sources; of two sources of a partition, the lower one.

    A source that has not begun has the line `-`.
    """
    lines = path.read_text().splitlines()
    try:
        if lines[0] != "v1":
            raise ValueError(f"its version is {lines[0]}")
        found: dict[TopicPartition, int] = {}
        for topics in (json.loads(each) for each in lines[2:] if each != "-"):
            for topic, partitions in topics.items():
                for number, offset in partitions.items():
                    partition = TopicPartition(topic, int(number))
                    found[partition] = min(int(offset), found.get(partition, int(offset)))
        if not lines[2:]:
            raise ValueError("it names no source")
        return found
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has no offsets of a barnabas source: {error}") from None
