"""A cut link carries nothing, tells neither side, and loses nothing once it is mended."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from barnabas.broker.server.network import TcpNetwork
from barnabas.faults.severable import Link, SeverableNetwork

DEADLINE = 10.0
QUIET = 0.05
"""Seconds in which something would have arrived that does not."""


class Talker(asyncio.BufferedProtocol):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.room = bytearray(1024)
        self.heard = bytearray()
        self.news = asyncio.Event()
        self.lost = False
        self.paused = False
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost = True
        self.news.set()

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self.room[:nbytes]
        self.news.set()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.news.set()

    async def until(self, see: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not see():
                self.news.clear()
                await self.news.wait()

    async def hears(self, text: bytes) -> None:
        await self.until(lambda: bytes(self.heard) == text)

    async def hears_nothing(self) -> None:
        self.news.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.news.wait(), QUIET)
        assert (bytes(self.heard), self.lost) == (b"", False)


class Pair:
    """Two ends of a connection; the line is at the client's."""

    def __init__(self) -> None:
        plain = TcpNetwork(backlog=10, send_buffer=-1, receive_buffer=-1)
        self.network = SeverableNetwork(plain)
        self.server = Talker()
        self.client = Talker()

    async def connect(self) -> "Pair":
        self.listening = await self.network.listen(lambda: self.server, "127.0.0.1", 0)
        await self.listening.serve()
        await self.network.connect(lambda: self.client, "127.0.0.1", self.listening.port)
        self.client.transport.write(b"?")
        await self.server.hears(b"?")
        self.server.heard.clear()
        return self

    @property
    def line(self) -> Link:
        return self.network.outgoing[self.listening.port]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = await Pair().connect()
    yield pair
    pair.network.mend()
    pair.client.transport.abort()
    pair.listening.close()


async def test_what_is_said_over_a_cut_line_arrives_when_it_is_mended(pair: Pair) -> None:
    pair.line.cut()
    pair.client.transport.write(b"a")
    pair.client.transport.writelines([b"b", b"c"])
    pair.server.transport.write(b"1")
    await pair.server.hears_nothing()
    await pair.client.hears_nothing()
    assert pair.client.transport.get_write_buffer_size() == 3
    assert pair.client.paused
    pair.line.mend()
    await pair.server.hears(b"abc")
    await pair.client.hears(b"1")
    await pair.client.until(lambda: not pair.client.paused)


async def test_a_line_can_be_cut_one_way(pair: Pair) -> None:
    pair.line.cut(receiving=False)
    pair.client.transport.write(b"a")
    pair.server.transport.write(b"1")
    await pair.client.hears(b"1")
    await pair.server.hears_nothing()
    pair.client.heard.clear()
    pair.line.mend()
    await pair.server.hears(b"a")
    pair.server.heard.clear()

    pair.line.cut(sending=False)
    pair.client.transport.write(b"b")
    pair.server.transport.write(b"2")
    await pair.server.hears(b"b")
    await pair.client.hears_nothing()


async def test_who_closes_a_cut_connection_is_rid_of_it_and_the_other_learns_later(
    pair: Pair,
) -> None:
    pair.line.cut()
    pair.client.transport.write(b"last words")
    pair.client.transport.close()
    assert pair.client.transport.is_closing()
    await pair.client.until(lambda: pair.client.lost)
    await pair.server.hears_nothing()
    pair.line.mend()
    await pair.server.until(lambda: pair.server.lost)
    assert bytes(pair.server.heard) == b"last words"


async def test_nobody_notices_that_the_other_has_gone(pair: Pair) -> None:
    pair.line.cut()
    pair.server.transport.abort()
    await pair.client.hears_nothing()
    pair.line.mend()
    await pair.client.until(lambda: pair.client.lost)


async def test_no_connection_is_made_over_a_cut_line(pair: Pair) -> None:
    pair.line.cut()
    late = Talker()
    connecting = asyncio.ensure_future(
        pair.network.connect(lambda: late, "127.0.0.1", pair.listening.port)
    )
    done, _ = await asyncio.wait([connecting], timeout=QUIET)
    assert not done
    pair.line.mend()
    await asyncio.wait_for(connecting, DEADLINE)
    late.transport.abort()


async def test_who_comes_in_over_a_cut_line_is_not_heard(pair: Pair) -> None:
    pair.network.incoming[pair.listening.port].cut()
    pair.client.transport.write(b"a")
    await pair.server.hears_nothing()
    pair.network.mend()
    await pair.server.hears(b"a")


async def test_reading_that_was_paused_stays_so_when_the_line_is_mended(pair: Pair) -> None:
    pair.line.cut()
    pair.client.transport.pause_reading()
    pair.server.transport.write(b"1")
    pair.line.mend()
    await pair.client.hears_nothing()
    pair.client.transport.resume_reading()
    await pair.client.hears(b"1")


async def test_the_socket_is_hidden(pair: Pair) -> None:
    assert pair.client.transport.get_extra_info("socket") is None
    assert pair.client.transport.get_extra_info("peername") == ("127.0.0.1", pair.listening.port)
