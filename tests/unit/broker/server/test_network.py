"""The addresses of a listener."""

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.server.network import TcpNetwork, TcpServer
from barnabas.broker.socket_path import socket_address

LOOPBACK = (socket.AF_INET, "127.0.0.1")
WITHOUT_ADDRESS = (socket.AF_INET, "192.0.2.1")
"""An address that no host has (RFC 5737), as ::1 where IPv6 is off."""
WITHOUT_FAMILY = (99, "::1")
"""A family that the system does not support."""


async def listen(monkeypatch: pytest.MonkeyPatch, *addresses: Any, port: int = 0) -> TcpServer:
    """Listen on a name with these addresses."""

    async def resolved(_host: str, port: int, **_: object) -> list[Any]:
        return [(family, socket.SOCK_STREAM, 0, "", (host, port)) for family, host in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
    network = TcpNetwork(backlog=5, send_buffer=-1, receive_buffer=-1)
    return await network.listen(asyncio.BufferedProtocol, "localhost", port)


@pytest.mark.parametrize(
    "addresses",
    [(WITHOUT_ADDRESS, LOOPBACK), (LOOPBACK, WITHOUT_ADDRESS), (WITHOUT_FAMILY, LOOPBACK)],
)
async def test_listener_starts_if_host_lacks_one_address_of_its_name(
    monkeypatch: pytest.MonkeyPatch, addresses: Any
) -> None:
    """In a container without IPv6 whose /etc/hosts names ::1, `localhost:9092` did not start."""
    server = await listen(monkeypatch, *addresses)
    assert server.port > 0
    server.close()


async def test_listener_fails_if_host_has_no_address_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EADDRNOTAVAIL)):
        await listen(monkeypatch, WITHOUT_ADDRESS)


async def test_listener_fails_if_another_process_has_one_of_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients that resolve the name to that address would reach the other process."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            await listen(monkeypatch, LOOPBACK, (socket.AF_INET, "127.0.0.2"), port=port)


class Peer(asyncio.BufferedProtocol):
    """A side of a connection, which tells the family of its socket."""

    def __init__(self, families: "asyncio.Queue[int]") -> None:
        self._families = families

    def connection_made(self, transport: Any) -> None:
        self._families.put_nowait(transport.get_extra_info("socket").family)
        transport.close()

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(max(sizehint, 1))


async def met(network: TcpNetwork, port: int, families: "asyncio.Queue[int]") -> list[int]:
    """Connect as another broker does; return the families of both sockets."""
    await network.connect(lambda: Peer(families), "127.0.0.1", port)
    async with asyncio.timeout(10):
        return [await families.get(), await families.get()]


@pytest.mark.parametrize("depth", [1, 40], ids=["short", "longer than an address"])
async def test_brokers_of_a_host_meet_at_unix_sockets_and_over_tcp_without_them(
    tmp_path: Path, depth: int
) -> None:
    directory = tmp_path.joinpath(*["deep"] * depth)
    directory.mkdir(parents=True)
    network = TcpNetwork(backlog=5, send_buffer=-1, receive_buffer=-1, local=str(directory))
    families: asyncio.Queue[int] = asyncio.Queue()
    server = await network.listen(lambda: Peer(families), "127.0.0.1", 0)
    server.announce("127.0.0.1", server.port)
    await server.serve()
    path = directory / f"127.0.0.1:{server.port}.socket"
    assert path.stat().st_mode & 0o777 == 0o600
    assert await met(network, server.port, families) == [socket.AF_UNIX] * 2
    # A file of a broker that was killed, and no file.
    path.unlink()
    with socket.socket(socket.AF_UNIX) as dead, socket_address(str(path)) as address:
        dead.bind(address)
    assert await met(network, server.port, families) == [socket.AF_INET] * 2
    path.unlink()
    assert await met(network, server.port, families) == [socket.AF_INET] * 2
    server.close()
    again = await network.listen(lambda: Peer(families), "127.0.0.1", 0)
    again.announce("127.0.0.1", again.port)
    again.close()
    assert list(directory.iterdir()) == []


async def test_listener_without_room_for_its_unix_socket_serves_over_tcp(tmp_path: Path) -> None:
    network = TcpNetwork(backlog=5, send_buffer=-1, receive_buffer=-1, local=str(tmp_path))
    families: asyncio.Queue[int] = asyncio.Queue()
    server = await network.listen(lambda: Peer(families), "127.0.0.1", 0)
    (tmp_path / f"127.0.0.1:{server.port}.socket").write_text("a file")
    server.announce("127.0.0.1", server.port)
    await server.serve()
    assert await met(network, server.port, families) == [socket.AF_INET] * 2
    server.close()
    assert (tmp_path / f"127.0.0.1:{server.port}.socket").read_text()


@pytest.mark.parametrize("why", ["its queue is full", "it is another user's"])
async def test_brokers_meet_over_tcp_where_the_unix_socket_takes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    network = TcpNetwork(backlog=5, send_buffer=-1, receive_buffer=-1, local=str(tmp_path))
    families: asyncio.Queue[int] = asyncio.Queue()
    server = await network.listen(lambda: Peer(families), "127.0.0.1", 0)
    await server.serve()
    path = str(tmp_path / f"127.0.0.1:{server.port}.socket")
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as waiting:
        silent.bind(path)
        silent.listen(0)
        if why == "its queue is full":
            waiting.connect(path)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: os.stat(path).st_uid + 1)
        assert await met(network, server.port, families) == [socket.AF_INET] * 2
    server.close()
