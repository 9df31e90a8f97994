"""A client's connection: it reads frames, and answers in the order of the requests.

A Produce request may begin while an earlier Produce waits, and a request about a transactional id
while others wait that are about other ids; any other request waits for the responses before it.
Reading pauses while answers queue up, while the memory limit is reached, and when a connection has
used its share of an iteration of the event loop.
"""

import asyncio
import math
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.broker.loop.offload import Offload
from barnabas.broker.loop.pause_guard import NO_PAUSE_GUARD, NoPauseGuard
from barnabas.broker.loop.slices import TURN_S
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.dispatch import Arrival, Dispatcher, EncodedResponse, Exchange
from barnabas.broker.server.limits.budget import RequestMemory, UnreadAnswers
from barnabas.broker.server.outbox import CLOSED, Outbox
from barnabas.broker.server.repeats import Repeats
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import (
    LARGEST_IDLE_BUFFER,
    SMALLEST_BUFFER,
    FrameReader,
    SpareBuffers,
)
from barnabas.protocol.header import leading_string
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
)
from barnabas.security.principal import ANONYMOUS, Principal

MAX_OVERLAPPING = 256
"""The requests of one connection that may wait for acknowledgements at the same time."""
FRAMES_PER_TURN = 32
BYTES_PER_TURN = 1024 * 1024
UNCOUNTED = 256 * 1024
"""The bytes of requests that wait for their responses which a connection keeps without asking for
memory."""
_NOTABLE_S = 0.001
"""The time of requests that counts against those of other connections."""
_PRODUCE = b"\x00\x00"
_NEWEST_WITH_TRANSACTIONAL_ID = {
    api.key.to_bytes(2, "big"): newest
    for api, newest in (
        (init_producer_id.API, init_producer_id.API.versions[-1]),
        # Later versions are for brokers, and about many transactions.
        (add_partitions_to_txn.API, 3),
        (add_offsets_to_txn.API, add_offsets_to_txn.API.versions[-1]),
        (end_txn.API, end_txn.API.versions[-1]),
    )
}
"""The last version of each API whose requests begin with one transactional id."""
Begin = Callable[[memoryview, "Connection", Arrival], EncodedResponse | Exchange]
_log = get_logger(__name__)


def transactional_id_of(frame: memoryview) -> bytes | None:
    """Return the transactional id with which the body of a request begins.

    None for a request without one, and for an API whose requests do not begin with one.
    """
    newest = _NEWEST_WITH_TRANSACTIONAL_ID.get(bytes(frame[:2]))
    if newest is None or int.from_bytes(frame[2:4], "big") > newest:
        return None
    try:
        return leading_string(frame)
    except ProtocolError:
        # The dispatcher refuses it in its turn.
        return None


def ignore_departure(_connection: "Connection") -> None:
    """Do nothing about a closed connection."""


class SharedResources:
    """The resources that the connections of a listener share, some of them with other listeners."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        offload: Offload,
        memory: RequestMemory,
        max_request_bytes: int,
        spares: SpareBuffers,
        strangers: RequestMemory | None = None,
        unread: UnreadAnswers | None = None,
        departed: "Callable[[Connection], None]" = ignore_departure,
        guard: NoPauseGuard = NO_PAUSE_GUARD,
    ) -> None:
        """`strangers` is the memory for requests before authentication; without it they share that
        of the others. `departed` is called with a connection that its peer has closed."""
        self.dispatcher = dispatcher
        self.offload = offload
        self.memory = memory
        self.strangers = strangers or memory
        self.max_request_bytes = max_request_bytes
        self.spares = spares
        self.unread = unread or UnreadAnswers(sys.maxsize)
        self.departed = departed
        self.guard = guard


class ConnectionOwner(Protocol):
    """The listener, as its connections use it."""

    name: str

    def opened(self, connection: "Connection", /) -> None: ...

    def closed(self, connection: "Connection", /) -> None: ...

    def invalid_request(self, connection: "Connection", reason: str, /) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket."""

    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]

    def __init__(
        self, shared: SharedResources, listener: ConnectionOwner, connection_id: int
    ) -> None:
        self.connection_id = connection_id
        self.listener = listener.name
        self.principal: Principal = ANONYMOUS
        self.host = ""
        self.active_at = shared.dispatcher.monotonic()
        """The time of the last progress, in seconds of the monotonic clock."""
        self._received = 0
        self._owner = listener
        self._departed = shared.departed
        self._dispatcher = shared.dispatcher
        self.begin: Begin = shared.dispatcher.begin
        """Begins a request. On a listener with SASL it is the authentication at first."""
        self.repeats: dict[int, Repeats] = {}
        """The memory of requests that repeat, by API key and version as one number."""
        self.repeats_until = math.inf
        """The monotonic time until which they may be served: the end of the session."""
        self._slicer = shared.dispatcher.slicer
        self._guard = shared.guard
        self._memory = shared.memory
        self._memories = (shared.memory, shared.strangers)
        self._unread = shared.unread
        self._reader = FrameReader(shared.max_request_bytes, shared.spares)
        self.get_buffer = self._reader.writable
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._exchanges: deque[tuple[Exchange | EncodedResponse, bytes | None, int]] = deque()
        """The requests that wait, in order, each with the transactional id that it is about, and
        its size."""
        self._unanswered = 0
        """The bytes of the requests that wait: their records and elements are in memory."""
        self._transactional_ids: set[bytes] = set()
        """The ids in `_exchanges`; empty if not all requests there are about one."""
        self._overlaps = False
        """Whether a Produce may begin while earlier requests wait: all of them are Produce requests
        that wait only for acknowledgements."""
        self._stalled: memoryview | None = None
        self._out = Outbox(shared.offload, self._flows, self._cut)
        self._borrowed = 0
        self._read_paused = False
        self._closing = False
        self._eof = False
        self.answers_after_eof = True
        """Whether a request is still answered after its peer has closed its side."""
        self._turn_over = False
        self._throttled: asyncio.TimerHandle | None = None
        """The end of the time for which a quota throttles the connection."""

    # -- the transport's side --------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        # The name of a Unix socket is empty.
        self.host = peer[0] if isinstance(peer, tuple) else str(peer) or "127.0.0.1"
        self._out.open(transport)
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not (self._closing or self._eof):
            self._departed(self)
        self._closing = True
        self._stalled = None
        if self._throttled is not None:
            self._throttled.cancel()
        self._out.clear()
        self._out.forget_owner()
        self._transport = CLOSED
        for exchange, *_ in self._exchanges:
            if isinstance(exchange, Exchange):
                exchange.abandon()
        self._forget_exchanges()
        self.repeats.clear()
        self._reader.drop()
        self._memory.leave(self)
        self._unread.remove(self)
        self._owner.closed(self)

    def buffer_updated(self, nbytes: int) -> None:
        self._received += nbytes
        alone = self._reader.wrote(nbytes, self.repeats)
        tried = False
        if alone is not None:
            key, frame = alone
            memory = self.repeats.get(key)
            # Nothing else is to be done, or has to be waited for.
            if memory is not None and not (
                self._exchanges
                or self._turn_over
                or self._closing
                or self._borrowed
                or self._stalled is not None
                or self._out.blocked
                or self._slicer.crowded
            ):
                dispatcher = self._dispatcher
                self.active_at = started = dispatcher.monotonic()
                if started <= self._guard.until and started < self.repeats_until:
                    parts = memory.serve(frame, dispatcher.now_ms(), started)
                    if parts is not None:
                        transport = self._transport
                        if (
                            len(parts) == 1
                            and type(parts[0]) is bytes
                            and not transport.is_closing()
                        ):
                            transport.write(parts[0])
                        else:
                            self._out.put(parts)
                            self._out.pump()
                        taken = dispatcher.monotonic() - started
                        if taken > _NOTABLE_S:
                            self._slicer.spend(taken)
                        return
                    tried = True
            self._reader.put_back(frame)
            del alone, frame
        self._serve(tried=tried)

    def eof_received(self) -> bool:
        self._eof = True
        self._departed(self)
        return self.busy and self.answers_after_eof

    def pause_writing(self) -> None:
        self._out.pause()
        self._unread.add(self)

    def resume_writing(self) -> None:
        self._unread.remove(self)
        self._out.resume()
        self._flows()

    # -- requests --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._exchanges or self._out or self._stalled is not None)

    @property
    def waiting_for_broker(self) -> bool:
        """Whether a request waits for the broker, not for the peer or for its quota."""
        paused_by_broker = self._read_paused and self._throttled is None
        return bool(self._exchanges) or (paused_by_broker and not self._out)

    @property
    def oldest(self) -> object | None:
        """The first request that waits for its response."""
        return self._exchanges[0][0] if self._exchanges else None

    @property
    def receiving(self) -> int | None:
        """The received bytes of an incomplete request; None without one, and while reading is
        paused."""
        return None if self._read_paused else self._reader.buffered or None

    @property
    def unread(self) -> int:
        """The bytes of responses in memory that the peer has not read."""
        return int(self._transport.get_write_buffer_size())

    @property
    def announced(self) -> int:
        """The known size of the incomplete request."""
        return self._reader.announced

    @property
    def served_bytes(self) -> int:
        """The received bytes of whole requests."""
        return self._received - self._reader.buffered

    def limit_requests(self, size: int, *, stranger: bool) -> None:
        """Refuse requests of more than `size` bytes from now on.

        Those of a stranger, which has not authenticated, have their own memory from the start.
        """
        self._reader.max_size = size
        self._reader.uncounted = SMALLEST_BUFFER if stranger else LARGEST_IDLE_BUFFER
        self._memory.leave(self)
        self._memory, self._borrowed = self._memories[stranger], 0

    def trim(self) -> None:
        """Give back the memory of a silent connection."""
        self.repeats.clear()
        if self._stalled is None and not self._frame_in_use:
            self._reader.trim()

    def hold(self) -> None:
        """Begin no request before `proceed`: the limit of connections is reached."""
        self._turn_over = True
        self._pause_reading()

    def proceed(self) -> None:
        """Serve the received requests, and continue to read."""
        if not self._closing:
            self._next_turn()

    def throttle(self, seconds: float) -> None:
        """Begin no request for some seconds: the client is over a quota (KIP-219)."""
        end = self._loop.time() + seconds
        if self._throttled is not None:
            if end <= self._throttled.when():
                return
            self._throttled.cancel()
        self._throttled = self._loop.call_at(end, self._unthrottle)
        self._turn_over = True
        self._pause_reading()

    def _unthrottle(self) -> None:
        self._throttled = None
        if not self._closing:
            self._next_turn()

    def released(self) -> None:
        """Serve again after a pause of the process."""
        if not self._closing:
            self._serve()

    def finish(self) -> None:
        """Answer the requests that have begun, begin no more, then close."""
        self._closing = True
        self._pause_reading()
        if not (self._exchanges or self._out):
            self._transport.close()

    def abort(self) -> None:
        """Close the connection without waiting for the peer."""
        self._closing = True
        self._transport.abort()

    def _serve(self, *, tried: bool = False) -> None:
        """Begin the received requests that their order and the limits allow.

        With `tried` the first one does not repeat an earlier one.
        """
        frames, size = FRAMES_PER_TURN, BYTES_PER_TURN
        arrival, begin = self._dispatcher.arrival(), self.begin
        self.active_at = arrival[1]
        if arrival[1] > self._guard.until:
            self._guard.hold(self)
            self._pause_reading()
            return
        if self._slicer.crowded and not self._turn_over:
            self._end_turn()
        next_frame, monotonic = self._reader.next_frame, self._dispatcher.monotonic
        now = begun_at = arrival[1]
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
                begun: EncodedResponse | Exchange = None
                if self.repeats and not tried and now < self.repeats_until:
                    memory = self.repeats.get(int.from_bytes(frame[:4]))
                    begun = None if memory is None else memory.serve(frame, *arrival)
                if begun is None:
                    begun = begin(frame, self, arrival)
                tried = False
                if type(begun) is list and not self._exchanges:
                    self._out.put(begun)
                elif self._exchanges or isinstance(begun, Exchange):
                    self._queue(begun, frame)
                else:
                    self._take(begun)
                frames -= 1
                size -= len(frame)
                now = monotonic()
                if not frames or size <= 0 or now > begun_at + TURN_S:
                    self._end_turn()
            if now > begun_at + _NOTABLE_S:
                self._slicer.spend(now - begun_at)
            self._send_answers()
            self._balance_reading()
        except ProtocolError as error:
            self._refuse(error)

    def _may_overlap(self, frame: memoryview) -> bool:
        if len(self._exchanges) >= MAX_OVERLAPPING:
            return False
        if frame[:2] == _PRODUCE:
            return self._overlaps
        if not self._transactional_ids or self._frame_in_use:
            return False
        # The requests about one id stay in their order: an EndTxn must not overtake an
        # AddPartitionsToTxn.
        transactional_id = transactional_id_of(frame)
        return transactional_id is not None and transactional_id not in self._transactional_ids

    def _queue(self, begun: EncodedResponse | Exchange, frame: memoryview) -> None:
        """Keep a request that waits, or a response that must wait for earlier ones."""
        transactional_id = transactional_id_of(frame)
        self._exchanges.append((begun, transactional_id, len(frame)))
        self._unanswered += len(frame)
        if transactional_id is not None:
            self._transactional_ids.add(transactional_id)
        working = isinstance(begun, Exchange) and not begun.overlaps
        self._overlaps = frame[:2] == _PRODUCE and not working

    def answered(self, exchange: Exchange) -> None:
        """Send the response of a request that had to wait."""
        if len(self._exchanges) == 1:
            self._send_next_answers()
        elif self._exchanges and self._exchanges[0][0] is exchange:
            # Several requests may be answered in this iteration of the loop: one write for all.
            self._loop.call_soon(self._send_next_answers)

    def _send_next_answers(self) -> None:
        if self._transport.is_closing():
            return
        self._collect()
        self._send_answers()
        if not self._closing:
            self._serve()

    def handled(self, exchange: Exchange) -> None:
        """Begin the next requests that `exchange` allows: its handler has returned."""
        if self._exchanges and self._exchanges[-1][0] is exchange and not self._closing:
            self._overlaps = exchange.overlaps
            self._serve()

    @property
    def _frame_in_use(self) -> bool:
        """Whether a handler that has not returned reads from the receive buffer."""
        # No request begins behind it.
        last = self._exchanges[-1][0] if self._exchanges else None
        return isinstance(last, Exchange) and last.reads_frame

    def _end_turn(self) -> None:
        """Begin no more requests in this iteration of the event loop."""
        self._turn_over = True
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._throttled is None:
            self._turn_over = False
            self._serve()

    def _collect(self) -> None:
        """Move the responses that are next in order to the outbox."""
        exchanges = self._exchanges
        while exchanges:
            first, transactional_id, size = exchanges[0]
            if isinstance(first, Exchange):
                if not first.done:
                    break
                first = first.answer
            exchanges.popleft()
            self._unanswered -= size
            if transactional_id is not None:
                self._transactional_ids.discard(transactional_id)
            self._take(first)

    def _take(self, answer: EncodedResponse) -> None:
        if isinstance(answer, list):
            self._out.put(answer)
            return
        self._closing = True
        self._forget_exchanges()
        if answer is not None:
            self.report(answer)

    def _forget_exchanges(self) -> None:
        self._exchanges.clear()
        self._unanswered = 0

    def _refuse(self, error: ProtocolError) -> None:
        """Answer the requests before invalid bytes, then close."""
        self.report(error)
        self._send_answers()
        self.finish()

    def report(self, error: ProtocolError) -> None:
        """Count and log the bytes for which the connection is closed."""
        self._owner.invalid_request(self, str(error))

    # -- reading ---------------------------------------------------------------------------------

    def _balance_reading(self) -> None:
        """Read only while the next frame could begin and memory is granted for it."""
        if self._exchanges and self._frame_in_use:
            self._pause_reading()
            return
        wanted = self._reader.borrowed
        if self._unanswered >= UNCOUNTED:
            wanted = self._wanted()
        if (
            self._closing
            or self._stalled is not None
            or self._throttled is not None
            or (wanted != self._borrowed and not self._resize(wanted))
        ):
            self._pause_reading()
        elif self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()

    def _wanted(self) -> int:
        """Return the bytes for the next frame, and of the requests that wait, in large units."""
        return self._reader.borrowed + self._unanswered // UNCOUNTED * UNCOUNTED

    def _pause_reading(self) -> None:
        if not self._read_paused and not self._transport.is_closing():
            self._read_paused = True
            self._transport.pause_reading()

    def _resize(self, wanted: int) -> bool:
        """Return whether the broker's memory limit has room for the next bytes of the frame."""
        if wanted < self._borrowed:
            self._reader.give_back()
        if not self._memory.resize(self, wanted):
            return False
        self._borrowed = wanted
        return True

    def memory_granted(self) -> None:
        """Continue to read, with the memory that is granted now."""
        self._borrowed = self._wanted()
        self._balance_reading()

    # -- writing ---------------------------------------------------------------------------------

    def _send_answers(self) -> None:
        self._out.pump()
        if not (self._closing or self._eof):
            return
        if (self._closing and not (self._exchanges or self._out)) or (self._eof and not self.busy):
            self._transport.close()

    def _flows(self) -> None:
        """Continue after a wait for the peer or the disk."""
        self._send_answers()
        self._serve()

    def _cut(self, error: OSError) -> None:
        # The length of the response has been sent, so an error can only close the connection.
        _log.error("a log could not be read while answering", host=self.host, error=str(error))
        self._out.clear()
        self.abort()
