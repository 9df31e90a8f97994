"""Hosts on one event loop of virtual time: each can be killed, paused and cut off from others.

Every callback belongs to the host in whose context it was created. When a host is killed, its
tasks, timers and packets are dropped; while it is paused they queue up, as under SIGSTOP.
"""

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, cast

from tests.support.virtual_loop import Factory, ReceivingEnd, VirtualLoop

CLIENTS = "clients"
STORE = "store"
_HOST: ContextVar["Host | None"] = ContextVar("host", default=None)
_MOST_TASKS = 500


class Host:
    """A process on its own machine."""

    def __init__(self, loop: "HostedLoop", name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.transports: dict[Wire, None] = {}
        self._loop = loop
        self._backlog: list[tuple[Callable[..., Any], tuple[Any, ...], Context]] = []
        self.tasks: list[asyncio.Task[Any]] = []

    @property
    def context(self) -> Context:
        context = copy_context()
        context.run(_HOST.set, self)
        return context

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a coroutine on this host."""
        return self._loop.create_task(work, context=self.context)

    def run(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> None:
        """Run a callback of this host."""
        if self.paused and self.alive:
            self._backlog.append((callback, args, context))
        elif self.alive:
            callback(*args)

    def keep(self, task: "asyncio.Task[Any]") -> None:
        # The garbage collector must not finish coroutines of a dead host.
        if len(self.tasks) > _MOST_TASKS:
            self.tasks = [each for each in self.tasks if not each.done()]
        self.tasks.append(task)

    def kill(self, *, silently: bool = False) -> None:
        """Kill the host's process: the system closes its connections, unless the power fails."""
        self.alive = False
        self._backlog.clear()
        for wire in list(self.transports):
            wire.die(tell=not silently)
        for port, server in list(self._loop.servers.items()):
            if getattr(server, "host", None) is self:
                del self._loop.servers[port]

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for callback, args, context in backlog:
            self._loop.call_soon(callback, *args, context=context)


class HostedLoop(VirtualLoop):
    """An event loop whose callbacks belong to hosts, and whose network knows the hosts."""

    def __init__(self, seed: int) -> None:
        self._cut: set[tuple[str, str]] = set()
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self.after_turn: Callable[[], None] = lambda: None
        self.stalls = 0.0
        """The share of packets that are lost once and retransmitted after a while."""
        super().__init__(seed)
        self.set_task_factory(_remembered)

    # -- the host of a callback --------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        host = context.get(_HOST)
        if host is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(host.run, callback, args, context, context=context)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        host = context.get(_HOST)
        if host is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, host.run, callback, args, context, context=context)

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        self.after_turn()

    # -- the links between hosts -------------------------------------------------------------------

    def cut(self, sender: str, receiver: str) -> None:
        """Deliver nothing more on this link; packets wait, as TCP would retransmit them."""
        self._cut.add((sender, receiver))

    def mend(self) -> None:
        """Mend all links."""
        self._cut.clear()
        held, self._held = self._held, {}
        for thunks in held.values():
            for thunk in thunks:
                thunk()

    def carry(self, way: tuple[str, str], arrive: Callable[[], None]) -> None:
        """Deliver a packet, now or when the link is mended, in the order of its link."""
        if way in self._cut or way in self._held:
            self._held.setdefault(way, []).append(arrive)
        else:
            arrive()

    def latency(self) -> float:
        if self.stalls and self._random.random() < self.stalls:
            return self._random.uniform(0.2, 0.6)
        return super().latency()

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Factory, host: Any = None, port: Any = None, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self._connect(protocol_factory, str(host), port)

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Factory, path: str, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self._connect(protocol_factory, STORE, path)

    async def _connect(
        self, factory: Factory, host: str, port: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        own = _HOST.get()
        assert own is not None
        answered: asyncio.Future[HostServer | None] = self.create_future()

        def knock() -> None:
            if not answered.done():
                self.call_later(self.latency(), self._answer, port, answered)

        there, back = (own.name, host), (host, own.name)
        self.carry(there, lambda: self.carry(back, knock))
        server = await answered
        if server is None or not server.serving:
            raise ConnectionRefusedError(111, f"no server listens on {host}:{port}")
        near = Wire(self, own, server.host, (host, 0))
        far = Wire(self, server.host, own, (own.name, 0))
        near.peer, far.peer = far, near
        self.call_soon(far.begin, server.factory, context=server.context)
        protocol = factory()
        near.start(protocol)
        return near, protocol

    def _answer(self, port: Any, answered: "asyncio.Future[HostServer | None]") -> None:
        if not answered.done():
            found = self.servers.get(port)
            answered.set_result(found if isinstance(found, HostServer) else None)


class HostServer:
    """The listening address of a host."""

    starved = False

    def __init__(self, loop: HostedLoop, host: Host, factory: Factory, port: Any) -> None:
        self._loop = loop
        self.host = host
        self.factory = factory
        self.port = port
        self.context = host.context
        self.serving = False

    async def serve(self) -> None:
        self.serving = True

    def announce(self, host: str, port: int) -> None:
        """Do nothing: brokers of one host talk over the network too."""

    def pause(self) -> None:
        """Do nothing: there is no backlog here, the broker holds all connections."""

    def resume(self) -> None:
        """Do nothing: nothing was paused."""

    def close(self) -> None:
        self._loop.servers.pop(self.port, None)


class HostNetwork:
    """The network of a broker's platform."""

    def __init__(self, loop: HostedLoop, host: Host) -> None:
        self._loop = loop
        self._host = host

    async def listen(self, factory: Factory, host: str, port: int) -> HostServer:  # noqa: ARG002
        server = HostServer(self._loop, self._host, factory, port)
        self._loop.servers[port] = server  # type: ignore[assignment]
        return server

    async def connect(self, factory: Factory, host: str, port: int) -> object:
        transport, _ = await self._loop.create_connection(factory, host, port)
        return transport


class Wire(ReceivingEnd):
    """One end of a connection: bytes arrive later, on the host of the other end."""

    def __init__(
        self, loop: HostedLoop, host: Host, other: Host, peername: tuple[str, int]
    ) -> None:
        super().__init__(loop, (host.name, 0), peername, host.context)
        self._loop: HostedLoop = loop
        self._host = host
        self._way = host.name, other.name
        self._arrival = 0.0
        self.peer: Wire
        host.transports[self] = None

    def begin(self, factory: Factory) -> None:
        self.start(factory())

    def write(self, data: Any) -> None:
        if not self._closing and data:
            packet = bytes(data)
            self._loop.note(f"{self._way[0]}>{self._way[1]} {len(packet)}")
            self._send(lambda: self.peer.receive(packet))

    def _send(self, arrived: Callable[[], None]) -> None:
        def travel() -> None:
            # Later than the previous packet: timers of the same time have no order.
            self._arrival = max(self._arrival + 1e-8, self._loop.time() + self._loop.latency())
            self._loop.call_at(self._arrival, arrived, context=self.peer._context)

        self._loop.carry(self._way, travel)

    def close(self) -> None:
        self._end(None, tell=True)

    def abort(self) -> None:
        self._end(None, tell=True)

    def die(self, *, tell: bool) -> None:
        """Drop the connection because its process has ended; with `tell` the peer learns of it."""
        self._end(None, tell=tell)

    def _end(self, error: Exception | None, *, tell: bool) -> None:
        if self._closing:
            return
        self._closing = True
        self._host.transports.pop(self, None)
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error, context=self._context)
        if tell:
            # Data written before the end arrives before it.
            self._send(lambda: self.peer._end(None, tell=False))


def _remembered(
    loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None
) -> "asyncio.Task[Any]":
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    host = _HOST.get() if context is None else context.get(_HOST)
    if host is not None:
        host.keep(task)
    return task


def end_tasks(loop: HostedLoop, hosts: Iterable[Host]) -> None:
    """End the remaining tasks when the history is over, and discard their exceptions."""
    tasks = {task: None for host in hosts for task in host.tasks}
    tasks.update(dict.fromkeys(asyncio.all_tasks(loop)))
    with warnings.catch_warnings(action="ignore"):
        for task in tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    cast("Coroutine[Any, Any, Any]", task.get_coro()).close()
