"""The door to sockets. A simulation lends a network that has none."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Protocol

Factory = Callable[[], asyncio.BufferedProtocol]


class Server(Protocol):
    """An address that is taken, and accepts connections from `serve` on."""

    @property
    def port(self) -> int: ...

    async def serve(self) -> None: ...

    def close(self) -> None:
        """Accept no more connections; those that are open stay."""
        ...


class Network(Protocol):
    """Where listeners get their addresses."""

    async def listen(self, factory: Factory, host: str, port: int) -> Server:
        """Take an address: an empty host is every interface, port 0 a free one; OSError."""
        ...


def descriptor_behind(transport: asyncio.BaseTransport) -> int | None:
    """The socket that bytes may be sent to past its transport, while that holds none itself.

    None where all bytes must go through the transport: it encrypts them, or has no socket.
    """
    found = transport.get_extra_info("socket")
    if found is None or transport.get_extra_info("sslcontext") is not None:
        return None
    descriptor: int = found.fileno()
    return descriptor


class TcpServer:
    """The sockets of one listener: one, or one for each address that its host name has."""

    def __init__(self, servers: list[asyncio.Server], port: int) -> None:
        self._servers = servers
        self.port = port

    async def serve(self) -> None:
        for server in self._servers:
            await server.start_serving()

    def close(self) -> None:
        for server in self._servers:
            server.close()


class TcpNetwork:
    """Sockets of the operating system. Buffer sizes in bytes; -1 leaves them to the system."""

    def __init__(self, *, backlog: int, send_buffer: int, receive_buffer: int) -> None:
        self._backlog = backlog
        self._send_buffer = send_buffer
        self._receive_buffer = receive_buffer

    async def listen(self, factory: Factory, host: str, port: int) -> TcpServer:
        loop = asyncio.get_running_loop()
        sockets: list[socket.socket] = []
        try:
            for family, address in await self._addresses(host, port):
                # A name with several addresses has one port, whichever was free for the first.
                taken = sockets[0].getsockname()[1] if sockets else port
                sockets.append(self._bind(family, (address[0], taken, *address[2:])))
        except OSError:
            for bound in sockets:
                bound.close()
            raise
        servers = [
            await loop.create_server(
                factory, sock=bound, backlog=self._backlog, start_serving=False
            )
            for bound in sockets
        ]
        return TcpServer(servers, sockets[0].getsockname()[1])

    async def _addresses(self, host: str, port: int) -> list[tuple[int, Any]]:
        if not host:
            if socket.has_dualstack_ipv6():
                return [(socket.AF_INET6, ("::", port))]
            return [(socket.AF_INET, ("0.0.0.0", port))]
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys((family, address) for family, _, _, _, address in found))

    def _bind(self, family: int, address: Any) -> socket.socket:
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
            # Accepted sockets inherit the sizes: the window scale is agreed on at the handshake.
            if self._send_buffer > 0:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
            if self._receive_buffer > 0:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
        return bound
