"""A stretch of a log on its way to a socket: ranges of files, read as the socket drains."""

from collections.abc import Iterator

from barnabas.storage.files import File

FileRange = tuple[File, int, int]
"""A file, a position in it and a length, in bytes."""


class LogSlice:
    """Whole batches from the one that has `start_offset` on, all of them below `end_offset`.

    Costs no memory until it is read.

    It holds its files open: it stays readable while segments are rolled, renamed and deleted.
    """

    __slots__ = ("_size", "end_offset", "ranges", "start_offset")

    def __init__(self, start_offset: int, end_offset: int, ranges: tuple[FileRange, ...]) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.ranges = ranges
        self._size = ranges[0][2] if len(ranges) == 1 else sum(length for _, _, length in ranges)

    def __len__(self) -> int:
        """Bytes in all ranges."""
        return self._size

    def read_nowait(self) -> bytes | bytearray | None:
        """All of it, where it is one range that the page cache holds; raises OSError."""
        if len(self.ranges) != 1:
            return None
        file, position, length = self.ranges[0]
        data = file.read_nowait(length, position)
        return data if data is not None and len(data) == length else None

    def chunks(self, max_bytes: int = 1 << 20) -> Iterator[FileRange]:
        """The ranges in pieces of at most `max_bytes`."""
        for file, position, length in self.ranges:
            for at in range(position, position + length, max_bytes):
                yield file, at, min(max_bytes, position + length - at)

    def read_bytes(self) -> bytes:
        """All of it, for small slices; raises OSError."""
        return b"".join(file.read(length, position) for file, position, length in self.ranges)
