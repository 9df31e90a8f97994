"""The connections of a client."""

import asyncio

import pytest

from barnabas.client.cluster import GENERAL, Cluster
from barnabas.protocol.codec import encode
from barnabas.protocol.messages import api_versions, metadata


class Opened:
    """A connection during whose close another task may connect."""

    def __init__(self, cluster: Cluster, port: int, *, next_port: int | None = None) -> None:
        self.is_open = True
        self.next: Opened | None = None
        self._cluster = cluster
        self._next_port = next_port
        cluster._connections["h", port, GENERAL] = self  # type: ignore[assignment]

    async def close(self) -> None:
        self.is_open = False
        if self._next_port is not None:
            self.next = Opened(self._cluster, self._next_port)


async def test_close_closes_a_connection_that_is_opened_meanwhile() -> None:
    """It raised RuntimeError: dictionary changed size during iteration."""
    cluster = Cluster("h:1")
    first = Opened(cluster, 1, next_port=2)
    await cluster.close()
    assert first.next is not None
    assert not first.is_open
    assert not first.next.is_open


async def test_request_without_an_answer_ends_before_its_call() -> None:
    """With one timeout for both, a call whose first request was lost had no time for another."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        versions = [
            api_versions.ApiVersion(api_key=api.key, min_version=0, max_version=9)
            for api in (metadata.API, api_versions.API)
        ]
        body = bytes(4) + encode(api_versions.ApiVersionsResponse(api_keys=versions), 4)
        writer.write(len(body).to_bytes(4, "big") + body)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    cluster = Cluster(f"{host}:{port}", timeout=60.0, request_timeout=0.05)
    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError):
            await cluster.refresh(())
    await cluster.close()
    server.close()
