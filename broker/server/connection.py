"""One client's connection: frames in, answers out in the order of their requests.

Only Produce overlaps Produce; any other request waits for the answers before it. Reading pauses
while answers queue up, while the memory bound is exhausted, and while the turn of the loop is
used up, so that no client holds more of the broker than its share.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.offload import Offload
from barnabas.broker.server.budget import RequestMemory
from barnabas.broker.server.context import ANONYMOUS
from barnabas.broker.server.dispatch import Answer, Dispatcher, Exchange
from barnabas.broker.server.outbox import Outbox
from barnabas.broker.server.pause_guard import UNGUARDED, Unguarded
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import FrameReader, SpareBuffers

MAX_OVERLAPPING = 64
"""Produce requests of one connection that may wait for their acknowledgements at once."""
FRAMES_PER_TURN = 32
BYTES_PER_TURN = 1024 * 1024
_PRODUCE = b"\x00\x00"
_log = get_logger(__name__)


def nobody(_connection_id: int) -> None:
    """Nobody cares about clients that go."""


class Shared:
    """What the connections of a listener share, some of it with those of the others."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        offload: Offload,
        memory: RequestMemory,
        max_request_bytes: int,
        spares: SpareBuffers,
        departed: Callable[[int], None] = nobody,
        guard: Unguarded = UNGUARDED,
    ) -> None:
        """`departed` is told the id of a connection whose peer has closed it, or is gone."""
        self.dispatcher = dispatcher
        self.offload = offload
        self.memory = memory
        self.max_request_bytes = max_request_bytes
        self.spares = spares
        self.departed = departed
        self.guard = guard


class ConnectionOwner(Protocol):
    """Who is told of connections: the listener."""

    name: str

    def opened(self, connection: "Connection", /) -> None: ...

    def closed(self, connection: "Connection", /) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket."""

    def __init__(self, shared: Shared, listener: ConnectionOwner, connection_id: int) -> None:
        self.connection_id = connection_id
        self.listener = listener.name
        self.principal = ANONYMOUS
        self.host = ""
        self.progress = 0
        """Counts what moved either way; the listener closes a connection whose count stands."""
        self._owner = listener
        self._departed = shared.departed
        self._dispatcher = shared.dispatcher
        self._guard = shared.guard
        self._memory = shared.memory
        self._reader = FrameReader(shared.max_request_bytes, shared.spares)
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._exchanges: deque[Exchange | Answer] = deque()
        self._overlaps = False
        """Whether a Produce may begin while those before it wait: they are Produce too, and
        only their acknowledgement is still to come."""
        self._stalled: memoryview | None = None
        self._out = Outbox(shared.offload, self._flows, self._cut)
        self._borrowed = 0
        self._read_paused = False
        self._closing = False
        self._eof = False
        self._turn_over = False

    # -- the transport's side --------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if isinstance(peer, tuple) else str(peer)
        self._out.open(transport)
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not (self._closing or self._eof):
            self._departed(self.connection_id)
        self._closing = True
        self._stalled = None
        self._out.clear()
        for exchange in self._exchanges:
            if isinstance(exchange, Exchange):
                exchange.abandon()
        self._exchanges.clear()
        self._memory.leave(self)
        self._owner.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self.progress += 1
        self._reader.wrote(nbytes)
        self._serve()

    def eof_received(self) -> bool:
        self._eof = True
        self._departed(self.connection_id)
        return self.busy

    def pause_writing(self) -> None:
        self._out.pause()

    def resume_writing(self) -> None:
        self.progress += 1
        self._out.resume()
        self._flows()

    # -- requests --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._exchanges or self._out or self._stalled is not None)

    @property
    def waiting_for_handler(self) -> bool:
        """Whether the broker, not the peer, has the next word."""
        return bool(self._exchanges)

    @property
    def receiving(self) -> int | None:
        """Bytes of a request that is on its way; None where the broker has the next word."""
        return None if self.busy else self._reader.buffered

    def trim(self) -> None:
        """Give back the memory of a connection that has fallen silent."""
        if self._stalled is None:
            self._reader.trim()

    def hold(self) -> None:
        """Begin nothing until `proceed`: there are too many others."""
        self._turn_over = True
        self._pause_reading()

    def proceed(self) -> None:
        """Serve what has come, and read on."""
        if not self._closing:
            self._next_turn()

    def released(self) -> None:
        """The broker knows again that it may serve."""
        if not self._closing:
            self._serve()

    def finish(self) -> None:
        """Answer what was begun, begin nothing more, then close."""
        self._closing = True
        self._pause_reading()
        if not (self._exchanges or self._out):
            self._transport.close()

    def abort(self) -> None:
        """Cut the connection without waiting for the peer."""
        self._closing = True
        self._transport.abort()

    def _serve(self) -> None:
        """Begin the requests at hand, as far as their order and the budgets allow."""
        frames, size = FRAMES_PER_TURN, BYTES_PER_TURN
        arrival, begin = self._dispatcher.arrival(), self._dispatcher.begin
        if arrival[1] > self._guard.until:
            self._guard.hold(self)
            self._pause_reading()
            return
        next_frame = self._reader.next_frame
        try:
            while not self._closing:
                frame = self._stalled
                if frame is None:
                    frame = next_frame()
                    if frame is None:
                        break
                if (
                    self._turn_over
                    or self._out.blocked
                    or (self._exchanges and not self._may_overlap(frame))
                ):
                    self._stalled = frame
                    break
                self._stalled = None
                begun = begin(frame, self, arrival)
                if self._exchanges or isinstance(begun, Exchange):
                    self._queue(begun, frame)
                else:
                    self._take(begun)
                frames -= 1
                size -= len(frame)
                if not frames or size <= 0:
                    self._turn_over = True
                    self._loop.call_soon(self._next_turn)
            self._send_answers()
            self._balance_reading()
        except ProtocolError as error:
            self._refuse(error)

    def _may_overlap(self, frame: memoryview) -> bool:
        return self._overlaps and frame[:2] == _PRODUCE and len(self._exchanges) < MAX_OVERLAPPING

    def _queue(self, begun: Answer | Exchange, frame: memoryview) -> None:
        """Keep a request, or an answer that must wait for those before it."""
        self._exchanges.append(begun)
        working = isinstance(begun, Exchange) and not begun.overlaps
        self._overlaps = frame[:2] == _PRODUCE and not working

    def answered(self, exchange: Exchange) -> None:  # noqa: ARG002
        """An answer that had to be waited for is here."""
        if self._transport.is_closing():
            return
        self._collect()
        self._send_answers()
        if not self._closing:
            self._serve()

    def _next_turn(self) -> None:
        self._turn_over = False
        self._serve()

    def _collect(self) -> None:
        """Queue the answers that are next in order."""
        exchanges = self._exchanges
        while exchanges:
            first = exchanges[0]
            if isinstance(first, Exchange):
                if not first.done:
                    break
                first = first.answer
            exchanges.popleft()
            self._take(first)

    def _take(self, answer: Answer) -> None:
        if answer is None:
            self._closing = True
            self._exchanges.clear()
        else:
            self._out.put(answer)

    def _refuse(self, error: ProtocolError) -> None:
        """Bytes that are no request: answer what came before them, then close."""
        _log.warning("connection closed", host=self.host, listener=self.listener, reason=str(error))
        self._send_answers()
        self.finish()

    # -- reading ---------------------------------------------------------------------------------

    def _balance_reading(self) -> None:
        """Read on only where the next frame could be begun and its bytes are granted."""
        wanted = self._reader.borrowed
        if (
            self._closing
            or self._stalled is not None
            or (wanted != self._borrowed and not self._resize(wanted))
        ):
            self._pause_reading()
        elif self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._read_paused and not self._transport.is_closing():
            self._read_paused = True
            self._transport.pause_reading()

    def _resize(self, wanted: int) -> bool:
        """Whether the next bytes of the frame being received fit the broker's memory bound."""
        if wanted < self._borrowed:
            self._reader.give_back()
        if not self._memory.resize(self, wanted):
            return False
        self._borrowed = wanted
        return True

    def memory_granted(self) -> None:
        """The room that reading has waited for is there."""
        self._borrowed = self._reader.borrowed
        self._balance_reading()

    # -- writing ---------------------------------------------------------------------------------

    def _send_answers(self) -> None:
        if self._out:
            self._out.pump()
        if (self._closing and not (self._exchanges or self._out)) or (self._eof and not self.busy):
            self._transport.close()

    def _flows(self) -> None:
        """What was waited for, the peer's window or the disk, is there."""
        self._send_answers()
        self._serve()

    def _cut(self, error: OSError) -> None:
        # The length of the answer is already promised: nothing but closing is honest now.
        _log.error("a log could not be read while answering", host=self.host, error=str(error))
        self._out.clear()
        self.abort()
