"""The reader of a log slice for a socket: a Fetch answer is read as fast as its peer takes it."""

from barnabas.storage.files.files import File
from barnabas.storage.log.log_slice import LogSlice

MIN_CHUNK = 64 * 1024
MAX_CHUNK = 1024 * 1024


class SliceReader:
    """The position in the file ranges of one answer; at most one chunk of bytes is in memory."""

    __slots__ = ("_index", "_length", "_position", "_ranges")

    def __init__(self, source: LogSlice) -> None:
        self._ranges = source.ranges
        self._index = -1
        self._length = 0
        self._position = 0
        self._next_range()

    @property
    def finished(self) -> bool:
        """Whether all bytes are read."""
        return self._index >= len(self._ranges)

    def read(self, size: int) -> bytes | bytearray | None:
        """Return up to `size` bytes from the page cache; None if they are not cached.

        Raises OSError if the file is shorter than the slice.
        """
        data = self._file.read_nowait(min(size, self._length), self._position)
        if data is not None:
            self.advance(len(data))
        return data

    def send(self, socket: int, size: int) -> int | None:
        """Send up to `size` bytes from the page cache to a socket; see `File.send`."""
        sent = self._file.send(socket, min(size, self._length), self._position)
        if sent:
            self.advance(sent)
        return sent

    @property
    def in_range(self) -> int:
        """The bytes left in the present range."""
        return self._length

    def read_from_disk(self, size: int) -> bytes:
        """Read and wait for the disk, in a thread; call `advance` on the loop afterwards."""
        return self._file.read(min(size, self._length), self._position)

    def advance(self, count: int) -> None:
        """Advance the position by `count` bytes."""
        if count == 0:
            raise OSError(f"{self._file.path} ends before position {self._position}")
        self._position += count
        self._length -= count
        if self._length == 0:
            self._next_range()

    @property
    def _file(self) -> File:
        return self._ranges[self._index][0]

    def _next_range(self) -> None:
        self._index += 1
        while not self.finished:
            _, self._position, self._length = self._ranges[self._index]
            if self._length:
                return
            self._index += 1
