"""Sockets of a whole broker: limits, idle and slow peers, garbage, listeners, shutdown."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from barnabas.broker.app import Broker
from barnabas.broker.server import budget
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.protocol.messages import api_versions, metadata
from tests.integration.data_path import Client, batch, connected, make_broker, running
from tests.waiting import eventually


async def hangs_up(reader: asyncio.StreamReader) -> bool:
    """Whether the broker closes the connection without another word."""
    try:
        return await asyncio.wait_for(reader.read(), 5) == b""
    except ConnectionResetError:
        return True


async def serves(client: Client) -> bool:
    answer = await client.connection.request(metadata.API, metadata.MetadataRequest(topics=None))
    return bool(answer.brokers)


async def test_connections_of_one_address_are_limited(tmp_path: Path) -> None:
    async with running(tmp_path, max_connections_per_ip=1) as broker, connected(broker) as client:
        with pytest.raises(BrokerUnreachable):
            await Connection.open("127.0.0.1", broker.port, timeout=5)
        assert (
            await client.connection.request(metadata.API, metadata.MetadataRequest(topics=None))
        ).brokers


def test_a_client_runs_on_a_loop_of_uvloop_too(tmp_path: Path) -> None:
    async def ask() -> bool:
        async with running(tmp_path) as broker, connected(broker) as client:
            return await serves(client)

    assert uvloop.run(ask())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("key", ["max_connections", "listener_name_plaintext_max_connections"])
def test_connections_above_the_limit_wait_until_others_leave(
    tmp_path: Path, key: str, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def scenario() -> None:
        async with running(tmp_path, **{key: 1}) as broker:
            first = await Connection.open("127.0.0.1", broker.port, timeout=5)
            waiting: set[asyncio.Task[Connection]] = set()
            for count in (40, 5):
                # Some of the first are accepted and held; the others stay in the system's queue.
                waiting |= {
                    asyncio.create_task(Connection.open("127.0.0.1", broker.port, timeout=20))
                    for _ in range(count)
                }
                done, _ = await asyncio.wait(waiting, timeout=0.05)
                assert not done
            assert broker.connections == 1
            await first.close()
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED
                )
                assert len(done) == 1
                assert broker.connections == 1
                await done.pop().result().close()

    run(scenario())


async def test_a_connection_that_waits_is_served_though_it_spoke_first(tmp_path: Path) -> None:
    async with running(tmp_path, max_connections=1) as broker:
        async with connected(broker):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(struct.pack(">ihhih", 10, api_versions.API.key, 0, 77, -1))
            await writer.drain()
        assert struct.unpack(">ii", await asyncio.wait_for(reader.readexactly(8), 5))[1] == 77
        writer.close()


TWO_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


async def test_the_listener_between_brokers_takes_the_place_of_the_stillest_client(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, max_connections=2, **TWO_LISTENERS) as broker:
        inside, outside = broker.ports.values()
        still, other = [await Connection.open("127.0.0.1", outside, timeout=5) for _ in range(2)]
        await Client(other).connection.request(metadata.API, metadata.MetadataRequest(topics=None))
        between = await Connection.open("127.0.0.1", inside, timeout=5)
        await eventually(lambda: not still.is_open)
        assert other.is_open
        assert between.is_open
        for connection in (still, other, between):
            await connection.close()


async def test_a_limit_of_one_listener_leaves_the_others_alone(tmp_path: Path) -> None:
    keys = {"listener_name_outside_max_connections": 0, **TWO_LISTENERS}
    async with running(tmp_path, **keys) as broker:
        inside, outside = broker.ports.values()
        async with connected(broker) as client:
            assert await serves(client)
        with pytest.raises(BrokerUnreachable):
            await Connection.open("127.0.0.1", outside, timeout=0.1)
        assert inside == broker.port


async def test_a_broker_stops_while_connections_wait(tmp_path: Path) -> None:
    broker = make_broker(tmp_path, max_connections=0)
    await broker.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    await asyncio.wait_for(broker.stop(), 5)
    assert await hangs_up(reader)
    writer.close()


async def test_idle_connections_are_closed_and_waiting_ones_are_not(tmp_path: Path) -> None:
    async with (
        running(tmp_path, connections_max_idle_ms=100) as broker,
        connected(broker) as idle,
        connected(broker) as waiting,
    ):
        await waiting.create()
        fetched = await waiting.fetch_one(0, max_wait_ms=400)
        assert fetched.error_code == 0
        await eventually(lambda: not idle.connection.is_open)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -5),
        struct.pack(">ihhi", 100, 0, 3, 1) + b"\xff" * 92,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    ],
    ids=["http", "huge", "negative", "garbage", "tls"],
)
async def test_garbage_ends_its_own_connection_only(tmp_path: Path, data: bytes) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(data)
        assert await hangs_up(reader)
        writer.close()
        assert (
            await client.connection.request(metadata.API, metadata.MetadataRequest(topics=None))
        ).brokers


async def test_a_peer_that_reads_slowly_costs_no_memory_and_disturbs_nobody(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create(max_message_bytes="4000000")
        for _ in range(16):
            await client.produce(batch(bytes(3_000_000)))
        before = resident_bytes()
        slow = await asyncio.create_task(ask_for_everything(broker.port))
        for number in range(20):
            assert (await client.produce(batch(b"%d" % number))).error_code == 0
        assert resident_bytes() - before < 8_000_000
        assert await read_all(slow) > 48_000_000


async def ask_for_everything(port: int) -> socket.socket:
    """A Fetch of 64 MB whose answer nobody reads yet."""
    from barnabas.protocol.codec import encode
    from barnabas.protocol.header import encode_request_header
    from barnabas.protocol.messages import fetch

    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[fetch.FetchTopic(topic="t", partitions=[partition])]
    )
    body = encode_request_header(fetch.API.key, 12, 1, "slow") + encode(request, 12)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    slow.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(slow, ("127.0.0.1", port))
    await loop.sock_sendall(slow, struct.pack(">i", len(body)) + body)
    return slow


async def read_all(slow: socket.socket) -> int:
    """Bytes of the answer, which comes whole once somebody reads."""
    loop, buffer = asyncio.get_running_loop(), bytearray(1 << 20)
    async with asyncio.timeout(20):
        await loop.sock_recv_into(slow, memoryview(buffer)[:4])
        (size,) = struct.unpack_from(">i", buffer)
        read = 0
        while read < size:
            read += await loop.sock_recv_into(slow, buffer)
    slow.close()
    return read


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def borrowed_bytes(broker: Broker) -> float:
    """Memory that large requests have, as /metrics tells it."""
    families = {family.name: family for family in broker.registry.snapshot()}
    ((_, value),) = families["kafka_network_socketserver_memorypoolused"].samples
    return float(value)


async def half_sent(port: int, announced: int, sent: int) -> asyncio.StreamWriter:
    """A peer that announces a request and sends a part of it."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(struct.pack(">i", announced) + bytes(sent))
    await writer.drain()
    return writer


async def test_announced_requests_that_hardly_come_keep_nobody_from_sending_large_ones(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create(max_message_bytes="4000000")
        assert (await client.produce(batch(bytes(1_000_000)))).error_code == 0
        before = resident_bytes()
        slow = [await half_sent(broker.port, 100 << 20, 1) for _ in range(20)]
        for _ in range(5):
            for writer in slow:
                writer.write(b"\0")
            assert (await client.produce(batch(bytes(1_000_000)))).error_code == 0
            assert (await client.fetch_one(0)).records
        assert resident_bytes() - before < 8_000_000
        for writer in slow:
            writer.close()


async def test_half_sent_requests_that_fill_the_memory_are_cut_when_others_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "ROUND_MS", 100)
    async with (
        running(tmp_path, queued_max_request_bytes=4 << 20) as broker,
        connected(broker) as client,
    ):
        await client.create(max_message_bytes="4000000")
        slow = [await half_sent(broker.port, 100 << 20, 900_000) for _ in range(4)]
        await eventually(lambda: borrowed_bytes(broker) > 3 << 20)
        assert (await client.produce(batch(bytes(1_000_000)))).error_code == 0
        assert broker.connections < 5
        for writer in slow:
            writer.close()


async def test_each_listener_tells_its_own_address(tmp_path: Path) -> None:
    async with running(
        tmp_path,
        listeners="PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        advertised_listeners="PLAINTEXT://inside:1234,OUTSIDE://outside.example:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
    ) as broker:
        told = []
        for port in broker.ports.values():
            connection = await Connection.open("127.0.0.1", port, timeout=5)
            answer = await connection.request(metadata.API, metadata.MetadataRequest(topics=None))
            told.append((answer.brokers[0].host, answer.brokers[0].port))
            await connection.close()
        assert told == [("inside", 1234), ("outside.example", broker.ports["OUTSIDE"])]


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    async with running(tmp_path / "one") as broker:
        listeners = f"PLAINTEXT://127.0.0.1:{broker.port}"
        other = make_broker(tmp_path / "other", listeners=listeners)
        with pytest.raises(OSError, match="in use"):
            await other.start()


async def test_a_broker_that_stops_answers_parked_requests(tmp_path: Path) -> None:
    broker = make_broker(tmp_path)
    await broker.start()
    async with connected(broker) as client:
        await client.create()
        parked = asyncio.create_task(client.fetch_one(0, max_wait_ms=60_000))
        await asyncio.sleep(0.02)
        await asyncio.wait_for(broker.stop(), 5)
        assert (await parked).error_code in (0, 6)
        assert not client.connection.is_open
