"""TLS between a scripted socket and a connection: what a hostile peer's records cost."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.loop.slices import TURN_S, Slicer
from barnabas.broker.server.tls import DATALESS_RECORDS, RECORDS, UNREAD_REPLIES, TlsTransport
from barnabas.config.tls_keys import TlsKeys
from barnabas.protocol.errors import ProtocolError
from barnabas.security.tls import server_tls
from tests.support.certificates import Stores
from tests.support.tls_records import ALERT, CLOSE_NOTIFY, DATA, RecordClient
from tests.support.waiting import eventually
from tests.unit.broker.server.wire import ScriptedTransport, StillClock, turn

REPLY = 27
"""The bytes of a KeyUpdate."""
_stand_still = StillClock().monotonic


class Received:
    """A connection that keeps the data it receives."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.reported: list[ProtocolError] = []
        self._space = memoryview(bytearray(64 * 1024))

    def connection_made(self, transport: Any) -> None: ...

    def get_buffer(self, _hint: int) -> memoryview:
        return self._space

    def buffer_updated(self, count: int) -> None:
        self.data += self._space[:count]

    def eof_received(self) -> bool:
        return False

    def report(self, error: ProtocolError) -> None:
        self.reported.append(error)

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class UnreadSocket(ScriptedTransport):
    """A socket whose peer may stop to read."""

    unread = False

    def write(self, data: bytes | memoryview) -> None:
        super().write(data)
        if self.unread:
            self.held += len(data)


class Wire:
    """A client behind a handshake, and the broker's side of its socket."""

    def __init__(
        self,
        directory: Path,
        version: ssl.TLSVersion,
        monotonic: Callable[[], float] = _stand_still,
    ) -> None:
        stores = Stores(directory)
        keys = TlsKeys(**TlsKeys.parse(stores.identity()))
        self.connection, self.raw = Received(), UnreadSocket()
        self.side = TlsTransport(
            self.connection,  # type: ignore[arg-type]
            server_tls(keys).context,
            Slicer(monotonic),
            secured=lambda _: None,
            failed=lambda _: None,
        )
        self.client = RecordClient(stores.authority.pem, directory, version)

    async def shake_hands(self) -> None:
        self.side.connection_made(self.raw)  # type: ignore[arg-type]
        self.deliver(self.client.shake_hands())
        while not self.client.done:
            await turn()
            said = bytes(self.raw.written)
            self.raw.written.clear()
            self.deliver(self.client.shake_hands(said))
        await turn()
        assert not self.client.ends(bytes(self.raw.written))
        self.raw.written.clear()

    def deliver(self, data: bytes) -> bytes:
        """Let the broker read; return what it leaves in the socket."""
        while data and self.raw.reading and not self.raw.closed:
            room = self.side.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.side.buffer_updated(size)
            data = data[size:]
        return data


def key_updates(client: RecordClient) -> bytes:
    return client.key_update()


def silent_key_updates(client: RecordClient) -> bytes:
    return client.key_update(requested=False)


def renegotiations(client: RecordClient) -> bytes:
    return client.renegotiation()


def empty_records(client: RecordClient) -> bytes:
    return client.record(DATA, b"")


@pytest.mark.parametrize(
    ("version", "make"),
    [
        (ssl.TLSVersion.TLSv1_3, key_updates),
        (ssl.TLSVersion.TLSv1_3, silent_key_updates),
        (ssl.TLSVersion.TLSv1_3, empty_records),
        (ssl.TLSVersion.TLSv1_2, renegotiations),
        (ssl.TLSVersion.TLSv1_2, empty_records),
    ],
)
async def test_peer_that_sends_records_without_data_is_closed_after_a_few(
    tmp_path: Path, version: ssl.TLSVersion, make: Callable[[RecordClient], bytes]
) -> None:
    wire = Wire(tmp_path, version)
    await wire.shake_hands()
    wire.deliver(wire.client.record(DATA, b"a request"))
    wire.deliver(b"".join(make(wire.client) for _ in range(10 * DATALESS_RECORDS)))
    await turn()
    assert wire.raw.closed
    assert wire.connection.data == b"a request"
    assert len(wire.raw.written) <= UNREAD_REPLIES
    if make is not empty_records:  # which OpenSSL refuses itself
        assert [str(each) for each in wire.connection.reported] == [
            f"{DATALESS_RECORDS} TLS records without data"
        ]


async def test_key_updates_between_data_are_followed(tmp_path: Path) -> None:
    wire = Wire(tmp_path, ssl.TLSVersion.TLSv1_3)
    await wire.shake_hands()
    sent = bytearray()
    for number in range(1000):
        data = b"%d " % number
        sent += data
        records = wire.client.key_update() + wire.client.record(DATA, data)
        # Some arrive in two parts, which meet in a header or in its content.
        wire.deliver(records[: number % 40])
        wire.deliver(records[number % 40 :])
    assert wire.connection.data == sent
    assert not wire.raw.closed


async def test_replies_that_the_peer_does_not_read_pause_reading(tmp_path: Path) -> None:
    wire = Wire(tmp_path, ssl.TLSVersion.TLSv1_3)
    await wire.shake_hands()
    wire.raw.unread = True
    sent = bytearray()
    flood = bytearray()
    for number in range(100):
        data = b"%d " % number
        sent += data
        flood += b"".join(wire.client.key_update() for _ in range(RECORDS // 2))
        flood += wire.client.record(DATA, data)
    left, waits = bytes(flood), 0
    while wire.connection.data != sent:
        left = wire.deliver(left)
        await turn()
        assert wire.raw.held <= UNREAD_REPLIES + RECORDS * REPLY
        waits += not wire.raw.reading
        # The peer reads.
        wire.raw.held = 0
        wire.side.resume_writing()
        await turn()
    assert waits > 10
    assert not wire.raw.closed


async def test_small_records_of_one_peer_take_turns_with_others(tmp_path: Path) -> None:
    now = [0.0]

    def monotonic() -> float:
        now[0] += TURN_S / 10
        return now[0]

    wire = Wire(tmp_path, ssl.TLSVersion.TLSv1_3, monotonic)
    await wire.shake_hands()
    sent = b"".join(wire.client.record(DATA, b"x") for _ in range(100 * RECORDS))
    left = wire.deliver(sent)
    assert not wire.raw.reading
    assert 0 < len(wire.connection.data) <= 20 * RECORDS
    while left:
        await turn()
        left = wire.deliver(left)
    await eventually(lambda: len(wire.connection.data) == 100 * RECORDS)
    await eventually(lambda: wire.raw.reading)


async def test_end_of_the_peer_is_answered_with_the_own_mark_of_the_end(tmp_path: Path) -> None:
    wire = Wire(tmp_path, ssl.TLSVersion.TLSv1_3)
    await wire.shake_hands()
    wire.deliver(wire.client.record(ALERT, CLOSE_NOTIFY))
    assert wire.raw.closed
    assert wire.client.ends(bytes(wire.raw.written))
