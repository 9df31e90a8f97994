"""A crowd that never authenticates, against a broker in a process of its own.

    python -m tests.support.strangers 2000

prints the cost of the crowd: memory, the waits of a client that is served meanwhile, and the time
until the last of the crowd is gone; then the same waits while 1,000 connections a second come.
"""

import argparse
import asyncio
import itertools
import json
import ssl
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.processes.broker import raise_file_limit
from benchmarks import raw
from benchmarks.systems import resident_bytes
from tests.support.brokers.process import BrokerProcess
from tests.support.certificates import Stores
from tests.support.ports import free_port

PER_SECOND = 1000
_WAVE = 20
_HUGE = 500_000
"""Below sasl.server.max.receive.size, so that the broker reads it."""


class Cost(NamedTuple):
    """The cost of a crowd: memory in MB, times in s or ms."""

    memory_mb: float
    alone_p99_ms: float
    beside_p99_ms: float
    gone_s: float
    storm_p99_ms: float
    storm_per_s: float


def client_hello() -> bytes:
    """Return the first record of a handshake of TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(
            incoming, outgoing, server_hostname="localhost"
        ).do_handshake()
    return outgoing.read()


def handshake(mechanism: bytes = b"PLAIN") -> bytes:
    """Return a SaslHandshake v1."""
    body = struct.pack(">hhih", 17, 1, 1, -1) + struct.pack(">h", len(mechanism)) + mechanism
    return struct.pack(">i", len(body)) + body


Writer = asyncio.StreamWriter


async def silent(_writer: Writer, _hello: bytes, _tls: bool) -> None: ...


async def slow(writer: Writer, hello: bytes, tls: bool) -> None:
    for each in hello if tls else handshake():
        writer.write(bytes([each]))
        await asyncio.sleep(1)


async def half_shaken(writer: Writer, hello: bytes, tls: bool) -> None:
    writer.write(hello if tls else handshake())


async def huge(writer: Writer, _hello: bytes, tls: bool) -> None:
    if tls:
        # A ClientHello of 16 MB, in records of 16 KB.
        begun = b"\x01\xff\xff\xff"
        for _ in range(30):
            writer.write(b"\x16\x03\x01\x40\x00" + begun + bytes(16384 - len(begun)))
            begun = b""
        return
    writer.write(handshake() + struct.pack(">ihhih", _HUGE, 36, 1, 2, -1) + bytes(_HUGE - 100))


KINDS: tuple[Callable[[Writer, bytes, bool], Awaitable[None]], ...] = (
    silent,
    slow,
    half_shaken,
    huge,
)


class Crowd:
    """Connections of all kinds in turn, to a listener with TLS and to one with SASL."""

    def __init__(self, tls_port: int, sasl_port: int) -> None:
        self._ports = (tls_port, sasl_port)
        self._hello = client_hello()
        self._tasks: list[asyncio.Task[None]] = []
        self.open = 0

    async def come(self, size: int) -> None:
        """Connect them all, as fast as they are accepted."""
        kinds = itertools.cycle(itertools.product(KINDS, (True, False)))
        for wave in range(0, size, _WAVE):
            count = min(_WAVE, size - wave)
            await asyncio.gather(*(self._one(*next(kinds)) for _ in range(count)))

    async def _one(self, kind: Callable[[Writer, bytes, bool], Awaitable[None]], tls: bool) -> None:
        reader, writer = await asyncio.open_connection("localhost", self._ports[not tls])
        self.open += 1
        self._tasks.append(asyncio.create_task(self._stand(kind, tls, reader, writer)))

    async def _stand(
        self,
        kind: Callable[[Writer, bytes, bool], Awaitable[None]],
        tls: bool,
        reader: asyncio.StreamReader,
        writer: Writer,
    ) -> None:
        acting = asyncio.create_task(kind(writer, self._hello, tls))
        with suppress(OSError):
            while await reader.read(65536):
                pass
        acting.cancel()
        writer.close()
        self.open -= 1

    async def gone(self) -> None:
        await asyncio.gather(*self._tasks)


class Neighbour:
    """A client that produces one record after another, and keeps the times of the answers."""

    def __init__(self, port: int) -> None:
        self._client = raw.connect(port)
        raw.create_topic(self._client, "t")
        self._request = raw.produce_request("t", records=1, record_bytes=100)
        raw.acknowledged(self._client, self._request)

    async def p99_ms(self, until: Callable[[], bool]) -> float:
        """Work until a condition holds; return the 99th percentile of the times."""
        taken: list[float] = []
        while not until():
            taken += await asyncio.to_thread(self._client.latencies, self._request, 50)
        return sorted(taken)[len(taken) * 99 // 100] * 1e3


async def storm(port: int, seconds: float) -> float:
    """Open connections at PER_SECOND and close each at once; return how many came a second."""
    begun, count = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        due = int(passed * PER_SECOND) - count
        opened = await asyncio.gather(
            *(asyncio.open_connection("localhost", port) for _ in range(min(due, _WAVE)))
        )
        count += len(opened)
        for _, writer in opened:
            writer.close()
        await asyncio.sleep(0.005)
    return count / (time.monotonic() - begun)


async def cost_of(directory: Path, size: int, storm_s: float, **keys: str) -> Cost:
    """Measure what a crowd costs a broker."""
    tls_port, sasl_port = free_port(), free_port()
    stores = Stores(directory)
    broker = BrokerProcess(
        directory / "broker",
        further=[f"SECURE://localhost:{tls_port}", f"LOGIN://localhost:{sasl_port}"],
        **{
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL,LOGIN:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required user_a='secret';"
            ),
            **stores.identity(),
            **keys,
        },
    )
    with broker:
        neighbour = await asyncio.to_thread(Neighbour, broker.port)
        begun = time.monotonic()
        alone = await neighbour.p99_ms(lambda: time.monotonic() > begun + 1)
        before = resident_bytes(broker.pid)
        crowd = Crowd(tls_port, sasl_port)
        coming = asyncio.create_task(crowd.come(size))
        most = 0

        def settled() -> bool:
            nonlocal most
            most = max(most, resident_bytes(broker.pid))
            return coming.done() and time.monotonic() > came + 2

        came = time.monotonic()
        beside = await neighbour.p99_ms(settled)
        await coming
        await crowd.gone()
        gone = time.monotonic() - came
        stormed = asyncio.create_task(storm(tls_port, storm_s))
        storm_p99 = await neighbour.p99_ms(stormed.done)
        return Cost((most - before) / 1e6, alone, beside, gone, storm_p99, await stormed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", type=int, nargs="?", default=2000)
    size = parser.parse_args().size
    raise_file_limit()
    with tempfile.TemporaryDirectory() as directory:
        cost = asyncio.run(cost_of(Path(directory), size, 5))
    print(json.dumps(cost._asdict(), indent=1))


if __name__ == "__main__":
    main()
