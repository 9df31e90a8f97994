"""Clients that never authenticate: `python -m tests.support.stranger_loads LOAD ARGUMENT...`

Each load is a process of its own, so that its work does not distort the times that another process
measures. It prints its figures as a line of JSON.

    crowd       TLS_PORT SASL_PORT SIZE   connections of all kinds, PER_SECOND a second, until the
                                          broker closes them; a line when all are open, and one when
                                          all are closed
    storm       PORT SECONDS              PER_SECOND connections a second, each closed at once
    handshakes  PORT SECONDS AUTHORITY    full handshakes of TLS 1.3, as many as possible
"""

import asyncio
import itertools
import json
import socket
import ssl
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

import uvloop

from barnabas.cli.processes.broker import raise_file_limit

PER_SECOND: Final = 1000
_AT_ONCE: Final = 50
"""The handshakes at the same time."""
GIVE_UP_S: Final = 40.0
"""A connection that is dropped from the queue of the listener is never told."""
LATE_S: Final = 0.5
"""A connection that finds the queue of the listener full tries again after a second."""
_HUGE: Final = 500_000
"""Below sasl.server.max.receive.size, so that the broker reads it."""
_HOST: Final = "127.0.0.1"

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


def client_hello() -> bytes:
    """Return the first record of a handshake of TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(
            incoming, outgoing, server_hostname=_HOST
        ).do_handshake()
    return outgoing.read()


def handshake(mechanism: bytes = b"PLAIN") -> bytes:
    """Return a SaslHandshake v1."""
    body = struct.pack(">hhih", 17, 1, 1, -1) + struct.pack(">h", len(mechanism)) + mechanism
    return struct.pack(">i", len(body)) + body


HELLO: Final = client_hello()


async def silent(_writer: Writer, _tls: bool) -> None: ...


async def slow(writer: Writer, tls: bool) -> None:
    for each in HELLO if tls else handshake():
        writer.write(bytes([each]))
        await asyncio.sleep(1)


async def half_shaken(writer: Writer, tls: bool) -> None:
    writer.write(HELLO if tls else handshake())


async def huge(writer: Writer, tls: bool) -> None:
    if tls:
        # A ClientHello of 16 MB, in records of 16 KB.
        begun = b"\x01\xff\xff\xff"
        for _ in range(30):
            writer.write(b"\x16\x03\x01\x40\x00" + begun + bytes(16384 - len(begun)))
            begun = b""
        return
    writer.write(handshake() + struct.pack(">ihhih", _HUGE, 36, 1, 2, -1) + bytes(_HUGE - 100))


async def shaken(writer: Writer, tls: bool) -> None:
    """Be silent where SASL should follow: the handshake of TLS is done."""
    if not tls:
        writer.write(handshake())


KINDS: Final[tuple[Callable[[Writer, bool], Awaitable[None]], ...]] = (
    silent,
    slow,
    half_shaken,
    huge,
    shaken,
)


def _trusting(authority: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    if authority is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def tell(**figures: float) -> None:
    print(json.dumps(figures), flush=True)


async def paced(number: int) -> AsyncIterator[int]:
    """Yield numbers, PER_SECOND of them a second; those that are late come at once."""
    begun = time.monotonic()
    for each in range(number):
        if (early := begun + each / PER_SECOND - time.monotonic()) > 0:
            await asyncio.sleep(early)
        yield each


async def act(kind: Awaitable[None]) -> None:
    """Do what a stranger does, until the broker closes its connection."""
    # uvloop raises RuntimeError for a transport that is closed.
    with suppress(OSError, RuntimeError):
        await kind


async def crowd(tls_port: str, sasl_port: str, size: str) -> None:
    begun, stood, trusting = time.monotonic(), [], _trusting()
    coming = int(size)
    all_open = asyncio.Event()

    async def one(kind: Callable[[Writer, bool], Awaitable[None]], tls: bool) -> None:
        nonlocal coming
        context = trusting if tls and kind is shaken else None
        port = tls_port if tls else sasl_port
        try:
            reader, writer = await asyncio.open_connection(_HOST, port, ssl=context)
        except OSError:
            return
        finally:
            coming -= 1
            if not coming:
                all_open.set()
        came = time.monotonic()
        acting = asyncio.create_task(act(kind(writer, tls)))
        with suppress(OSError):
            async with asyncio.timeout(GIVE_UP_S):
                while await reader.read(65536):
                    pass
            stood.append(time.monotonic() - came)
        acting.cancel()
        writer.close()

    kinds = list(itertools.product(KINDS, (True, False)))
    async with asyncio.TaskGroup() as tasks:
        async for each in paced(int(size)):
            tasks.create_task(one(*kinds[each % len(kinds)]))
        await all_open.wait()
        tell(came_s=time.monotonic() - begun)
    tell(stood_s=max(stood))


async def storm(port: str, seconds: str) -> None:
    begun, taken = time.monotonic(), []

    async def one() -> None:
        asked, loop = time.monotonic(), asyncio.get_running_loop()
        with socket.socket() as plain:
            plain.setblocking(False)
            await loop.sock_connect(plain, (_HOST, int(port)))
        taken.append(time.monotonic() - asked)

    number = int(float(seconds) * PER_SECOND)
    async with asyncio.TaskGroup() as tasks:
        async for _ in paced(number):
            tasks.create_task(one())
        paced_s = time.monotonic() - begun
    tell(
        per_s=sum(each < LATE_S for each in taken) / paced_s,
        slowest_s=max(taken),
        count=len(taken),
    )


async def handshakes(port: str, seconds: str, authority: str) -> None:
    begun, end, count = time.monotonic(), time.monotonic() + float(seconds), 0
    context = _trusting(authority)

    async def some() -> None:
        nonlocal count
        while time.monotonic() < end:
            _, writer = await asyncio.open_connection(_HOST, port, ssl=context)
            count += 1
            writer.transport.abort()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(some())
    tell(per_s=count / (time.monotonic() - begun), count=count)


LOADS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "crowd": crowd,
    "storm": storm,
    "handshakes": handshakes,
}


def main() -> None:
    raise_file_limit()
    name, *arguments = sys.argv[1:]

    async def run() -> None:
        await LOADS[name](*arguments)

    uvloop.run(run())


if __name__ == "__main__":
    main()
