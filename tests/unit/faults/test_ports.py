"""Reserved ports, which only the server that knows one can take."""

import socket
from collections.abc import Iterator

import pytest

from barnabas.faults.ports import ReservedPorts


@pytest.fixture
def ports() -> Iterator[ReservedPorts]:
    ports = ReservedPorts()
    yield ports
    ports.release()


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


LOOPBACK = [
    pytest.param("127.0.0.1", socket.AF_INET),
    pytest.param(
        "::1", socket.AF_INET6, marks=pytest.mark.skipif(not _has_ipv6(), reason="no ::1 here")
    ),
]


@pytest.mark.parametrize(("host", "family"), LOOPBACK)
def test_servers_listen_on_it_one_after_another(
    ports: ReservedPorts, host: str, family: socket.AddressFamily
) -> None:
    at = (host, ports.take())
    for _ in range(2):
        with (
            socket.create_server(at, family=family) as server,
            socket.create_connection(at) as client,
        ):
            accepted, _ = server.accept()
            accepted.close()
            assert client.recv(1) == b""


def test_clients_are_refused_while_no_server_listens(ports: ReservedPorts) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports.take()))


@pytest.mark.parametrize(("host", "family"), LOOPBACK)
def test_nobody_else_has_it_until_it_is_released(
    ports: ReservedPorts, host: str, family: socket.AddressFamily
) -> None:
    at = (host, ports.take())
    with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
        other.bind(at)
    ports.release()
    with socket.socket(family) as other:
        other.bind(at)


def test_no_port_is_reserved_twice(ports: ReservedPorts) -> None:
    """Two clusters that chose the same one started, and one of them found it in use."""
    with pytest.raises(OSError, match="in use"):
        ReservedPorts().take(ports.take())


@pytest.mark.parametrize(("host", "family"), LOOPBACK)
def test_a_port_that_somebody_has_is_not_to_be_taken(
    ports: ReservedPorts, host: str, family: socket.AddressFamily
) -> None:
    with (
        socket.create_server((host, 0), family=family) as server,
        pytest.raises(OSError, match="in use"),
    ):
        ports.take(server.getsockname()[1])
