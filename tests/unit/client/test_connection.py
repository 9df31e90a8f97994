"""A connection: requests that leave together, and a close that sends written data first."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

from barnabas.client import connection as module
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import api_versions, produce
from barnabas.protocol.records.varint import Buffer

MORE_THAN_SOCKETS_HOLD = 32 << 20


class SlowReader:
    """A broker that answers ApiVersions, and then reads only when the test says so."""

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
    """Return a connection with more written data than the socket buffers can hold."""
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    connection = await Connection.open(*server.sockets[0].getsockname(), timeout=5)
    server.close()
    data = produce.PartitionProduceData(index=0, records=bytes(MORE_THAN_SOCKETS_HOLD))
    topic = produce.TopicProduceData(name="t", partition_data=[data])
    request = produce.ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])
    await connection.send_only(produce.API, request)
    return connection


async def test_close_waits_until_written_data_is_sent() -> None:
    peer = SlowReader()
    connection = await sent(peer)
    closing = asyncio.create_task(connection.close())
    done, _ = await asyncio.wait([closing], timeout=0.05)
    assert not done, "a loop that ends now would lose what is left"
    peer.read_on.set()
    await asyncio.wait_for(closing, 10)
    assert await asyncio.wait_for(peer.read, 10) > MORE_THAN_SOCKETS_HOLD


async def test_close_drops_data_that_broker_does_not_read_after_timeout() -> None:
    """A stopped broker must not delay requests to another broker."""
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


async def test_close_does_not_hang_if_broker_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = SlowReader()
    monkeypatch.setattr(module, "CLOSE_TIMEOUT", 0.05)
    connection = await sent(peer)
    await asyncio.wait_for(connection.close(), 5)
    peer.read_on.set()
    assert await asyncio.wait_for(peer.read, 10) < MORE_THAN_SOCKETS_HOLD


class Transport(asyncio.Transport):
    """A transport that keeps what each call wrote."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.writes: list[int] = []
        """By call, the number of requests."""

    def writelines(self, parts: Iterable[Buffer]) -> None:
        data, requests = b"".join(parts), 0
        while data:
            data = data[4 + int.from_bytes(data[:4], "big") :]
            requests += 1
        self.writes.append(requests)

    def close(self) -> None:
        self._connection.connection_lost(None)

    abort = close


@pytest.fixture
async def transport() -> Transport:
    connection = Connection("test")
    connection.broker_versions = {api_versions.API.key: range(4)}
    transport = Transport(connection)
    connection.connection_made(transport)
    return transport


async def ask(transport: Transport, requests: int) -> list[asyncio.Task[Any]]:
    """Send requests in one iteration of the event loop."""
    request, asking = api_versions.ApiVersionsRequest(), transport._connection.request
    tasks = [asyncio.create_task(asking(api_versions.API, request)) for _ in range(requests)]
    await asyncio.sleep(0)
    return tasks


async def test_requests_of_one_iteration_behind_an_unanswered_one_are_one_write(
    transport: Transport,
) -> None:
    tasks = await ask(transport, 3)
    assert transport.writes == [1]
    await asyncio.sleep(0)
    assert transport.writes == [1, 2]
    transport.close()
    await asyncio.wait(tasks)


async def test_many_gathered_bytes_are_written_at_once(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GATHERED_BYTES", 18)
    tasks = await ask(transport, 3)
    assert transport.writes == [1, 1, 1]
    transport.close()
    await asyncio.wait(tasks)


async def test_long_records_are_written_without_a_copy() -> None:
    connection = Connection("test")
    written: list[Buffer] = []
    transport = Transport(connection)
    transport.write = written.append  # type: ignore[method-assign]
    transport.writelines = lambda parts: written.append(b"".join(parts))  # type: ignore[method-assign]
    connection.connection_made(transport)
    records = memoryview(bytearray(module.GATHERED_BYTES))
    row = produce.PartitionProduceData(index=0, records=records)
    topic = produce.TopicProduceData(name="t", partition_data=[row])
    request = produce.ProduceRequest(
        transactional_id=None, acks=0, timeout_ms=1, topic_data=[topic]
    )
    for _ in range(2):
        connection.submit(produce.API, request, 9, None)
    assert [each for each in written if each is records] == [records] * 2
    frames = b"".join(written)
    size = int.from_bytes(frames[:4], "big") + 4
    assert len(frames) == 2 * size
    assert frames[size : size + 4] == frames[:4]


async def test_close_writes_gathered_requests_first(
    transport: Transport,
) -> None:
    tasks = await ask(transport, 2)
    await transport._connection.close()
    assert transport.writes == [1, 1]
    await asyncio.wait(tasks)


async def test_abort_drops_gathered_requests(transport: Transport) -> None:
    tasks = await ask(transport, 2)
    transport._connection.abort()
    await asyncio.wait(tasks)
    assert transport.writes == [1]


def answer(transport: Transport, number: int, body: bytes, *, behind: bytes = b"") -> None:
    """Receive a response to ApiVersions, and further bytes in the same frame."""
    connection, data = transport._connection, number.to_bytes(4, "big") + body + behind
    data = len(data).to_bytes(4, "big") + data
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def versions_body(version: int, code: int = 0, *rows: tuple[int, int, int]) -> bytes:
    keys = [
        api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, low, high in rows
    ]
    return encode(api_versions.ApiVersionsResponse(error_code=code, api_keys=keys), version)


async def test_request_with_invalid_response_fails_at_once_not_after_its_timeout(
    transport: Transport,
) -> None:
    tasks = await ask(transport, 2)
    answer(transport, 0, versions_body(3), behind=b"more")
    done, _ = await asyncio.wait(tasks, timeout=5)
    assert done == {*tasks}
    for task in tasks:
        with pytest.raises(BrokerUnreachable, match="invalid response"):
            task.result()


async def test_api_whose_versions_end_before_they_begin_is_not_supported(
    transport: Transport,
) -> None:
    negotiating = asyncio.create_task(transport._connection.negotiate())
    await asyncio.sleep(0)
    answer(transport, 0, versions_body(4, 0, (produce.API.key, 5, 3)))
    await negotiating
    with pytest.raises(KafkaError, match="serves no version of Produce"):
        transport._connection.version_for(produce.API)


@pytest.mark.parametrize(("highest", "asked"), [(3, 3), (99, 4)])
async def test_broker_without_our_version_of_api_versions_is_asked_again(
    transport: Transport, highest: int, asked: int
) -> None:
    key, connection = api_versions.API.key, transport._connection
    negotiating = asyncio.create_task(connection.negotiate())
    await asyncio.sleep(0)
    answer(transport, 0, versions_body(0, 35, (key, 0, highest)))
    await asyncio.sleep(0)
    answer(transport, 1, versions_body(asked, 0, (key, 0, highest)))
    await asyncio.wait_for(negotiating, 5)
    assert connection.broker_versions == {key: range(highest + 1)}


async def test_broker_that_claims_no_version_of_api_versions_is_not_supported(
    transport: Transport,
) -> None:
    negotiating = asyncio.create_task(transport._connection.negotiate())
    await asyncio.sleep(0)
    answer(transport, 0, versions_body(0, 35, (api_versions.API.key, -9, -5)))
    with pytest.raises(KafkaError, match="serves no version of ApiVersions"):
        await asyncio.wait_for(negotiating, 5)
