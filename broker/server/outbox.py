"""Answers on their way out of one connection, in order: bytes from memory, ranges from files.

Small pieces leave together in one write. A long range goes from the page cache to the socket
without being copied (sendfile), whenever the transport holds nothing that must leave before it.
Once the socket is full a little more is read and handed to the transport, which tells when that is
gone: all the memory that a slow peer costs, however much it has asked for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from barnabas.broker.offload import Offload
from barnabas.broker.server.dispatch import Part
from barnabas.broker.server.drain import MAX_CHUNK, MIN_CHUNK, Drain
from barnabas.broker.server.network import descriptor_behind
from barnabas.storage.log_slice import LogSlice

BYTES_PER_TURN = 2 * MAX_CHUNK
_WORTH_SENDING = 2 * MIN_CHUNK
"""Below it, copying costs less than asking what is cached, and needs no write of its own."""
_LEFT_TO_COPY = 4096
"""The end of a range leaves in one write with what follows it, mostly a few bytes."""
_STOPPER = 4096
"""What the transport gets to hold while the socket is full."""
_LANE = "read"


class Outbox:
    """What a connection has still to write."""

    __slots__ = (
        "_chunk",
        "_failed",
        "_left_of_turn",
        "_loop",
        "_offload",
        "_on_disk",
        "_parts",
        "_paused",
        "_resumed",
        "_socket",
        "_transport",
        "_turn_over",
        "blocked",
    )

    def __init__(
        self, offload: Offload, resumed: Callable[[], None], failed: Callable[[OSError], None]
    ) -> None:
        """`resumed` is told when it can go on without the peer, `failed` of a file's errors."""
        self._loop = asyncio.get_running_loop()
        self._offload = offload
        self._resumed = resumed
        self._failed = failed
        self._transport: Any = None
        self._socket: int | None = None
        self._parts: deque[Part | Drain] = deque()
        self._chunk = _WORTH_SENDING
        self._left_of_turn = BYTES_PER_TURN
        self._paused = False
        self._on_disk = False
        self._turn_over = False
        self.blocked = False
        """Whether what is queued now has to wait: for the peer, the disk or other connections."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def open(self, transport: Any) -> None:
        """From here on bytes can leave."""
        self._transport = transport
        self._socket = descriptor_behind(transport)
        # Told as soon as the transport holds anything: then a file must not overtake it.
        transport.set_write_buffer_limits(high=0)

    def put(self, parts: Iterable[Part]) -> None:
        """Queue an answer."""
        self._parts.extend(parts)

    def clear(self) -> None:
        """Forget everything: nobody will read it."""
        self._parts.clear()

    def pause(self) -> None:
        """The transport holds more than it wants to."""
        self._paused = self.blocked = True
        self._chunk = MIN_CHUNK

    def resume(self) -> None:
        """The transport has room again: `pump` goes on."""
        self._paused = False
        self._unblock()

    def _unblock(self) -> None:
        self.blocked = self._paused or self._on_disk or self._turn_over

    def pump(self) -> None:
        """Write what is queued until the peer's window is full, or the turn is over."""
        parts = self._parts
        self._left_of_turn = BYTES_PER_TURN
        if self._transport.is_closing():
            parts.clear()
        ready: list[bytes | memoryview] = []
        size = 0
        while parts and not self.blocked:
            part = parts[0]
            if isinstance(part, LogSlice):
                part = parts[0] = self._at_hand(part) or Drain(part)
            if not isinstance(part, Drain):
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
        """The bytes of a short slice that are in memory; most answers to a consumer are that."""
        if len(source) > MIN_CHUNK:
            return None
        try:
            data = source.read_nowait()
        except OSError:
            # Read again in parts, it fails again.
            return None
        return None if data is None else memoryview(data)

    def _write(self, ready: list[bytes | memoryview], size: int) -> None:
        self._transport.writelines(ready)
        self._count(size)
        if self._transport.is_closing():
            # The peer is gone, and its descriptor may be another connection's by now.
            self._parts.clear()

    def _send(self, drain: Drain) -> bool:
        """Whether a long range goes to the socket without being copied."""
        if (
            self._socket is None
            or drain.in_range < _WORTH_SENDING
            or self._transport.get_write_buffer_size()
        ):
            return False
        sent = drain.send(self._socket, min(drain.in_range - _LEFT_TO_COPY, MAX_CHUNK))
        if sent:
            self._count(sent)
        elif sent == 0:
            stopper: list[bytes | memoryview] = []
            size = self._read(drain, stopper, _STOPPER)
            if stopper:
                self._write(stopper, size)
        return sent is not None

    def _count(self, written: int) -> None:
        """A peer that keeps up with the broker is no reason to let all others wait."""
        self._left_of_turn -= written
        if self._left_of_turn <= 0 and not self._turn_over:
            self._turn_over = self.blocked = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_over = False
        self._unblock()
        if not self._transport.is_closing():
            self._resumed()

    def _next_chunk(self, drain: Drain) -> int:
        """How much to copy at once: more each time, unless the rest of a range may be sent."""
        if self._socket is not None and drain.in_range >= _WORTH_SENDING:
            return MIN_CHUNK
        chunk = self._chunk
        self._chunk = min(chunk * 2, MAX_CHUNK)
        return chunk

    def _read(self, drain: Drain, ready: list[bytes | memoryview], chunk: int) -> int:
        """Copy a chunk of a file behind what is `ready`; its size, 0 where it comes later."""
        try:
            data = drain.read(chunk)
        except OSError as error:
            ready.clear()
            self._failed(error)
            return 0
        if data is None:
            self._on_disk = self.blocked = True
            work = self._offload.submit(_LANE, lambda: drain.read_from_disk(MIN_CHUNK))
            work.add_done_callback(lambda done: self._disk_answered(drain, done))
            return 0
        ready.append(memoryview(data))
        return len(data)

    def _disk_answered(self, drain: Drain, answer: "asyncio.Future[bytes]") -> None:
        self._on_disk = False
        self._unblock()
        if self._transport.is_closing():
            return
        try:
            data = answer.result()
            drain.advance(len(data))
        except OSError as error:
            self._failed(error)
            return
        self._transport.write(data)
        self._resumed()
