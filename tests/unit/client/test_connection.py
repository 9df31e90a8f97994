"""Closing a connection: what was sent leaves first, however slowly the broker reads."""

import asyncio
from contextlib import suppress

import pytest

from barnabas.client import connection as module
from barnabas.client.connection import Connection
from barnabas.protocol.codec import encode
from barnabas.protocol.messages import api_versions, produce

MORE_THAN_SOCKETS_HOLD = 32 << 20


class SlowReader:
    """A broker that says what it serves, and reads on when it is told."""

    def __init__(self) -> None:
        self.read_on = asyncio.Event()
        self.read = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        versions = [
            api_versions.ApiVersion(api_key=api.key, min_version=0, max_version=9)
            for api in (produce.API, api_versions.API)
        ]
        body = bytes(4) + encode(api_versions.ApiVersionsResponse(api_keys=versions), 4)
        writer.write(len(body).to_bytes(4, "big") + body)
        await self.read_on.wait()
        size = 0
        with suppress(ConnectionResetError):
            while data := await reader.read(1 << 20):
                size += len(data)
        self.read.set_result(size)
        writer.close()


async def sent(peer: SlowReader) -> Connection:
    """A connection on which more was sent than the sockets take."""
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    connection = await Connection.open(*server.sockets[0].getsockname(), timeout=5)
    server.close()
    data = produce.PartitionProduceData(index=0, records=bytes(MORE_THAN_SOCKETS_HOLD))
    topic = produce.TopicProduceData(name="t", partition_data=[data])
    request = produce.ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])
    await connection.send_only(produce.API, request)
    return connection


async def test_closing_waits_until_what_acks_0_wrote_has_left() -> None:
    peer = SlowReader()
    connection = await sent(peer)
    closing = asyncio.create_task(connection.close())
    done, _ = await asyncio.wait([closing], timeout=0.05)
    assert not done, "a loop that ends now would lose what is left"
    peer.read_on.set()
    await asyncio.wait_for(closing, 10)
    assert await asyncio.wait_for(peer.read, 10) > MORE_THAN_SOCKETS_HOLD


async def test_what_a_broker_does_not_read_is_given_up_in_time() -> None:
    """A broker that is stopped in the middle must not hold up those who would ask another."""
    peer = SlowReader()
    connection = await sent(peer)
    request = connection.request(api_versions.API, api_versions.ApiVersionsRequest(), timeout=0.05)
    asking = asyncio.create_task(request)
    await asyncio.wait([asking], timeout=5)
    assert asking.done()
    assert isinstance(asking.exception(), TimeoutError)
    connection.abort()
    peer.read_on.set()
    await asyncio.wait_for(peer.read, 10)


async def test_closing_does_not_wait_for_ever_for_a_broker_that_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = SlowReader()
    monkeypatch.setattr(module, "CLOSE_TIMEOUT", 0.05)
    connection = await sent(peer)
    await asyncio.wait_for(connection.close(), 5)
    peer.read_on.set()
    assert await asyncio.wait_for(peer.read, 10) < MORE_THAN_SOCKETS_HOLD
