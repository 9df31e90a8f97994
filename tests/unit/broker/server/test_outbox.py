"""Answers with long file ranges over real sockets: every byte, in order, and no more in memory."""

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.server.network import TcpNetwork, descriptor_behind
from barnabas.broker.server.outbox import BYTES_PER_TURN, Outbox
from barnabas.broker.server.slice_reader import MAX_CHUNK, MIN_CHUNK
from barnabas.storage.files.files import File, OsFiles, is_cached
from barnabas.storage.log.log_slice import LogSlice
from tests.support.mem_files import MemFiles
from tests.unit.broker.server.wire import ScriptedTransport

SIZE = 6_000_000
"""More than both kernels' buffers take."""
DEADLINE_S = 20.0


class Sender(asyncio.BufferedProtocol):
    """The writing half of a connection."""

    def __init__(self) -> None:
        self.out = Outbox(InlineOffload(), lambda: self.out.pump(), self._failed)
        self.error: OSError | None = None
        self.lost = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.out.open(transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(max(sizehint, 1))

    def buffer_updated(self, nbytes: int) -> None: ...

    def pause_writing(self) -> None:
        self.out.pause()

    def resume_writing(self) -> None:
        self.out.resume()
        self.out.pump()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost.set()

    def _failed(self, error: OSError) -> None:
        self.error = error
        self.out.clear()
        self.transport.abort()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Sender, asyncio.StreamReader]]:
    """Connect a sender with small buffers to a reader."""
    senders: asyncio.Queue[Sender] = asyncio.Queue()

    def accepted() -> Sender:
        sender = Sender()
        senders.put_nowait(sender)
        return sender

    network = TcpNetwork(backlog=5, send_buffer=16 * 1024, receive_buffer=-1)
    server = await network.listen(accepted, "127.0.0.1", 0)
    await server.serve()
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", server.port))
    reader, writer = await asyncio.open_connection(sock=plain, limit=16 * 1024)
    sender = await senders.get()
    try:
        yield sender, reader
    finally:
        writer.close()
        server.close()
        await sender.lost.wait()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Run a test on one of the two event loops."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(test: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test, DEADLINE_S))

    return run


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the bytes that each sendfile call has sent."""
    counts: list[int] = []
    sendfile = os.sendfile

    def counted(*args: Any) -> int:
        counts.append(0)
        counts[-1] = sendfile(*args)
        return counts[-1]

    monkeypatch.setattr(os, "sendfile", counted)
    return counts


def file_of(path: Path, size: int = SIZE) -> tuple[File, bytes]:
    """Create a file of random bytes, all in the page cache."""
    data = random.Random(size).randbytes(size)
    file = OsFiles().open(str(path), create=True)
    file.append(data)
    return file, data


needs_cachestat = pytest.mark.skipif(
    not is_cached(os.open(__file__, os.O_RDWR), 1, 0),
    reason="the kernel does not tell what it has cached (Linux 6.5)",
)


@needs_cachestat
def test_bytes_around_long_ranges_keep_their_order(
    run: Callable[[Awaitable[None]], None], sent: list[int], tmp_path: Path
) -> None:
    async def test() -> None:
        file, data = file_of(tmp_path / "log")
        ranges = ((file, 1001, 3_000_001), (file, 5, 10), (file, 4_000_000, 500_000))
        body = b"".join(data[start : start + length] for _, start, length in ranges)
        expected = b"before" + body + b"between" + data[: SIZE // 2] + b"behind" + data[:100]
        async with connected() as (sender, reader):
            sender.out.put([b"before", LogSlice(0, 1, ranges), b"between"])
            sender.out.pump()
            sender.out.put([LogSlice(0, 1, ((file, 0, SIZE // 2),)), b"behind"])
            sender.out.put([LogSlice(0, 1, ((file, 0, 100),))])
            sender.out.pump()
            assert await reader.readexactly(len(expected)) == expected
            assert not sender.out

    run(test())
    assert sum(sent) > SIZE // 2


def test_slow_reader_costs_one_chunk_of_memory(
    run: Callable[[Awaitable[None]], None], tmp_path: Path
) -> None:
    async def test() -> None:
        file, data = file_of(tmp_path / "log")
        async with connected() as (sender, reader):
            sender.out.put([b"head", LogSlice(0, 1, ((file, 0, SIZE),)), b"tail"])
            sender.out.pump()
            assert sender.out.blocked
            read = b""
            while len(read) < SIZE + 8:
                assert sender.transport.get_write_buffer_size() <= 2 * MIN_CHUNK
                read += await reader.read(100_000)
            assert read == b"head" + data + b"tail"

    run(test())


def test_segment_deleted_during_send_still_arrives(
    run: Callable[[Awaitable[None]], None], tmp_path: Path
) -> None:
    async def test() -> None:
        file, data = file_of(tmp_path / "log")
        source = LogSlice(0, 1, ((file, 0, SIZE),))
        del file
        async with connected() as (sender, reader):
            sender.out.put([source])
            del source
            sender.out.pump()
            (tmp_path / "log").unlink()
            assert await reader.readexactly(SIZE) == data

    run(test())


def test_truncated_file_closes_connection_without_padding(
    run: Callable[[Awaitable[None]], None], tmp_path: Path
) -> None:
    async def test() -> None:
        file, data = file_of(tmp_path / "log")
        async with connected() as (sender, reader):
            sender.out.put([LogSlice(0, 1, ((file, 0, SIZE),)), b"never"])
            sender.out.pump()
            file.truncate(SIZE - 100_000)
            read = b""
            try:
                while more := await reader.read(100_000):
                    read += more
            except ConnectionResetError:
                pass
            assert data.startswith(read)
            assert len(read) <= SIZE - 100_000
            assert sender.error is not None
            assert "ends before" in str(sender.error)

    run(test())


def test_rest_is_dropped_when_reader_disconnects(
    run: Callable[[Awaitable[None]], None], sent: list[int], tmp_path: Path
) -> None:
    async def test() -> None:
        file, _ = file_of(tmp_path / "log")
        async with connected() as (sender, _):
            sender.out.put([LogSlice(0, 1, ((file, 0, SIZE),))])
            sender.out.pump()
        calls = len(sent)
        sender.out.resume()
        sender.out.pump()
        assert not sender.out
        assert sender.error is None
        assert len(sent) == calls

    run(test())


async def test_fast_peer_yields_to_other_connections() -> None:
    size = 3 * BYTES_PER_TURN
    file = MemFiles().open("/log", create=True)
    file.append(bytes(size))
    transport = ScriptedTransport()
    out = Outbox(InlineOffload(), lambda: out.pump(), lambda _: None)
    out.open(transport)
    out.put([LogSlice(0, 1, ((file, 0, size),)), b"tail"])
    out.pump()
    turns = 0
    while out:
        assert out.blocked
        assert len(transport.written) < (turns + 1) * (BYTES_PER_TURN + MAX_CHUNK)
        await asyncio.sleep(0)
        turns += 1
    assert turns > 1
    assert transport.written == bytes(size) + b"tail"


class BesideTransport:
    """An outbox with a transport and, behind it, a socket that nothing should be sent to."""

    def __init__(self, path: Path, transport: type[ScriptedTransport] = ScriptedTransport) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.transport = transport(self.near)
        self.out = Outbox(InlineOffload(), lambda: None, lambda _: None)
        self.out.open(self.transport)
        file, self.data = file_of(path, 1_000_000)
        self.out.put([b"head", LogSlice(0, 1, ((file, 0, 1_000_000),))])

    def pump(self) -> None:
        with self.near, self.far:
            self.out.pump()
            with pytest.raises(BlockingIOError):
                self.far.recv(1)


async def test_closed_connection_descriptor_gets_no_bytes(tmp_path: Path) -> None:
    beside = BesideTransport(tmp_path / "log")
    beside.transport.close()
    beside.pump()
    assert not beside.out


async def test_no_sendfile_after_write_that_found_connection_closed(tmp_path: Path) -> None:
    class Broken(ScriptedTransport):
        def write(self, data: bytes | memoryview) -> None:
            super().write(data)
            self.close()

    BesideTransport(tmp_path / "log", Broken).pump()


async def test_sendfile_does_not_overtake_transport_buffer(tmp_path: Path) -> None:
    beside = BesideTransport(tmp_path / "log")
    beside.transport.held = 1
    beside.pump()
    assert beside.transport.written == b"head" + beside.data


def test_encrypted_connection_sends_through_transport() -> None:
    near, far = socket.socketpair()
    with near, far:
        transport = ScriptedTransport(near)
        assert descriptor_behind(transport) == near.fileno()  # type: ignore[arg-type]
        transport.extra["sslcontext"] = object()
        assert descriptor_behind(transport) is None  # type: ignore[arg-type]


async def test_small_parts_and_short_ranges_leave_in_one_write() -> None:
    file = MemFiles().open("/log", create=True)
    file.append(b"abcdef")
    transport = ScriptedTransport()
    out = Outbox(InlineOffload(), lambda: None, lambda _: None)
    out.open(transport)
    for number in range(3):
        out.put([b"head%d" % number, LogSlice(0, 1, ((file, number, 2),)), b"tail"])
    out.pump()
    assert bytes(transport.written) == b"head0abtailhead1bctailhead2cdtail"
    assert transport.writes == 1
