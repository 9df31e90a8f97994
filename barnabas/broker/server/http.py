"""The HTTP endpoint for operators: /metrics for Prometheus, and paths for probes.

/healthz and /livez say that the event loop runs, /readyz that clients may connect, and /syncz that
every replica of this broker is in the ISR, so that another broker may be stopped.

It runs on the broker's event loop: counters are read on the thread that writes them, and /healthz
responds exactly if the loop runs. A scrape is rendered, and compressed for those who accept gzip,
in slices between other work.

Slow clients keep no probe out: the oldest connection makes way for a new one, and the head of a
request, with the handshake of TLS before it, has HEAD_SECONDS. Handshakes take turns, so that a
crowd of them does not hold the loop.
"""

import asyncio
import hmac
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, TypeVar

import h11

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.slices import Slicer, Steps
from barnabas.broker.server.tls import TlsTransport
from barnabas.config.key import ConfigError
from barnabas.metrics.exposition import CONTENT_TYPE, render
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import ProtocolError
from barnabas.security.tls import file_versions

_HEAD_LIMIT: Final = 8192
_READ: Final = 4096
_EXCHANGE_SECONDS: Final = 10
HEAD_SECONDS: Final = 2
_MOST_EXCHANGES: Final = 64
"""Limit of simultaneous connections: a few probes and scrapers, which must not use up the
descriptors of the broker's clients."""
_BACKLOG: Final = 1024
_ACCEPTED_PER_TURN: Final = 16
_RETRY_SECONDS: Final = 0.1
"""The wait after an error of accept, such as the lack of descriptors."""
_FASTEST: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS
"""The window of zlib that writes gzip."""
_TEXT: Final = "text/plain; charset=utf-8"
_UNAUTHORIZED: Final = HTTPStatus.UNAUTHORIZED
_PATHS: Final = b"/metrics /healthz /livez /readyz /syncz\n"
MOST_NAMES: Final = 20
"""Limit of the partitions that /syncz names."""
T = TypeVar("T")
_log = get_logger(__name__)


class Answer(NamedTuple):
    """Status, type and body of a response."""

    status: HTTPStatus
    content_type: str
    body: bytes
    gzip: bool = False
    """Whether the body is compressed."""


class Access(NamedTuple):
    """The files of TLS and of the token; they are read again when they change."""

    certificate: str | None = None
    """PEM, with its chain."""
    key: str | None = None
    """PEM, without a password."""
    token: str | None = None
    """The token that /metrics asks for, as `Authorization: Bearer`."""


OPEN: Final = Access()
"""Plain text, and no token."""


class _Watched(Generic[T]):
    """A value that is read from files, and again when one of them has changed."""

    def __init__(self, paths: Sequence[str], read: Callable[..., T]) -> None:
        """Raises OSError or ConfigError."""
        self._paths = paths
        self._read = read
        self._seen = file_versions(self._paths)
        self._value = read(*paths)

    def current(self) -> T:
        """Return the value; the last good one while the files cannot be read."""
        versions = file_versions(self._paths)
        if versions != self._seen:
            self._seen = versions
            try:
                self._value = self._read(*self._paths)
                _log.info("files read again", paths=self._paths)
            except (OSError, ConfigError) as error:
                _log.error("files cannot be read, the last content serves on", error=str(error))
        return self._value


def _tls(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without the function a key with a password would be asked for at the terminal.
        context.load_cert_chain(certificate, key, lambda: "")
    except ssl.SSLError as error:
        raise ConfigError(
            f"{certificate} and {key} are not a certificate and its key, without a password, in "
            f"PEM: {error}"
        ) from error
    return context


def _token(path: str) -> bytes:
    with open(path, "rb") as file:
        token = file.read().strip()
    if not token:
        raise ConfigError(f"{path} has no token")
    return token


class _SecuredStream(asyncio.StreamReaderProtocol):
    """A stream over a TlsTransport, which passes data on in a buffer."""

    _buffer = memoryview(bytearray(_READ))
    """Its bytes are taken out before the event loop continues."""

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))

    def report(self, error: ProtocolError) -> None:
        _log.debug("HTTP connection closed", reason=str(error))


class HttpEndpoint:
    """The HTTP server of one registry."""

    def __init__(
        self,
        registry: Registry,
        not_ready: Callable[[], Sequence[str]],
        out_of_sync: Callable[[], Steps[list[str]]],
        access: Access = OPEN,
    ) -> None:
        """`not_ready` returns reasons why clients should not connect, `out_of_sync` the partitions
        with a replica here that is not in the ISR.

        Raises OSError if a file of `access` cannot be read, ConfigError for its content.
        """
        self._registry = registry
        self._not_ready = not_ready
        self._out_of_sync = out_of_sync
        self._sockets: list[socket.socket] = []
        self._exchanges: dict[asyncio.Task[None], None] = {}
        """The tasks of the connections, the oldest first."""
        self._tls: _Watched[ssl.SSLContext] | None = None
        self._token: _Watched[bytes] | None = None
        # The crowds of other listeners do not take the turns of probes.
        self._slicer = Slicer(time.monotonic)
        if access.certificate is not None and access.key is not None:
            self._tls = _Watched((access.certificate, access.key), _tls)
        if access.token is not None:
            self._token = _Watched((access.token,), _token)

    def start(self, sockets: list[socket.socket]) -> int:
        """Accept connections on bound sockets; return their port."""
        self._sockets = sockets
        for bound in sockets:
            bound.setblocking(False)
            bound.listen(_BACKLOG)
            asyncio.get_running_loop().add_reader(bound, self._accept, bound)
        port: int = sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Stop listening and abort requests in progress."""
        for bound in self._sockets:
            asyncio.get_running_loop().remove_reader(bound)
            bound.close()
        self._sockets = []
        for exchange in self._exchanges:
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)

    def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_PER_TURN):
            try:
                accepted, _ = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._make_way()
                loop.remove_reader(bound)
                loop.call_later(_RETRY_SECONDS, self._accept_again, bound)
                return
            accepted.setblocking(False)
            if len(self._exchanges) >= _MOST_EXCHANGES:
                self._make_way()
            exchange = loop.create_task(self._exchange(accepted))
            self._exchanges[exchange] = None
            exchange.add_done_callback(partial(self._ended, accepted))

    def _accept_again(self, bound: socket.socket) -> None:
        if bound in self._sockets:
            asyncio.get_running_loop().add_reader(bound, self._accept, bound)

    def _make_way(self) -> None:
        """Abort the oldest exchange."""
        if self._exchanges:
            oldest = next(iter(self._exchanges))
            del self._exchanges[oldest]
            oldest.cancel()

    def _ended(self, accepted: socket.socket, exchange: "asyncio.Task[None]") -> None:
        self._exchanges.pop(exchange, None)
        # A task that is cancelled before its first step has not given it to a transport.
        accepted.close()
        if not exchange.cancelled() and (error := exchange.exception()) is not None:
            _log.error("HTTP request failed", exc_info=error)

    async def _exchange(self, accepted: socket.socket) -> None:
        """Serve one request per connection, since probes and scrapers come seconds apart."""
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_LIMIT)
        writer = None
        try:
            async with asyncio.timeout(_EXCHANGE_SECONDS):
                with_body = True
                try:
                    async with asyncio.timeout(HEAD_SECONDS):
                        reader, writer = await self._open(accepted)
                        request = await _read_request(http, reader)
                    with_body = request.method != b"HEAD"
                    answer = await self._answer(request)
                except h11.RemoteProtocolError:
                    answer = _BAD_REQUEST
                assert writer is not None
                writer.write(_encode(http, answer, with_body=with_body))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except OSError as error:
            # TimeoutError, and errors of the connection and of TLS.
            _log.debug("HTTP connection ended early", error=repr(error))
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _open(
        self, accepted: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_HEAD_LIMIT, loop=loop)
        if self._tls is None:
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
            return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
        stream = _SecuredStream(reader, loop=loop)
        secured: Any = TlsTransport(
            stream, self._tls.current(), self._slicer, secured=_welcome, failed=_tell
        )
        await loop.connect_accepted_socket(lambda: secured, accepted)
        return reader, asyncio.StreamWriter(secured, stream, reader, loop)

    async def _answer(self, request: h11.Request) -> Answer:
        if request.method not in (b"GET", b"HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n")
        match request.target.partition(b"?")[0]:
            case b"/metrics":
                if not self._may_scrape(request):
                    return Answer(_UNAUTHORIZED, _TEXT, b"a bearer token is needed\n")
                gzip = _accepts_gzip(request)
                return Answer(HTTPStatus.OK, CONTENT_TYPE, await self._scrape(gzip=gzip), gzip)
            case b"/healthz" | b"/livez":
                return Answer(HTTPStatus.OK, _TEXT, b"ok\n")
            case b"/readyz":
                return _verdict(b"ready\n", self._not_ready())
            case b"/syncz":
                # The names of topics are for those who may scrape.
                return await self._synced(names=self._may_scrape(request))
            case _:
                return Answer(HTTPStatus.NOT_FOUND, _TEXT, _PATHS)

    def _may_scrape(self, request: h11.Request) -> bool:
        if self._token is None:
            return True
        token = self._token.current()
        scheme, _, sent = _header(request, b"authorization").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(sent.strip(), token)

    async def _synced(self, *, names: bool) -> Answer:
        reasons = list(self._not_ready())
        if not reasons:
            behind = await self._slicer.run(self._out_of_sync())
            reasons = [f"{each} is not in sync" for each in behind[: MOST_NAMES if names else 0]]
            if more := len(behind) - len(reasons):
                reasons.append(f"{more} partitions are not in sync")
        return _verdict(b"in sync\n", reasons)

    async def _scrape(self, *, gzip: bool) -> bytes:
        compressor = zlib.compressobj(_FASTEST, wbits=_GZIP) if gzip else None
        blocks: list[bytes] = []
        for family in self._registry.snapshot():
            for block in render(family):
                blocks.append(block if compressor is None else compressor.compress(block))
                await asyncio.sleep(0)
        if compressor is not None:
            blocks.append(compressor.flush())
        return b"".join(blocks)


def _welcome(_certificate: bytes | None) -> None:
    """Do nothing about a client that has shaken hands."""


def _tell(reason: str) -> None:
    _log.debug("HTTP handshake failed", reason=reason)


_BAD_REQUEST: Final = Answer(HTTPStatus.BAD_REQUEST, _TEXT, b"not an HTTP request\n")


def _verdict(good: bytes, reasons: Sequence[str]) -> Answer:
    if reasons:
        body = "".join(f"{reason}\n" for reason in reasons).encode()
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, body)
    return Answer(HTTPStatus.OK, _TEXT, good)


async def _read_request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    """Read the head of a request; h11.RemoteProtocolError if it is missing or too long."""
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await reader.read(_READ))
    if not isinstance(event, h11.Request):
        raise h11.RemoteProtocolError("the client disconnected before its request")
    return event


def _header(request: h11.Request, name: bytes) -> bytes:
    return next((value for key, value in request.headers if key == name), b"")


def _accepts_gzip(request: h11.Request) -> bool:
    """Return whether Accept-Encoding names gzip with a weight above 0 (RFC 9110, 12.5.3)."""
    for each in _header(request, b"accept-encoding").lower().split(b","):
        coding, *weight = each.replace(b" ", b"").split(b";")
        if coding == b"gzip":
            return not weight or weight[0].strip(b"q=0.") != b""
    return False


def _encode(http: h11.Connection, answer: Answer, *, with_body: bool) -> bytes:
    head = h11.Response(
        status_code=answer.status.value,
        reason=answer.status.phrase.encode(),
        headers=[
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "close"),
            *([("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")] if answer.gzip else []),
            *([("WWW-Authenticate", "Bearer")] if answer.status == _UNAUTHORIZED else []),
        ],
    )
    encoded = http.send(head) or b""
    return encoded + (http.send(h11.Data(data=answer.body)) or b"") if with_body else encoded
