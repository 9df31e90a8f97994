"""Kafka's checkpoint files: small texts of a version, a count and that many lines.

    0                         version
    2                         entries that follow
    orders 0 1500             one line each: topic, partition, offset
    orders 1 300

Written atomically and durably. A file that is torn or of another version is told from a missing
one; what to do without it is the caller's to know, a log can always be scanned instead.
"""

from collections.abc import Iterable, Mapping

from barnabas.storage.files import Files, write_atomic

_VERSION = 0

Offsets = dict[tuple[str, int], int]
"""By topic and partition."""


class CorruptCheckpointError(Exception):
    """The file does not have the form of a checkpoint."""


def write_lines(files: Files, path: str, lines: Iterable[str]) -> None:
    """Replaces the checkpoint at `path`; raises OSError."""
    body = list(lines)
    text = "".join(f"{line}\n" for line in (_VERSION, len(body), *body))
    write_atomic(files, path, text.encode())


def read_lines(files: Files, path: str) -> list[list[str]]:
    """The entries, split at blanks; none if the file is missing.

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
    """Writes a recovery-point, log-start, replication or cleaner checkpoint."""
    write_lines(files, path, (f"{t} {p} {offset}" for (t, p), offset in sorted(offsets.items())))


def read_offsets(files: Files, path: str) -> Offsets:
    """The offsets of such a file; raises CorruptCheckpointError."""
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
