"""The sockets of a running broker: limits, idle and slow peers, garbage, listeners, shutdown."""

import asyncio
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from barnabas.broker.app import Broker
from barnabas.broker.server import connection as served
from barnabas.broker.server import listener, network
from barnabas.broker.server.limits import budget
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.protocol.codec import encode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages import api_versions, fetch, metadata
from tests.support.data_path import Client, batch, connected, make_broker, running
from tests.support.waiting import eventually


async def hangs_up(reader: asyncio.StreamReader) -> bool:
    """Return whether the broker closes the connection without sending anything."""
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
    tmp_path: Path,
    key: str,
    run: Callable[[Coroutine[Any, Any, None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "STAND_S", 60)

    async def scenario() -> None:
        async with running(tmp_path, **{key: 1}) as broker:
            first = await Connection.open("127.0.0.1", broker.port, timeout=5)
            waiting: set[asyncio.Task[Connection]] = set()
            for count in (40, 5):
                # The broker accepts and holds some of them; the others stay in the kernel's
                # backlog.
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


async def test_waiting_connection_is_served_with_the_bytes_it_sent_before(tmp_path: Path) -> None:
    async with running(tmp_path, max_connections=1) as broker:
        async with connected(broker):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(struct.pack(">ihhih", 10, api_versions.API.key, 0, 77, -1))
            await writer.drain()
        assert struct.unpack(">ii", await asyncio.wait_for(reader.readexactly(8), 5))[1] == 77
        writer.close()


async def silent_crowd(port: int, size: int, sent: bytes = b"") -> list[asyncio.StreamWriter]:
    """Connect, and send nothing but `sent`."""
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(size)]
    for _, writer in crowd:
        writer.write(sent)
    return [writer for _, writer in crowd]


@pytest.mark.parametrize("sent", [b"", b"\0"], ids=["silent", "half-sent"])
async def test_connections_that_stand_make_way_for_new_ones_within_a_second(
    tmp_path: Path, sent: bytes
) -> None:
    async with running(tmp_path, max_connections=22) as broker, connected(broker) as fetching:
        await fetching.create()
        fetch = asyncio.create_task(fetching.fetch_one(0, max_wait_ms=3_000))
        async with connected(broker) as idle:
            crowd = await silent_crowd(broker.port, 60, sent)
            await eventually(lambda: broker.connections == 22)
            begun = time.monotonic()
            async with connected(broker) as newcomer:
                assert await serves(newcomer)
                assert time.monotonic() - begun < 1
            assert await serves(idle), "those that never asked anything go first"
        assert not fetch.done()
        assert (await fetch).error_code == 0
        for writer in crowd:
            writer.close()


async def test_connection_that_is_idle_longest_makes_way_if_all_have_been_served(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, max_connections=3) as broker:
        some = [await Connection.open("127.0.0.1", broker.port, timeout=5) for _ in range(3)]
        assert await serves(Client(some[0]))
        begun = time.monotonic()
        newcomer = await Connection.open("127.0.0.1", broker.port, timeout=5)
        assert time.monotonic() - begun < 1
        assert [each.is_open for each in some] == [True, False, True]
        for each in (*some, newcomer):
            await each.close()


async def test_newcomers_get_in_while_descriptors_are_used_up(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with running(tmp_path) as broker:
        crowd = await silent_crowd(broker.port, 10)
        # Those that are not accepted yet would wait before the newcomer.
        await eventually(lambda: broker.connections == 10)
        # The process of the tests may have descriptors far above the lowest free one, and those of
        # the crowd are to be of use to a connection: an eighth of all is reserved.
        highest = max(int(each) for each in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, ((highest + 50) * 8 // 7 + 100, hard))
        try:
            last = network.last_descriptor()
            assert highest < last
            taken = []
            while not taken or taken[-1].fileno() < last:
                taken.append(socket.socket())
            begun = time.monotonic()
            async with connected(broker) as newcomer:
                assert await serves(newcomer)
            assert time.monotonic() - begun < 1
            for each in taken:
                each.close()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for writer in crowd:
            writer.close()


TWO_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


async def test_inter_broker_connection_above_the_limit_closes_the_most_idle_client(
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


async def test_connection_limit_of_one_listener_does_not_apply_to_others(tmp_path: Path) -> None:
    keys = {"listener_name_outside_max_connections": 0, **TWO_LISTENERS}
    async with running(tmp_path, **keys) as broker:
        inside, outside = broker.ports.values()
        async with connected(broker) as client:
            assert await serves(client)
        with pytest.raises(BrokerUnreachable):
            await Connection.open("127.0.0.1", outside, timeout=0.1)
        assert inside == broker.port


async def test_a_broker_stops_while_connections_wait(tmp_path: Path) -> None:
    broker = make_broker(tmp_path, listener_name_plaintext_max_connections=0)
    await broker.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    await asyncio.wait_for(broker.stop(), 5)
    assert await hangs_up(reader)
    writer.close()


async def test_idle_connections_are_closed_unless_a_request_is_pending(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("event", "keys"),
    [
        ("connection closed", {}),
        ("connection refused", {"max_connections_per_ip_overrides": "127.0.0.1:0"}),
        ("connection cut for others", {"max_connections": 1}),
    ],
)
async def test_closed_connections_make_one_line_a_second(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, event: str, keys: dict[str, object]
) -> None:
    """A line for each connection lets a stranger fill the disk."""
    async with running(tmp_path, **TWO_LISTENERS, **keys) as broker:
        inside, outside = broker.ports.values()
        clients = broker._listeners["OUTSIDE"]
        began = time.monotonic()
        for _ in range(100):
            reader, writer = await asyncio.open_connection("127.0.0.1", outside)
            if event == "connection cut for others":
                # A connection between brokers takes the place of a client's.
                await eventually(lambda: clients.connections == 1)
                _, between = await asyncio.open_connection("127.0.0.1", inside)
                assert await hangs_up(reader)
                between.close()
            else:
                writer.write(struct.pack(">i", 2**31 - 1))
                assert await hangs_up(reader)
            writer.close()
        seconds = time.monotonic() - began
    lines = [each.getMessage() for each in caplog.records if each.getMessage().startswith(event)]
    assert 1 <= len(lines) <= seconds + 1
    assert "not_logged=" in lines[0]


async def test_slow_reader_uses_bounded_memory_and_delays_no_other_client(
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


async def test_answers_that_no_client_reads_are_bounded_over_all_connections(
    tmp_path: Path,
) -> None:
    """Each of them was kept until connections.max.idle.ms."""
    names = [f"{number:0200}" for number in range(1000)]
    asked = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    body = encode_request_header(metadata.API.key, 12, 1, "slow") + encode(asked, 12)
    keys = {"queued_max_response_bytes": 1 << 20, "socket_send_buffer_bytes": 4096}
    async with running(tmp_path, **keys) as broker, connected(broker) as client:
        crowd = [await deaf(broker.port, body) for _ in range(30)]
        assert await serves(client)
        await eventually(lambda: broker.connections < 10)
        assert await serves(client)
        for each in crowd:
            each.close()


async def deaf(port: int, body: bytes) -> socket.socket:
    """Send a request whose answer is not read."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(deaf, ("127.0.0.1", port))
    await loop.sock_sendall(deaf, struct.pack(">i", len(body)) + body)
    return deaf


async def ask_for_everything(port: int) -> socket.socket:
    """Send a Fetch of 64 MB, and do not read the response yet."""
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
    """Return the bytes of the response, which arrives whole once the client reads."""
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
    """Return the memory that large requests hold, from /metrics."""
    families = {family.name: family for family in broker.registry.snapshot()}
    ((_, value),) = families["kafka_network_socketserver_memorypoolused"].samples
    return float(value)


async def half_sent(port: int, announced: int, sent: int) -> asyncio.StreamWriter:
    """Announce a request of `announced` bytes and send `sent` of them."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(struct.pack(">i", announced) + bytes(sent))
    await writer.drain()
    return writer


async def test_slowly_sent_large_requests_do_not_block_other_large_requests(
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


async def test_half_sent_requests_are_closed_when_others_wait_for_memory(
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


async def test_half_sent_requests_that_fill_the_memory_delay_a_large_one_by_two_seconds(
    tmp_path: Path,
) -> None:
    """Some stand with memory, the others ask for more: one after the other was given some."""
    async with (
        running(tmp_path, queued_max_request_bytes=16 << 20) as broker,
        connected(broker) as client,
    ):
        await client.create(max_message_bytes="4000000")
        sent = [300_000] * 20 + [(1 << 20) + 1] * 10
        slow = [await half_sent(broker.port, 100 << 20, count) for count in sent]
        await eventually(lambda: borrowed_bytes(broker) > 15 << 20)
        begun = time.monotonic()
        assert (await client.produce(batch(bytes(3_000_000)))).error_code == 0
        assert time.monotonic() - begun < 2
        for writer in slow:
            writer.close()


async def test_half_sent_request_is_cut_and_slow_ones_that_bring_enough_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HALF_SENT_ROUND_MS", 20)
    async with running(tmp_path) as broker, connected(broker) as client:
        standing = [await half_sent(broker.port, 100, sent) for sent in (0, 1, 99)]
        steady = await half_sent(broker.port, 100 << 20, 1)
        _, silent = await asyncio.open_connection("127.0.0.1", broker.port)

        def bring() -> bool:
            steady.write(bytes(4096))
            return broker.connections == 3

        await eventually(bring)
        assert all(each in open_ports(broker) for each in map(own_port, (steady, silent)))
        assert await serves(client)
        for writer in (*standing, steady, silent):
            writer.close()


async def test_idle_connections_are_not_visited_in_each_search_for_half_sent_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HALF_SENT_ROUND_MS", 1 << 30)
    async with running(tmp_path) as broker:
        (own,) = broker._listeners.values()
        writer = await half_sent(broker.port, 100, 50)
        _, silent = await asyncio.open_connection("127.0.0.1", broker.port)
        await eventually(lambda: [each for each in own._connections if each.receiving])
        looked: list[served.Connection] = []
        receiving = served.Connection.receiving

        def look(connection: served.Connection) -> int | None:
            looked.append(connection)
            return receiving.__get__(connection)

        monkeypatch.setattr(served.Connection, "receiving", property(look))
        for _ in range(listener.HALF_SENT_SEARCH_ROUNDS):
            own.cut_half_sent()
        assert len(looked) == listener.HALF_SENT_SEARCH_ROUNDS + 1
        for each in (writer, silent):
            each.close()
        await eventually(lambda: not broker.connections)
        assert own._half_sent == {}


def own_port(writer: asyncio.StreamWriter) -> int:
    return int(writer.get_extra_info("sockname")[1])


def open_ports(broker: Broker) -> set[int]:
    """Return the ports of the clients that are connected."""
    return {
        connection._transport.get_extra_info("peername")[1]
        for each in broker._listeners.values()
        for connection in each._connections
    }


async def test_each_listener_advertises_its_own_address(tmp_path: Path) -> None:
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


async def test_port_in_use_is_reported(tmp_path: Path) -> None:
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
