"""Frames out of a byte stream: four bytes of size, then as many bytes of request or response.

The reader owns the receive buffer and hands out views of it, so a frame is never copied between
the socket and its decoder. The buffer is small where little is said, and grows with the bytes that
have arrived rather than with the size that a peer claims.
"""

from struct import Struct
from typing import Final, NoReturn

from barnabas.protocol.errors import ProtocolError

_unpack_size: Final = Struct(">i").unpack_from

SMALLEST_BUFFER: Final = 8 * 1024
LARGEST_IDLE_BUFFER: Final = 256 * 1024
"""Bytes to read ahead for a peer that keeps filling its buffer; larger frames borrow more."""
_GROWTH: Final = 4


class SpareBuffers:
    """A few large buffers that frames borrow one after another.

    Making one costs more than receiving into it: the kernel hands over every page as zeros.
    """

    __slots__ = ("_free",)

    LARGEST: Final = 4 * 1024 * 1024
    MOST: Final = 4

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, with whatever was in it, and below twice as many."""
        rounded = self.rounded(size)
        for index, buffer in enumerate(self._free):
            if len(buffer) == rounded:
                return self._free.pop(index)
        return bytearray(rounded)

    @classmethod
    def rounded(cls, size: int) -> int:
        """Bytes of the buffer that `take` has for `size`."""
        return 1 << (size - 1).bit_length() if size <= cls.LARGEST else size

    def give(self, buffer: bytearray) -> None:
        """Keep a buffer that is no longer needed, instead of the one kept longest."""
        if len(buffer) <= self.LARGEST:
            self._free.append(buffer)
            del self._free[: -self.MOST]


class FrameReader:
    """Cuts frames of at most `max_size` bytes out of what is written into its buffer.

    `writable` and `wrote` are the two halves of `asyncio.BufferedProtocol`'s receiving side.
    Readers may share `spares`.
    """

    __slots__ = ("_buffer", "_end", "_room", "_spares", "_start", "_view", "max_size")

    def __init__(self, max_size: int, spares: SpareBuffers | None = None) -> None:
        self.max_size = max_size
        self._spares = spares or SpareBuffers()
        self._room = SMALLEST_BUFFER
        self._start = 0
        self._end = 0
        self._buffer = bytearray(SMALLEST_BUFFER)
        self._view = memoryview(self._buffer)

    @property
    def buffered(self) -> int:
        """Bytes received and not yet handed out."""
        return self._end - self._start

    @property
    def borrowed(self) -> int:
        """Bytes of memory beyond an idle buffer's that receiving on takes, 0 for small frames.

        Raises ProtocolError as `next_frame` does.
        """
        if self._end - self._start < 4 and len(self._buffer) <= LARGEST_IDLE_BUFFER:
            return 0
        needed = self._needed()
        if needed <= LARGEST_IDLE_BUFFER >= len(self._buffer):
            return 0
        size = self._next_size(needed)
        return size if size > LARGEST_IDLE_BUFFER else 0

    @property
    def capacity(self) -> int:
        """Bytes of memory the buffer takes."""
        return len(self._buffer)

    def writable(self) -> memoryview:
        """Where the next bytes belong; never empty. Ends the life of every frame handed out."""
        pending = self._end - self._start
        if not pending and len(self._buffer) == self._room:
            self._start = self._end = 0
            return self._view
        needed = self._needed()
        size = self._next_size(needed)
        if size != len(self._buffer):
            self._move_to(size)
        elif not pending:
            self._start = self._end = 0
        elif self._start and (self._end == size or self._start + needed > size):
            self._view[:pending] = self._view[self._start : self._end]
            self._start, self._end = 0, pending
        return self._view[self._end :]

    def wrote(self, count: int) -> None:
        """`count` bytes now stand at the beginning of what `writable` returned."""
        self._end += count
        if self._end == len(self._buffer) and self._room < LARGEST_IDLE_BUFFER:
            self._room *= 2

    def next_frame(self) -> memoryview | None:
        """The body of the next whole frame, or None; a view that lives until `writable`.

        Raises ProtocolError on a size that is negative or above `max_size`.
        """
        start = self._start
        if self._end - start < 4:
            return None
        begin = start + 4
        size: int = _unpack_size(self._buffer, start)[0]
        if not 0 <= size <= self.max_size:
            self._refuse(size)
        end = begin + size
        if end > self._end:
            return None
        self._start = end
        return self._view[begin:end]

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes that were received elsewhere."""
        rest = memoryview(data)
        while rest:
            room = self.writable()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.wrote(count)
            rest = rest[count:]

    def give_back(self) -> None:
        """End the loan of a large frame that was handed out and is done with."""
        if len(self._buffer) > LARGEST_IDLE_BUFFER:
            self.writable()

    def trim(self) -> None:
        """Give memory back, where nothing is pending: for a connection that has fallen silent."""
        self._room = SMALLEST_BUFFER
        if not self.buffered and len(self._buffer) > SMALLEST_BUFFER:
            self._move_to(SMALLEST_BUFFER)

    def _needed(self) -> int:
        """Bytes that the frame at the front takes in all, as far as is known."""
        return 4 + self._frame_size() if self._end - self._start >= 4 else 4

    def _next_size(self, needed: int) -> int:
        """Bytes the buffer must have for what comes next, in a frame of `needed` bytes."""
        pending, size = self._end - self._start, len(self._buffer)
        # A claimed size is believed only as far as bytes have come to bear it out.
        wanted = max(self._room, min(needed, _GROWTH * pending), pending + 1)
        if wanted <= size:
            done = not pending or needed <= LARGEST_IDLE_BUFFER < size
            return wanted if done else size
        # Moving a large frame whenever a few bytes have come would copy it again and again.
        if size > LARGEST_IDLE_BUFFER and pending < size:
            return size
        return wanted if wanted <= LARGEST_IDLE_BUFFER else SpareBuffers.rounded(wanted)

    def _frame_size(self) -> int:
        size: int = _unpack_size(self._buffer, self._start)[0]
        if not 0 <= size <= self.max_size:
            self._refuse(size)
        return size

    def _refuse(self, size: int) -> NoReturn:
        raise ProtocolError(f"a frame of {size} bytes; at most {self.max_size} are accepted")

    def _move_to(self, size: int) -> None:
        """Go on in a buffer of at least `size` bytes, with what is pending."""
        old, kept = self._buffer, self._view[self._start : self._end]
        large = size > LARGEST_IDLE_BUFFER
        self._buffer = self._spares.take(size) if large else bytearray(size)
        self._view = memoryview(self._buffer)
        self._start, self._end = 0, len(kept)
        self._view[: self._end] = kept
        if len(old) > LARGEST_IDLE_BUFFER:
            self._spares.give(old)
