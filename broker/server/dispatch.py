"""From a frame to a handler, and from its answer to the bytes that leave.

`Dispatcher` is handed its table by app.py. A handler answers with a response object, with None
where the protocol wants no answer, or with an awaitable of either when something must be waited
for: only then does a future exist. A KafkaError becomes the API's own error answer; anything else
that a handler raises is UNKNOWN_SERVER_ERROR, with a traceback in the log.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import structlog

from barnabas.broker.clock import Clock
from barnabas.broker.server.context import CloseConnection, RequestContext
from barnabas.broker.server.metrics import ApiCells, RequestMetrics
from barnabas.protocol.codec import decoder, encode_parts
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError, downgrade
from barnabas.protocol.header import decode_request_header, encode_response_header
from barnabas.protocol.messages import api_versions
from barnabas.protocol.schema import Api
from barnabas.protocol.types import RecordsSource

Request: TypeAlias = Any
Response: TypeAlias = Any
Part = bytes | memoryview | RecordsSource
Handle = Callable[[Any, RequestContext], Response | None | Awaitable[Response | None]]
ErrorAnswer = Callable[[Any, ErrorCode, int], Response]

_LENGTH = struct.Struct(">i")
_log = structlog.get_logger(__name__)


class HandlerModule(Protocol):
    """What every file of broker/handlers offers beside its handler."""

    API: Api
    SERVES: range

    def error_response(self, request: Any, code: ErrorCode, version: int, /) -> Any: ...


class Route:
    """One row of the dispatch table: an API, the versions served, and who serves them."""

    __slots__ = ("api", "cells", "decoders", "error_response", "handle", "response", "serves")

    def __init__(
        self, api: Api, serves: range, handle: Handle, error_response: ErrorAnswer
    ) -> None:
        self.api = api
        self.serves = serves
        self.handle = handle
        self.error_response = error_response
        self.response: type = api.response
        self.decoders: dict[int, Callable[[memoryview, int], Request]] = {}
        self.cells: ApiCells

    def decode(self, version: int, frame: memoryview, offset: int) -> Request:
        decode = self.decoders.get(version)
        if decode is None:
            decode = self.decoders[version] = decoder(self.api.request, version)
        return decode(frame, offset)


def route(module: HandlerModule, handle: Handle) -> Route:
    """The row of a handler that lives in `module`."""
    return Route(module.API, module.SERVES, handle, module.error_response)


class Peer(Protocol):
    """What a request needs to know of the connection it came over."""

    connection_id: int
    listener: str
    principal: str
    host: str


class Exchange:
    """One request and its answer, in the order of its connection."""

    __slots__ = ("context", "done", "failure", "parts", "request", "route", "started", "waiting")

    def __init__(
        self, route: Route, request: Request, context: RequestContext, started: float
    ) -> None:
        self.route = route
        self.request = request
        self.context = context
        self.started = started
        self.done = False
        self.parts: list[Part] | None = None
        self.failure: BaseException | None = None
        """Set where the connection must be closed instead of answered."""
        self.waiting: asyncio.Future[Response | None] | None = None

    @property
    def overlaps(self) -> bool:
        """Whether the next request may start before this one is answered."""
        return self.route.api.key == 0

    def abandon(self) -> None:
        """Nobody waits for the answer any more; what already runs is left to finish."""
        if self.waiting is not None and not isinstance(self.waiting, asyncio.Task):
            self.waiting.cancel()


class Dispatcher:
    """Knows every route. `begin` starts a request and, if nothing must be waited for, ends it."""

    def __init__(
        self, routes: Iterable[Route], *, clock: Clock, metrics: RequestMetrics
    ) -> None:
        """Raises ValueError where two handlers claim one key."""
        self._clock = clock
        self._metrics = metrics
        self._routes: dict[int, Route] = {}
        for row in routes:
            if row.api.key in self._routes:
                raise ValueError(f"two handlers claim {row.api.name} ({row.api.key})")
            row.cells = metrics.of(row.api.name)
            self._routes[row.api.key] = row

    @property
    def routes(self) -> Mapping[int, Route]:
        """The table, by API key."""
        return self._routes

    def begin(
        self, frame: memoryview, peer: Peer, finished: Callable[[Exchange], None]
    ) -> Exchange:
        """Hand one frame to its handler; calls `finished` later if the answer must be waited for.

        Raises ProtocolError for bytes that are no request, and for an API or version that is not
        served: the protocol has no way to answer those (but ApiVersions, in its version 0).
        """
        header, offset = decode_request_header(frame)
        row = self._routes.get(header.api_key)
        version = header.api_version
        if row is None or version not in row.serves:
            if header.api_key == api_versions.API.key and row is not None:
                return self._unknown_api_versions(row, header.correlation_id, peer)
            raise ProtocolError(f"API key {header.api_key} version {version} is not served")
        request = row.decode(version, frame, offset)
        context = RequestContext(
            header.api_key,
            version,
            header.correlation_id,
            header.client_id,
            peer.principal,
            peer.listener,
            peer.host,
            peer.connection_id,
            self._clock.now_ms(),
        )
        exchange = Exchange(row, request, context, self._clock.monotonic())
        row.cells.bytes_in.value += len(frame)
        try:
            answer = row.handle(request, context)
        except Exception as error:
            self._fail(exchange, error)
            return exchange
        if answer is None or type(answer) is row.response:
            self._finish(exchange, answer)
            return exchange
        waiting = asyncio.ensure_future(answer)
        exchange.waiting = waiting
        waiting.add_done_callback(lambda done: self._arrived(exchange, done, finished))
        return exchange

    def _arrived(
        self,
        exchange: Exchange,
        answer: "asyncio.Future[Response | None]",
        finished: Callable[[Exchange], None],
    ) -> None:
        if answer.cancelled():
            self._fail(exchange, CloseConnection())
        elif (error := answer.exception()) is not None:
            self._fail(exchange, error)
        else:
            self._finish(exchange, answer.result())
        finished(exchange)

    def _finish(self, exchange: Exchange, response: Response | None) -> None:
        row, context = exchange.route, exchange.context
        if response is not None:
            try:
                exchange.parts = framed(row.api.key, context, response)
            except ProtocolError as error:
                self._fail(exchange, error)
                return
            if getattr(response, "error_code", 0):
                row.cells.errors.value += 1
        exchange.done = True
        row.cells.requests.value += 1
        row.cells.time.observe(self._clock.monotonic() - exchange.started)

    def _fail(self, exchange: Exchange, error: BaseException) -> None:
        row, context = exchange.route, exchange.context
        row.cells.errors.value += 1
        exchange.done = True
        if isinstance(error, CloseConnection):
            exchange.failure = error
            return
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(error, KafkaError):
            code = downgrade(row.api.key, context.api_version, error.code)
        else:
            _log.error(
                "a handler failed", api=row.api.name, client_id=context.client_id, exc_info=error
            )
        try:
            response = row.error_response(exchange.request, code, context.api_version)
            exchange.parts = None if response is None else framed(row.api.key, context, response)
        except Exception as second:
            _log.error("an error answer failed", api=row.api.name, exc_info=second)
            exchange.failure = second

    def _unknown_api_versions(self, row: Route, correlation_id: int, peer: Peer) -> Exchange:
        """ApiVersions of a version we do not know: answered in version 0 (KIP-511)."""
        context = RequestContext(
            row.api.key, 0, correlation_id, None, peer.principal, peer.listener, peer.host,
            peer.connection_id, self._clock.now_ms(),
        )  # fmt: skip
        exchange = Exchange(row, None, context, self._clock.monotonic())
        response = row.error_response(None, ErrorCode.UNSUPPORTED_VERSION, 0)
        exchange.parts = framed(row.api.key, context, response)
        exchange.done = True
        return exchange


def framed(api_key: int, context: RequestContext, response: Response) -> list[Part]:
    """The answer as it leaves: length, header, body; records stay where they are."""
    version = context.api_version
    body = encode_parts(response, version)
    head = encode_response_header(api_key, version, context.correlation_id)
    if len(body) == 1:
        only = body[0]
        if isinstance(only, bytes):
            return [_LENGTH.pack(len(head) + len(only)) + head + only]
    total = len(head) + sum(map(len, body))
    return [_LENGTH.pack(total) + head, *body]
