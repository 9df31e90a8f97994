"""An event loop on virtual time, with a network in memory: one seed replays one history.

Nothing here waits: when no callback is ready, the clock jumps to the next timer. The seed draws how
long each packet takes; packets of one connection keep their order.
"""

import asyncio
import random
import selectors
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any

BIRTHDAY_MS = 1_700_000_000_000
Factory = Callable[[], asyncio.BaseProtocol]


class Deadlock(Exception):
    """No callback is ready and no timer is set: the program waits for an event that cannot
    happen."""


class _NoSelector(selectors.BaseSelector):
    """A selector without files: the timeout for which asyncio would sleep advances the virtual
    clock."""

    def __init__(self) -> None:
        self.slept = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Deadlock
        self.slept += max(timeout, 0.0)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, -1, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, -1, 0, None)

    def get_map(self) -> dict[Any, Any]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual and starts at 0; `trace` records the events, for comparison."""

    def __init__(self, seed: int) -> None:
        self._clock = _NoSelector()
        super().__init__(self._clock)
        # A step below any timer's resolution, so that equal deadlines expire together.
        self._clock_resolution = 1e-9
        self._random = random.Random(seed)
        self.servers: dict[int, MemoryServer] = {}
        self._next_port = 50_000
        self.trace: list[str] = []

    def time(self) -> float:
        return self._clock.slept

    def note(self, what: str) -> None:
        """Add a line to the trace, with the virtual time."""
        self.trace.append(f"{self.time():.6f} {what}")

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def latency(self) -> float:
        """Return a random time in seconds that a packet takes."""
        return self._random.uniform(0.0001, 0.002)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # noqa: ARG002
        """Run the call at once in the loop: a thread would bring back real time."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_soon(run)
        return future

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Factory, host: Any = None, port: Any = None, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        server = self.servers.get(port)
        if server is None or not server.serving:
            raise ConnectionRefusedError(111, f"no server listens on {host}:{port}")
        name = ("127.0.0.1", self.free_port())
        client = MemoryTransport(self, name, (str(host), port))
        remote = MemoryTransport(self, (str(host), port), name)
        client.peer, remote.peer = remote, client
        protocol = protocol_factory()
        remote.start(server.factory())
        client.start(protocol)
        return client, protocol


class VirtualClock:
    """A broker's clock: the time of the loop, which begins on a day in 2023."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return BIRTHDAY_MS + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class MemoryServer:
    """The listening address of a `MemoryNetwork`."""

    starved = False

    def __init__(self, loop: VirtualLoop, factory: Factory, port: int) -> None:
        self._loop = loop
        self.factory = factory
        self.port = port
        self.serving = False

    async def serve(self) -> None:
        self.serving = True

    def announce(self, host: str, port: int) -> None:
        """Do nothing: there are no sockets here."""

    def pause(self) -> None:
        """Do nothing: there is no backlog here, the broker holds all connections."""

    def resume(self) -> None:
        """Do nothing: nothing was paused."""

    def close(self) -> None:
        self._loop.servers.pop(self.port, None)


class MemoryNetwork:
    """The network of a broker's platform, in memory."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    async def listen(self, factory: Factory, host: str, port: int) -> MemoryServer:  # noqa: ARG002
        port = port or self._loop.free_port()
        if port in self._loop.servers:
            raise OSError(98, f"port {port} is in use")
        server = self._loop.servers[port] = MemoryServer(self._loop, factory, port)
        return server

    async def connect(self, factory: Factory, host: str, port: int) -> object:
        transport, _ = await self._loop.create_connection(factory, host, port)
        return transport


class ReceivingEnd(asyncio.Transport):
    """Half of a connection in memory: passes arrived data to its protocol, complete and in
    order."""

    def __init__(
        self,
        loop: VirtualLoop,
        name: tuple[str, int],
        peername: tuple[str, int],
        context: Context | None = None,
    ) -> None:
        """`context` is the context of the protocol, by default the caller's."""
        super().__init__({"sockname": name, "peername": peername})
        self._loop = loop
        self._context = context
        self._protocol: Any = None
        self._inbox = bytearray()
        self._reading = True
        self._closing = False

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        if not self._closing:
            self._protocol = protocol
            protocol.connection_made(self)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def receive(self, data: bytes) -> None:
        """Take data that the peer wrote."""
        if not self._closing:
            self._inbox += data
            self._deliver()

    def _deliver(self) -> None:
        while self._inbox and self._reading and not self._closing and self._protocol is not None:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                room = memoryview(self._protocol.get_buffer(-1))
                size = min(len(room), len(self._inbox))
                room[:size] = self._inbox[:size]
                del self._inbox[:size]
                self._protocol.buffer_updated(size)
            else:
                data = bytes(self._inbox)
                self._inbox.clear()
                self._protocol.data_received(data)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._loop.call_soon(self._deliver, context=self._context)

    def is_reading(self) -> bool:
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the peer takes all data at once, so there is nothing to limit."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing


class MemoryTransport(ReceivingEnd):
    """One end of a connection in memory: bytes arrive in a later iteration of the loop."""

    def __init__(self, loop: VirtualLoop, name: tuple[str, int], peername: tuple[str, int]) -> None:
        super().__init__(loop, name, peername)
        self._arrival = 0.0
        self.peer: MemoryTransport

    def write(self, data: Any) -> None:
        if self._closing or not data:
            return
        self._loop.note(f"{self._extra['sockname'][1]}>{self._extra['peername'][1]} {len(data)}")  # type: ignore[attr-defined]
        self._arrival = self._next_arrival()
        self._loop.call_at(self._arrival, self.peer.receive, bytes(data))

    def _next_arrival(self) -> float:
        # Later than the previous packet by a little: timers of the same time have no order.
        return max(self._arrival + 1e-8, self._loop.time() + self._loop.latency())

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        self._loop.call_soon(self._protocol.connection_lost, error)
        # Data written before the end arrives before it.
        self._arrival = self._next_arrival()
        self._loop.call_at(self._arrival, self.peer._end, None)
