"""Connections that are cut as a network cuts them: nothing arrives, and no side gets an error.

Bytes that are sent meanwhile arrive when the link is mended, as with TCP. A side that closes a
connection that is cut sees it closed; the other side learns of it when the link is mended.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from barnabas.broker.server.network import Factory, Network, Server


class Link:
    """A set of connections that are cut and mended together, each direction on its own."""

    def __init__(self) -> None:
        self.sends = True
        self.receives = True
        self._connections: set[SeverableConnection] = set()
        self._whole = asyncio.Event()
        self._whole.set()

    def cut(self, *, sending: bool = True, receiving: bool = True) -> None:
        self.sends = self.sends and not sending
        self.receives = self.receives and not receiving
        self._whole.clear()
        for connection in list(self._connections):
            connection.changed()

    def mend(self) -> None:
        self.sends = self.receives = True
        self._whole.set()
        for connection in list(self._connections):
            connection.changed()

    async def wait_until_whole(self) -> None:
        """Wait until both directions are open; no connection is made before."""
        await self._whole.wait()

    def add(self, connection: "SeverableConnection") -> None:
        self._connections.add(connection)

    def remove(self, connection: "SeverableConnection") -> None:
        self._connections.discard(connection)


class SeverableConnection(asyncio.BufferedProtocol):
    """A protocol to the transport below it, and a transport to the protocol above it."""

    def __init__(self, inner: asyncio.BufferedProtocol, link: Link) -> None:
        self._inner = inner
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._held: list[bytes] = []
        self._reading = True
        self._writing_paused = False
        self._closed = False
        """The inner protocol has closed the connection; the transport waits for the link."""

    # -- the protocol, as the transport sees it ---------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._link.add(self)
        self._inner.connection_made(self)  # type: ignore[arg-type]
        self.changed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.remove(self)
        self._held.clear()
        if not self._closed:
            self._closed = True
            self._inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> Any:
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if not self._closed:
            self._inner.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        if not self._writing_paused:
            self._writing_paused = True
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._writing_paused and not self._held:
            self._writing_paused = False
            self._inner.resume_writing()

    def changed(self) -> None:
        """Apply that the link was cut or mended."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._link.sends and self._held:
            held, self._held = self._held, []
            self._transport.writelines(held)
            if not self._transport.get_write_buffer_size():
                self._loop.call_soon(self.resume_writing)
        if self._closed and self._link.sends and self._link.receives:
            self._transport.close()
        elif self._reading and self._link.receives:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # -- the transport, as the protocol sees it ---------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        # The socket stays hidden: bytes that bypass the transport could not be held back.
        return default if name == "socket" else self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closed or bool(self._transport.is_closing())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._link.sends and not self._held:
            self._transport.write(data)
        else:
            self._held.append(bytes(data))
            self.pause_writing()

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return int(self._transport.get_write_buffer_size()) + sum(map(len, self._held))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        if self._link.receives:
            self._transport.resume_reading()

    def close(self) -> None:
        if self._link.sends and self._link.receives:
            self._transport.close()
        else:
            self._close_inner()

    def abort(self) -> None:
        if self._link.sends and self._link.receives:
            self._transport.abort()
        else:
            self._held.clear()
            self._close_inner()

    def _close_inner(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.call_soon(self._inner.connection_lost, None)


class SeverableNetwork:
    """The network of one broker, with links to others and links that others connect over."""

    def __init__(self, inner: Network) -> None:
        self._inner = inner
        self.outgoing: defaultdict[int, Link] = defaultdict(Link)
        """Links by the port that is connected to."""
        self.incoming: defaultdict[int, Link] = defaultdict(Link)
        """Links by the port that is listened on, or will be."""

    async def listen(self, factory: Factory, host: str, port: int) -> Server:
        link = self.incoming[port] if port else Link()
        server = await self._inner.listen(lambda: SeverableConnection(factory(), link), host, port)
        self.incoming[server.port] = link
        return server

    async def connect(self, factory: Factory, host: str, port: int) -> object:
        link = self.outgoing[port]
        await link.wait_until_whole()
        return await self._inner.connect(lambda: SeverableConnection(factory(), link), host, port)

    def mend(self) -> None:
        """Make every link whole."""
        for link in (*self.outgoing.values(), *self.incoming.values()):
            link.mend()
