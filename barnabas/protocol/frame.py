"""Framing of a byte stream: four bytes of size, then that many bytes of request or response.

The reader owns the receive buffer and returns views of it, so a frame is never copied between the
socket and its decoder. The buffer starts small and grows with the bytes that have arrived, not with
the size that a peer claims.
"""

import mmap
import sys
from struct import Struct
from typing import Final, NoReturn

from barnabas.protocol.errors import ProtocolError

_unpack_size: Final = Struct(">i").unpack_from
_unpack_start: Final = Struct(">ii").unpack_from

SMALLEST_BUFFER: Final = 8 * 1024
LARGEST_IDLE_BUFFER: Final = 256 * 1024
"""Bytes to read ahead for a peer that keeps filling its buffer; larger frames borrow a buffer."""
_GROWTH: Final = 4


class SpareBuffers:
    """A few large buffers that are lent to one frame after another.

    Allocating a buffer costs more than receiving into it: the kernel clears every page.
    """

    __slots__ = ("_free",)

    LARGEST: Final = 4 * 1024 * 1024
    MOST: Final = 4

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray | mmap.mmap:
        """Return a buffer of at least `size`, below `2 * size` bytes, with arbitrary content.

        On Linux, one of more than LARGEST bytes is a mapping: it can grow without a copy, and its
        memory returns to the system when it is dropped.
        """
        rounded = self.rounded(size)
        if sys.platform == "linux" and rounded > self.LARGEST:
            return mmap.mmap(-1, rounded, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for index, buffer in enumerate(self._free):
            if len(buffer) == rounded:
                return self._free.pop(index)
        return bytearray(rounded)

    @classmethod
    def rounded(cls, size: int) -> int:
        """Return the size of the buffer that `take` returns for `size`."""
        return 1 << (size - 1).bit_length() if size <= cls.LARGEST else size

    def give(self, buffer: bytearray | mmap.mmap) -> None:
        """Keep a buffer for the next frame, and drop the oldest one if there are too many."""
        if isinstance(buffer, bytearray):
            self._free.append(buffer)
            del self._free[: -self.MOST]


class FrameReader:
    """The receive buffer of a connection, which is cut into frames of at most `max_size` bytes.

    `writable` and `wrote` are the two halves of the receiving side of `asyncio.BufferedProtocol`.
    Several readers may share `spares`.
    """

    __slots__ = (
        *("_buffer", "_end", "_idle_size", "_spares", "_start", "_view"),
        *("max_size", "uncounted"),
    )

    def __init__(self, max_size: int, spares: SpareBuffers | None = None) -> None:
        self.max_size = max_size
        self.uncounted = LARGEST_IDLE_BUFFER
        """The bytes of a buffer up to which none of them count as borrowed."""
        self._spares = spares or SpareBuffers()
        self._idle_size = SMALLEST_BUFFER
        self._start = 0
        self._end = 0
        # Many connections never send anything.
        self._buffer: bytearray | mmap.mmap = bytearray()
        self._view = memoryview(self._buffer)

    @property
    def buffered(self) -> int:
        """Bytes received and not returned as part of a frame yet."""
        return self._end - self._start

    @property
    def borrowed(self) -> int:
        """Bytes of the buffer that receiving the rest takes; 0 up to `uncounted`.

        Raise ProtocolError as `next_frame` does.
        """
        uncounted = self.uncounted
        if self._end - self._start < 4 and len(self._buffer) <= uncounted:
            return 0
        needed = self._needed()
        if needed <= uncounted >= len(self._buffer):
            return 0
        size = self._next_size(needed)
        return size if size > uncounted else 0

    @property
    def announced(self) -> int:
        """The known bytes of the next frame, with its length field."""
        return self._needed()

    @property
    def capacity(self) -> int:
        """Bytes of memory that the buffer takes."""
        return len(self._buffer)

    def writable(self, _sizehint: int = -1) -> memoryview:
        """Return the memory for the next bytes, never empty; frames returned before are invalid.

        The signature is that of `asyncio.BufferedProtocol.get_buffer`.
        """
        pending = self._end - self._start
        if not pending and len(self._buffer) == self._idle_size:
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

    def wrote(self, count: int, take: object = None) -> tuple[int, memoryview] | None:
        """Record that `count` bytes were written at the beginning of the memory from `writable`.

        If `take` is true, and the next frame is complete and alone, take it; return the number in
        its first four bytes, and its body.
        """
        start, end = self._start, self._end + count
        self._end = end
        if end == len(self._buffer) and self._idle_size < LARGEST_IDLE_BUFFER:
            self._idle_size *= 2
        size = end - start - 4
        if not take or not 4 <= size <= self.max_size:
            return None
        announced, number = _unpack_start(self._buffer, start)
        if announced != size:
            return None
        self._start = end
        return number, self._view[start + 4 : end]

    def put_back(self, frame: memoryview) -> None:
        """Return the frame that `wrote` has taken."""
        self._start -= 4 + len(frame)

    def next_frame(self) -> memoryview | None:
        """Return the body of the next complete frame, or None; a view, valid until `writable`.

        Raise ProtocolError if the size is negative or above `max_size`.
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
        """Append bytes that were received elsewhere."""
        rest = memoryview(data)
        while rest:
            space = self.writable()
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            # A view of the buffer would keep it from growing in its place.
            del space
            self.wrote(count)
            rest = rest[count:]

    def give_back(self) -> None:
        """Return the borrowed buffer of a large frame that has been processed."""
        if len(self._buffer) > self.uncounted:
            self.writable()

    def drop(self) -> None:
        """Give up the buffer, with what is pending: the connection is closed.

        Its object may live until the garbage collector finds it.
        """
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = self._end = 0

    def trim(self) -> None:
        """Shrink the buffer of an idle connection to its smallest size if no bytes are pending."""
        self._idle_size = SMALLEST_BUFFER
        if not self.buffered and len(self._buffer) > SMALLEST_BUFFER:
            self._move_to(SMALLEST_BUFFER)

    def _needed(self) -> int:
        """Return the known size of the next frame, with its length field."""
        return 4 + self._frame_size() if self._end - self._start >= 4 else 4

    def _next_size(self, needed: int) -> int:
        """Return the size that the buffer needs for the next bytes of a frame of `needed` bytes."""
        pending, size = self._end - self._start, len(self._buffer)
        # The claimed size counts only up to a multiple of the bytes that have arrived.
        wanted = max(self._idle_size, min(needed, _GROWTH * pending), pending + 1)
        if wanted <= size:
            done = not pending or needed <= LARGEST_IDLE_BUFFER < size
            return wanted if done else size
        # Growing a large buffer with every few bytes would copy the frame again and again.
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
        """Switch to a buffer of at least `size` bytes that has the pending bytes."""
        if self._grown(size):
            return
        old, kept = self._buffer, self._view[self._start : self._end]
        large = size > LARGEST_IDLE_BUFFER
        self._buffer = self._spares.take(size) if large else bytearray(size)
        self._view = memoryview(self._buffer)
        self._start, self._end = 0, len(kept)
        self._view[: self._end] = kept
        if len(old) > LARGEST_IDLE_BUFFER:
            self._spares.give(old)

    def _grown(self, size: int) -> bool:
        """Return whether the buffer has grown to `size` where it is.

        To copy a frame of 32 MB held the event loop for 66 ms.
        """
        buffer = self._buffer
        if isinstance(buffer, bytearray) or self._start or size < len(buffer):
            return False
        self._view.release()
        try:
            buffer.resize(size)
        except BufferError:
            # A view of it is still in use.
            return False
        finally:
            self._view = memoryview(buffer)
        return True
