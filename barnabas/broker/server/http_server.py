"""The HTTP server of a broker's endpoints: one request per connection, in bounded memory.

Slow clients keep no other one out: the oldest connection makes way for a new one, and the head of a
request, with the handshake of TLS before it, has HEAD_SECONDS. Handshakes take turns, so that a
crowd of them does not hold the loop.
"""

import asyncio
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, TypeVar

import h11

from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.tls import TlsTransport
from barnabas.config.key import ConfigError
from barnabas.protocol.errors import ProtocolError
from barnabas.security.tls import file_versions

_HEAD_LIMIT: Final = 8192
_READ: Final = 4096
EXCHANGE_SECONDS: Final = 10
HEAD_SECONDS: Final = 2
_MOST_EXCHANGES: Final = 64
"""Limit of simultaneous connections: a few probes and scrapers, which must not use up the
descriptors of the broker's clients."""
_BACKLOG: Final = 1024
_ACCEPTED_PER_TURN: Final = 16
_RETRY_SECONDS: Final = 0.1
"""The wait after an error of accept, such as the lack of descriptors."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
T = TypeVar("T")
_log = get_logger(__name__)


class HttpResponse(NamedTuple):
    """Status, type and body of a response."""

    status: HTTPStatus
    content_type: str
    body: bytes
    gzip: bool = False
    """Whether the body is compressed."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers."""


class Watched(Generic[T]):
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


class HttpServer(ABC):
    """A server of HTTP; `answer` is what a kind of endpoint implements."""

    def __init__(
        self,
        certificate: str | None = None,
        key: str | None = None,
        *,
        seconds: float = EXCHANGE_SECONDS,
        most_body: int = 0,
    ) -> None:
        """`certificate` and `key` are files in PEM; without them there is no TLS. `seconds` limits
        a request with its response, `most_body` the bytes of its body, which is not read with 0.

        Raises OSError if a file cannot be read, ConfigError for its content.
        """
        self._sockets: list[socket.socket] = []
        self._exchanges: dict[asyncio.Task[None], None] = {}
        """The tasks of the connections, the oldest first."""
        self._tls: Watched[ssl.SSLContext] | None = None
        if certificate is not None and key is not None:
            self._tls = Watched((certificate, key), _tls)
        self._seconds = seconds
        self._most_body = most_body
        # The crowds of other listeners do not take the turns of probes.
        self._slicer = Slicer(time.monotonic)

    @abstractmethod
    async def answer(self, request: h11.Request, body: bytes) -> HttpResponse:
        """Return the response to a request."""

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
            async with asyncio.timeout(self._seconds):
                with_body = True
                try:
                    async with asyncio.timeout(HEAD_SECONDS):
                        reader, writer = await self._open(accepted)
                        request = await _read_request(http, reader)
                        body = await self._read_body(http, reader)
                    with_body = request.method != b"HEAD"
                    answer = _TOO_LARGE if body is None else await self.answer(request, body)
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

    async def _read_body(self, http: h11.Connection, reader: asyncio.StreamReader) -> bytes | None:
        """Return the body of a request; None if it is too long."""
        body = b""
        while self._most_body and len(body) <= self._most_body:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(_READ))
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return body
        return None if body else b""


def _welcome(_certificate: bytes | None) -> None:
    """Do nothing about a client that has shaken hands."""


def _tell(reason: str) -> None:
    _log.debug("HTTP handshake failed", reason=reason)


_BAD_REQUEST: Final = HttpResponse(HTTPStatus.BAD_REQUEST, TEXT, b"not an HTTP request\n")
_TOO_LARGE: Final = HttpResponse(
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TEXT, b"the body is too long\n"
)


async def _read_request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    """Read the head of a request; h11.RemoteProtocolError if it is missing or too long."""
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await reader.read(_READ))
    if not isinstance(event, h11.Request):
        raise h11.RemoteProtocolError("the client disconnected before its request")
    return event


def header(request: h11.Request, name: bytes) -> bytes:
    return next((value for key, value in request.headers if key == name), b"")


def _encode(http: h11.Connection, answer: HttpResponse, *, with_body: bool) -> bytes:
    head = h11.Response(
        status_code=answer.status.value,
        reason=answer.status.phrase.encode(),
        headers=[
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "close"),
            *([("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")] if answer.gzip else []),
            *answer.headers,
            *([("WWW-Authenticate", "Bearer")] if answer.status == HTTPStatus.UNAUTHORIZED else []),
        ],
    )
    encoded = http.send(head) or b""
    return encoded + (http.send(h11.Data(data=answer.body)) or b"") if with_body else encoded
