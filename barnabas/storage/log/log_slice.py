"""A range of a log on its way to a socket: file ranges, read as the socket drains."""

from collections.abc import Iterator

from barnabas.storage.files.files import File

FileRange = tuple[File, int, int]
"""A file, a position in it and a length, in bytes."""


class LogSlice:
    """Whole batches from the one that contains `start_offset`, all below `end_offset`.

    A slice takes no memory until it is read. It holds its files open, so it stays readable while
    segments are rolled, renamed and deleted.
    """

    __slots__ = ("_size", "end_offset", "ranges", "start_offset")

    def __init__(self, start_offset: int, end_offset: int, ranges: tuple[FileRange, ...]) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.ranges = ranges
        self._size = ranges[0][2] if len(ranges) == 1 else sum(length for _, _, length in ranges)

    def __len__(self) -> int:
        """Return the bytes in all ranges."""
        return self._size

    def read_nowait(self) -> bytes | bytearray | None:
        """Return all bytes if they are one range in the page cache, else None; raises OSError."""
        if len(self.ranges) != 1:
            return None
        file, position, length = self.ranges[0]
        data = file.read_nowait(length, position)
        return data if data is not None and len(data) == length else None

    def chunks(self, max_bytes: int = 1 << 20) -> Iterator[FileRange]:
        """Yield the ranges in pieces of at most `max_bytes`."""
        for file, position, length in self.ranges:
            for at in range(position, position + length, max_bytes):
                yield file, at, min(max_bytes, position + length - at)

    def read_bytes(self) -> bytes:
        """Return all bytes, for small slices; raises OSError."""
        return b"".join(file.read(length, position) for file, position, length in self.ranges)
