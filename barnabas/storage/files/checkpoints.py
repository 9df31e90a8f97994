"""Kafka's checkpoint files: a version, a count and that many lines of text.

    0                         version
    2                         number of entries
    orders 0 1500             one line per entry: topic, partition, offset
    orders 1 300

Checkpoints are written atomically and durably. A missing file reads as empty; a torn file or one of
another version raises. The caller decides what to do without a checkpoint: a log can always be
scanned instead.
"""

from collections.abc import Iterable, Mapping

from barnabas.storage.files.files import Files, write_atomic

_VERSION = 0

Offsets = dict[tuple[str, int], int]
"""Offsets by topic and partition."""


class CorruptCheckpointError(Exception):
    """A file that does not have the format of a checkpoint."""


def write_lines(files: Files, path: str, lines: Iterable[str]) -> None:
    """Replace the checkpoint at `path`; raises OSError."""
    body = list(lines)
    text = "".join(f"{line}\n" for line in (_VERSION, len(body), *body))
    write_atomic(files, path, text.encode())


def read_lines(files: Files, path: str) -> list[list[str]]:
    """Return the entries, split at blanks; an empty list if the file is missing.

    Raises CorruptCheckpointError.
    """
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return []
    try:
        version, count, *lines = data.decode("ascii").splitlines()
        if int(version) == _VERSION and int(count) == len(lines):
            return [line.split() for line in lines]
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None
    raise CorruptCheckpointError(f"{path}: version {version}, {len(lines)} of {count} entries")


def write_offsets(files: Files, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write a recovery-point, log-start, replication or cleaner checkpoint."""
    write_lines(files, path, (f"{t} {p} {offset}" for (t, p), offset in sorted(offsets.items())))


def read_offsets(files: Files, path: str) -> Offsets:
    """Return the offsets of a checkpoint; raises CorruptCheckpointError."""
    lines = read_lines(files, path)
    try:
        return {
            (topic, _natural(partition)): _natural(offset) for topic, partition, offset in lines
        }
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(f"negative: {text}")
    return value
