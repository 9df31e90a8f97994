"""Files to sockets: a Fetch answer is read only as fast as its peer takes it."""

from barnabas.storage.files import File
from barnabas.storage.log_slice import LogSlice

MIN_CHUNK = 64 * 1024
MAX_CHUNK = 1024 * 1024


class Drain:
    """Walks the ranges of one answer; holds the files, but never more than one chunk of bytes."""

    __slots__ = ("_index", "_length", "_position", "_ranges")

    def __init__(self, source: LogSlice) -> None:
        self._ranges = source.ranges
        self._index = -1
        self._length = 0
        self._position = 0
        self._next_range()

    @property
    def finished(self) -> bool:
        """Whether every byte was read."""
        return self._index >= len(self._ranges)

    def read(self, size: int) -> bytes | bytearray | None:
        """Up to `size` bytes from the page cache; None where the disk would have to be waited for.

        Raises OSError where the file is shorter than the answer has promised.
        """
        data = self._file.read_nowait(min(size, self._length), self._position)
        if data is not None:
            self.advance(len(data))
        return data

    def send(self, socket: int, size: int) -> int | None:
        """Up to `size` bytes from the page cache straight to a socket; see `File.send`."""
        sent = self._file.send(socket, min(size, self._length), self._position)
        if sent:
            self.advance(sent)
        return sent

    @property
    def in_range(self) -> int:
        """Bytes left of the range it is in."""
        return self._length

    def read_from_disk(self, size: int) -> bytes:
        """The same, waiting for the disk; for a thread. `advance` follows on the loop."""
        return self._file.read(min(size, self._length), self._position)

    def advance(self, count: int) -> None:
        """Step over `count` bytes that were read."""
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
