"""The addresses of a listener."""

import asyncio
import errno
import os
import socket
from typing import Any

import pytest

from barnabas.broker.server.network import TcpNetwork, TcpServer

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
