"""The small text files of a log directory: version, number of entries, entries."""

from pathlib import Path

from barnabas.verify.history import Place


class UnreadableFile(Exception):
    """A file does not have the form that Kafka gives it."""


def read_entries(path: Path, width: int) -> list[list[str]]:
    """The entries of `width` words, none where there is no file; raises UnreadableFile."""
    if not path.exists():
        return []
    version, count, *lines = path.read_text("ascii", errors="replace").split("\n")[:-1] or ("", "")
    entries = [line.split(" ") for line in lines]
    if version != "0" or count != str(len(lines)) or any(len(each) != width for each in entries):
        raise UnreadableFile(f"{path} is no checkpoint")
    return entries


def read_offsets(path: Path) -> dict[Place, int]:
    """An offset for each partition; raises UnreadableFile."""
    try:
        return {(topic, int(index)): int(offset) for topic, index, offset in read_entries(path, 3)}
    except ValueError as error:
        raise UnreadableFile(f"{path}: {error}") from None
