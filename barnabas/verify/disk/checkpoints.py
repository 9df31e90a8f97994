"""The checkpoint files of a log directory: version, number of entries, entries."""

from pathlib import Path

from barnabas.verify.history import Partition


class UnreadableFile(Exception):
    """The file does not have Kafka's format."""


def read_entries(path: Path, width: int) -> list[list[str]]:
    """Return the entries of `width` words, or none without a file; raises UnreadableFile."""
    if not path.exists():
        return []
    version, count, *lines = path.read_text("ascii", errors="replace").split("\n")[:-1] or ("", "")
    entries = [line.split(" ") for line in lines]
    if version != "0" or count != str(len(lines)) or any(len(each) != width for each in entries):
        raise UnreadableFile(f"{path} is no checkpoint")
    return entries


def read_offsets(path: Path) -> dict[Partition, int]:
    """Return the offset of each partition; raises UnreadableFile."""
    try:
        return {(topic, int(index)): int(offset) for topic, index, offset in read_entries(path, 3)}
    except ValueError as error:
        raise UnreadableFile(f"{path}: {error}") from None
