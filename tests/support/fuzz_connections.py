"""Connections for the fuzzer: to listeners with SASL and with TLS, and of a client that logs in.

All parts are real, except for the socket and the time: a connection in which nothing happens for
20 s is judged in microseconds.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache, partial
from io import StringIO
from itertools import count
from typing import Any, Final

from barnabas.broker.cluster.features import Features
from barnabas.broker.handlers import api_versions as handler
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import configure
from barnabas.broker.server.connection import SharedResources
from barnabas.broker.server.dispatch import Dispatcher, Route
from barnabas.broker.server.limits.budget import RequestMemory
from barnabas.broker.server.limits.connection_limits import ConnectionLimits
from barnabas.broker.server.limits.quotas import ClientQuotas, Periods
from barnabas.broker.server.listener import ServedListener
from barnabas.broker.server.login_queue import LoginQueue
from barnabas.broker.server.sasl import ListenerSasl, Mechanism
from barnabas.broker.server.tls import ListenerTls, TlsTransport
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.connection import Connection as ClientConnection
from barnabas.client.sasl import logged_in, login_with
from barnabas.config.broker import BrokerConfig
from barnabas.config.tls_keys import TlsKeys
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.frame import SpareBuffers
from barnabas.protocol.messages import api_versions
from barnabas.security.principal import ANONYMOUS
from barnabas.security.tls import client_tls, server_tls
from tests.support.certificates import Authority
from tests.support.fuzz_sasl import SERVERS
from tests.support.rows import row_of
from tests.support.virtual_loop import MemoryNetwork, ReceivingEnd, VirtualClock, VirtualLoop

SASL: Final = "SASL_PLAINTEXT"
TLS: Final = "SSL"
GONE_S: Final = 20.0
"""The seconds after which a connection without authentication, or without a handshake, is gone."""
MAX_ANSWERS: Final = 16 << 10
"""The bytes that the broker writes to a client before its authentication or handshake."""
MAX_PIECES: Final = 16
"""The pieces in which an input arrives: more of them only take time."""
INPUTS: Final = 1000
"""The inputs after which the listeners are made anew: virtual time must not lose its precision."""


class Wire(ReceivingEnd):
    """The transport of a connection's socket. What is written to it is kept."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop, ("10.0.0.1", 9092), ("10.0.0.2", 40_000))
        self.written = bytearray()

    def write(self, data: Any) -> None:
        self.written += data

    def receive_end(self) -> None:
        """Take the end of the peer's data."""
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def close(self) -> None:
        self.lose(None)

    abort = close

    def lose(self, error: Exception | None) -> None:
        """End the connection."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, error)


class Faults(logging.Handler):
    """The errors that are logged, or that escape from a callback. All log lines are formatted."""

    def __init__(self) -> None:
        super().__init__()
        root = logging.getLogger()
        level, own = root.level, configure(StringIO())
        root.setLevel(level)
        root.removeHandler(own)
        self.formatter = own.formatter
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if record.levelno >= logging.ERROR:
            self.found.append(line)

    def escaped(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note an error that asyncio would log."""
        self.found.append(repr(context))


class World:
    """An event loop on virtual time, with the listeners of a broker."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(0)
        self.faults = Faults()
        self.loop.set_exception_handler(self.faults.escaped)
        self.inputs = count(1)
        self.listeners: dict[str, ServedListener] = {}

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work on one input; raise AssertionError for a fault that went to the log."""
        log = logging.getLogger("barnabas")
        log.addHandler(self.faults)
        try:
            self.loop.run_until_complete(work)
            assert not self.faults.found, self.faults.found
            for listener in self.listeners.values():
                assert not listener.connections, "a connection is not forgotten"
        except BaseException as error:
            # The next input must not inherit what this one has broken.
            _worlds.clear()
            self.loop.close()
            if self.faults.found:
                raise AssertionError(self.faults.found) from error
            raise
        finally:
            log.removeHandler(self.faults)

    async def listen(self) -> None:
        """Make the listeners."""
        config = BrokerConfig.from_properties(
            {
                "listeners": f"{SASL}://sim:1,{TLS}://sim:2",
                "log.dirs": "/data",
                "inter.broker.listener.name": SASL,
                "sasl.enabled.mechanisms": "OAUTHBEARER",
            }
        )
        clock, offload = VirtualClock(self.loop), InlineOffload()
        metrics = BrokerMetrics(Registry())
        announced = handler.announce({handler.API.key: handler.API.versions})
        features = Features(None)  # type: ignore[arg-type]
        shared = SharedResources(
            dispatcher=Dispatcher(
                {
                    handler.API.key: Route(
                        handler.API,
                        handler.API.versions,
                        partial(handler.handle, "cluster", 1, features, announced),
                        row_of(handler).refuse,
                    )
                },
                clock=clock,
                slicer=Slicer(clock.monotonic),
                metrics=metrics.requests,
            ),
            offload=offload,
            memory=RequestMemory(config.queued_max_request_bytes),
            max_request_bytes=config.socket_request_max_bytes,
            spares=SpareBuffers(),
        )
        quotas = ClientQuotas(clock.monotonic, Periods(), metrics.quotas)
        limits = ConnectionLimits(config, 1000, quotas)
        self.sasl = ListenerSasl(
            SASL,
            {},
            config,
            shared=shared,
            logins=LoginQueue(offload, "logins"),
            clock=clock,
            metrics=metrics.requests,
        )
        failures = metrics.requests.authentication.failed.cell(TLS)
        ways: dict[str, dict[str, Any]] = {
            SASL: {"sasl": self.sasl},
            TLS: {"tls": ListenerTls(TLS, server_keys(), offload, failures)},
        }
        for port, (name, way) in enumerate(ways.items(), 1):
            listener = self.listeners[name] = ServedListener(
                name, "sim", port, shared=shared, limits=limits, metrics=metrics.requests, **way
            )
            await listener.bind(MemoryNetwork(self.loop))

    def connect(self, listener: str) -> tuple[Wire, Any]:
        """Connect a socket to a listener; return its transport and its protocol."""
        wire = Wire(self.loop)
        protocol = self.loop.servers[self.listeners[listener].port].factory()
        wire.start(protocol)
        return wire, protocol


_worlds: list[World] = []


def world() -> World:
    """Return the world of the next input."""
    if not _worlds or next(_worlds[0].inputs) > INPUTS:
        while _worlds:
            _worlds.pop().loop.close()
        made = World()
        made.run(made.listen())
        _worlds.append(made)
    return _worlds[0]


async def deliver(wire: Wire, data: bytes, step: int, pause: float = 0.0) -> None:
    """Deliver bytes in pieces of a size, with a pause in seconds after each."""
    step = max(step, len(data) // MAX_PIECES + 1)
    for at in range(0, len(data), step):
        wire.receive(data[at : at + step])
        await asyncio.sleep(pause)


def authentication(data: bytes) -> None:
    """Receive bytes on a listener with SASL.

    Bits of the first byte: how the connection ends, how much time there is between pieces, and
    whether sessions have a lifetime. The second byte gives the size of the pieces.
    """
    if len(data) >= 2:
        here = world()
        here.run(_authentication(here, data[0], 16 * data[1] + 1, data[2:]))


async def _authentication(here: World, options: int, step: int, data: bytes) -> None:
    lifetime_ms = 10_000 if options & 8 else 0
    here.sasl.mechanisms = {name: Mechanism(begin, lifetime_ms) for name, begin in SERVERS.items()}
    wire, connection = here.connect(SASL)
    await deliver(wire, data, step, 0.5 if options & 4 else 0.0)
    if options & 1:
        if options & 2:
            await asyncio.sleep(1)
        wire.receive_end()
    elif options & 2:
        wire.lose(ConnectionResetError())
    await asyncio.sleep(GONE_S)
    if connection.principal == ANONYMOUS:
        assert wire.is_closing(), "a connection is left that has not authenticated"
        assert len(wire.written) <= MAX_ANSWERS, "answers before the authentication are large"
    wire.lose(None)
    await asyncio.sleep(0)


_AUTHORITY: Final = Authority()


@cache
def _keys(**more: str) -> TlsKeys:
    """Return the keys of a certificate of our authority, and of trust in it."""
    issued = _AUTHORITY.issue("alice")
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": issued.key_pem(),
        "ssl.keystore.certificate.chain": issued.chain_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _AUTHORITY.pem,
    }
    own = {name.replace("_", "."): text for name, text in more.items()}
    return TlsKeys(**TlsKeys.parse(texts | own))


def server_keys() -> TlsKeys:
    return _keys(ssl_client_auth="requested", ssl_principal_mapping_rules="RULE:^CN=(.*)$/$1/")


@cache
def _client_contexts() -> list[ssl.SSLContext]:
    """Return a context for each version of TLS, without and with a certificate."""
    return [
        client_tls(keys).context
        for version in ("TLSv1.2", "TLSv1.3")
        for keys in (
            _keys(ssl_enabled_protocols=version).replace(
                ssl_keystore_key=None, ssl_keystore_certificate_chain=None
            ),
            _keys(ssl_enabled_protocols=version),
        )
    ]


FLIGHTS: Final = 2
"""The flights of a client in a handshake."""
_AS_THEY_ARE, _DAMAGED, _ENCRYPTED = range(3)


class TlsClient:
    """An honest client: its handshake, and the bytes that it encrypts."""

    def __init__(self, kind: int) -> None:
        contexts = _client_contexts()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = contexts[kind % len(contexts)]
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def flight(self, received: bytes = b"") -> bytes:
        """Return the next flight of the handshake, after these bytes of the server."""
        self._incoming.write(received)
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    def encrypted(self, received: bytes, data: bytes) -> bytes:
        """Return encrypted bytes, after these bytes of the server."""
        self.flight(received)
        self._tls.write(data)
        return self._outgoing.read()


def recorded_flights(kind: int) -> tuple[bytes, bytes]:
    """Return the two flights of a client of a kind, in a handshake with the listener."""
    client, received, answers = TlsClient(kind), ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_tls(server_keys()).context.wrap_bio(received, answers, server_side=True)
    first = client.flight()
    received.write(first)
    with suppress(ssl.SSLWantReadError):
        server.do_handshake()
    return first, client.flight(answers.read())


def tls(data: bytes) -> None:
    """Receive bytes on a listener with TLS, from the first byte on or in place of later flights.

    The first byte gives the kind of the honest client, the number of its flights that arrive first,
    and what follows them: the bytes as they are, its next flight damaged by them, or the bytes
    encrypted. The second byte gives the size of the pieces.
    """
    if len(data) >= 2:
        here = world()
        here.run(_tls(here, data[0], 16 * data[1] + 1, data[2:]))


async def _tls(here: World, options: int, step: int, data: bytes) -> None:
    wire, transport = here.connect(TLS)
    flights, way = (options >> 2 & 3) % (FLIGHTS + 1), (options >> 4 & 3) % 3
    if way == _ENCRYPTED:
        flights = FLIGHTS
    if flights or way:
        client = TlsClient(options)
        received = b""
        for _ in range(flights):
            wire.receive(client.flight(received))
            received = bytes(wire.written)
            wire.written.clear()
        if way == _ENCRYPTED:
            data = client.encrypted(received, data)
        elif way == _DAMAGED:
            data = _damaged(client.flight(received), data)
    await deliver(wire, data, step)
    if options & 0x40:
        wire.receive_end()
    await asyncio.sleep(GONE_S)
    _judge(wire, transport, way, flights)
    wire.lose(None)
    await asyncio.sleep(0)


def _damaged(flight: bytes, data: bytes) -> bytes:
    """Return a flight that is cut where the first two bytes say, or damaged from there on."""
    at, damage = int.from_bytes(data[:2], "big") % (len(flight) + 1), data[2:]
    if not damage:
        return flight[:at]
    changed = bytes(a ^ b for a, b in zip(flight[at:], damage, strict=False))
    return flight[:at] + changed + flight[at + len(changed) :]


def _judge(wire: Wire, transport: TlsTransport, way: int, flights: int) -> None:
    """Raise AssertionError if a connection is open, or has sent or received, what it must not."""
    connection = transport._connection
    if way == _ENCRYPTED:
        return
    assert not connection.served_bytes, "bytes pass that no client encrypted"  # type: ignore[attr-defined]
    assert len(wire.written) <= MAX_ANSWERS, "the answers in a handshake are large"
    if not flights or (flights < FLIGHTS and way == _AS_THEY_ARE):
        assert wire.is_closing(), "a connection is left without a handshake"


LOGINS: Final = [
    login_with({"sasl.mechanism": each, "sasl.username": "alice", "sasl.password": "secret"})
    for each in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
]
TIMEOUT_S: Final = 30.0


class Broker(ReceivingEnd):
    """A broker that answers the requests of a client with the frames of an input, in order.

    After the last frame it closes the connection, or is silent.
    """

    def __init__(self, loop: VirtualLoop, answers: bytes, *, step: int, closes: bool) -> None:
        super().__init__(loop, ("10.0.0.2", 40_000), ("10.0.0.1", 9092))
        self._answers = answers
        self._step = step
        self._closes = closes

    def write(self, data: Any) -> None:  # noqa: ARG002
        self._loop.call_soon(self._answer)

    def _answer(self) -> None:
        size = 4 + int.from_bytes(self._answers[:4], "big")
        frame, self._answers = self._answers[:size], self._answers[size:]
        for at in range(0, len(frame), self._step):
            self.receive(frame[at : at + self._step])
        if self._closes and not self._answers:
            self.close()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close


def login(data: bytes) -> None:
    """Have a client connect to a broker, log in, and ask until its session ends.

    The first byte chooses the mechanism, and how the broker ends; the second byte gives the size of
    the pieces that the client receives.
    """
    if len(data) >= 2:
        here = world()
        here.run(_login(here.loop, data))


async def _login(loop: VirtualLoop, data: bytes) -> None:
    closes = bool(data[0] & 1)
    broker = Broker(loop, data[2:], step=16 * data[1] + 1, closes=closes)

    async def connect(factory: Callable[[], ClientConnection], *_address: object) -> object:
        broker.start(factory())
        return broker

    login = LOGINS[(data[0] >> 1) % len(LOGINS)]
    asked, connection = loop.time(), None
    try:
        connection = await ClientConnection.open("sim", 1, connect=logged_in(connect, login))
        asked = loop.time()
        for _ in range(2):
            await connection.request(api_versions.API, api_versions.ApiVersionsRequest())
            await asyncio.sleep(3600)
            asked = loop.time()
    except (BrokerUnreachable, KafkaError, TimeoutError):
        assert not closes or loop.time() < asked + TIMEOUT_S, "the end of a connection is not told"
    finally:
        broker.close()
        await asyncio.sleep(0)
