"""The outgoing answers of a connection, in order: bytes from memory, and ranges of files.

Small parts leave together in one write. A long range goes from the page cache to the socket without
a copy (sendfile), if the transport's buffer is empty. When the socket is full, a few KB are given
to the transport, which reports when they have left: a slow peer costs no more memory than that.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from barnabas.broker.loop.offload import Offload
from barnabas.broker.server.dispatch import Part
from barnabas.broker.server.network import descriptor_behind
from barnabas.broker.server.slice_reader import MAX_CHUNK, MIN_CHUNK, SliceReader
from barnabas.storage.log.log_slice import LogSlice

BYTES_PER_TURN = 2 * MAX_CHUNK
_WORTH_SENDING = 2 * MIN_CHUNK
"""The least bytes for sendfile: below, a copy costs less, and needs no separate write."""
_LEFT_TO_COPY = 4096
"""The end of a range that is copied, to leave in one write with the next part."""
_STOPPER = 4096
"""The bytes that the transport buffers while the socket is full."""
_QUEUE = "read"


class ClosedTransport:
    """The transport of a connection that is closed.

    It replaces the one that was, which may refer to the connection.
    """

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


CLOSED: Final = ClosedTransport()


class Outbox:
    """The responses that a connection has not written yet."""

    __slots__ = (
        "_chunk",
        "_failed",
        "_joins",
        "_left_of_turn",
        "_loop",
        "_offload",
        "_on_disk",
        "_paused",
        "_resumed",
        "_socket",
        "_transport",
        "_turn_over",
        "blocked",
        "parts",
    )

    def __init__(
        self, offload: Offload, resumed: Callable[[], None], failed: Callable[[OSError], None]
    ) -> None:
        """`resumed` is called when the outbox can continue, `failed` for errors of a file."""
        self._loop = asyncio.get_running_loop()
        self._offload = offload
        self._resumed = resumed
        self._failed = failed
        self._transport: Any = None
        self._socket: int | None = None
        self.parts: deque[Part | SliceReader] = deque()
        self._chunk = _WORTH_SENDING
        self._left_of_turn = BYTES_PER_TURN
        self._joins = False
        self._paused = False
        self._on_disk = False
        self._turn_over = False
        self.blocked = False
        """Whether queued parts wait for the peer, the disk or other connections."""

    def __bool__(self) -> bool:
        return bool(self.parts)

    def open(self, transport: Any) -> None:
        """Use the transport from now on."""
        self._transport = transport
        self._socket = descriptor_behind(transport)
        # The writelines of asyncio in Python 3.12 and 3.13.0 does not report what it buffers.
        self._joins = type(transport).__module__.startswith("asyncio.")
        # Report any buffered byte: a file must not overtake it.
        transport.set_write_buffer_limits(high=0)

    def put(self, parts: Iterable[Part]) -> None:
        """Queue a response."""
        self.parts.extend(parts)

    def clear(self) -> None:
        """Drop everything: the connection is closed."""
        self.parts.clear()

    def forget_owner(self) -> None:
        """Break the cycles with the connection: only the collector would free it."""
        self._resumed, self._failed = _nothing, _ignored
        self._transport = CLOSED

    def pause(self) -> None:
        """Stop writing: the transport's buffer is not empty."""
        self._paused = self.blocked = True
        self._chunk = MIN_CHUNK

    def resume(self) -> None:
        """Allow writing again; call `pump` next."""
        self._paused = False
        self._unblock()

    def _unblock(self) -> None:
        self.blocked = self._paused or self._on_disk or self._turn_over

    def pump(self) -> None:
        """Write queued parts until the socket is full or BYTES_PER_TURN are written."""
        parts = self.parts
        self._left_of_turn = BYTES_PER_TURN
        if self._transport.is_closing():
            parts.clear()
        if len(parts) == 1 and not self.blocked and type(parts[0]) is bytes:
            # Most answers.
            only: Any = parts.popleft()
            self._transport.write(only)
            self._count(len(only))
            return
        ready: list[bytes | memoryview] = []
        size = 0
        while parts and not self.blocked:
            part = parts[0]
            if isinstance(part, LogSlice):
                part = parts[0] = self._at_hand(part) or SliceReader(part)
            if not isinstance(part, SliceReader):
                ready.append(part)
                size += len(part)
                parts.popleft()
            elif part.finished:
                parts.popleft()
            elif size >= MIN_CHUNK:
                self._write(ready, size)
                ready, size = [], 0
            elif ready or not self._send(part):
                size += self._read(part, ready, self._next_chunk(part))
        if ready:
            self._write(ready, size)

    def _at_hand(self, source: LogSlice) -> memoryview | None:
        """Return the bytes of a short slice if they are cached; most answers are short."""
        if len(source) > MIN_CHUNK:
            return None
        try:
            data = source.read_nowait()
        except OSError:
            # The reader of its parts will report the error.
            return None
        return None if data is None else memoryview(data)

    def _write(self, ready: list[bytes | memoryview], size: int) -> None:
        if self._joins:
            self._transport.write(b"".join(ready))
        else:
            self._transport.writelines(ready)
        self._count(size)
        if self._transport.is_closing():
            # The peer is gone, and another connection may have its descriptor by now.
            self.parts.clear()

    def _send(self, reader: SliceReader) -> bool:
        """Send a part of a long range without a copy; return False if it has to be copied."""
        if (
            self._socket is None
            or reader.in_range < _WORTH_SENDING
            or self._transport.get_write_buffer_size()
        ):
            return False
        sent = reader.send(self._socket, min(reader.in_range - _LEFT_TO_COPY, MAX_CHUNK))
        if sent:
            self._count(sent)
        elif sent == 0:
            stopper: list[bytes | memoryview] = []
            size = self._read(reader, stopper, _STOPPER)
            if stopper:
                self._write(stopper, size)
        return sent is not None

    def _count(self, written: int) -> None:
        """Count written bytes; a fast peer must not make other connections wait."""
        self._left_of_turn -= written
        if self._left_of_turn <= 0 and not self._turn_over:
            self._turn_over = self.blocked = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_over = False
        self._unblock()
        if not self._transport.is_closing():
            self._resumed()

    def _next_chunk(self, reader: SliceReader) -> int:
        """Return the bytes to copy at once: more each time, unless sendfile can take the rest."""
        if self._socket is not None and reader.in_range >= _WORTH_SENDING:
            return MIN_CHUNK
        chunk = self._chunk
        self._chunk = min(chunk * 2, MAX_CHUNK)
        return chunk

    def _read(self, reader: SliceReader, ready: list[bytes | memoryview], chunk: int) -> int:
        """Append a chunk of a file to `ready`; return its size, 0 for a wait for the disk."""
        try:
            data = reader.read(chunk)
        except OSError as error:
            ready.clear()
            self._failed(error)
            return 0
        if data is None:
            self._on_disk = self.blocked = True
            work = self._offload.submit(_QUEUE, lambda: reader.read_from_disk(MIN_CHUNK))
            work.add_done_callback(lambda done: self._disk_answered(reader, done))
            return 0
        ready.append(memoryview(data))
        return len(data)

    def _disk_answered(self, reader: SliceReader, answer: "asyncio.Future[bytes]") -> None:
        self._on_disk = False
        self._unblock()
        if self._transport.is_closing():
            return
        try:
            data = answer.result()
            reader.advance(len(data))
        except OSError as error:
            self._failed(error)
            return
        self._transport.write(data)
        self._resumed()


def _nothing() -> None:
    """Do nothing: the connection is closed."""


def _ignored(_error: OSError) -> None:
    """Do nothing: the connection is closed."""
