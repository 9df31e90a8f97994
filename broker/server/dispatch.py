"""From a frame to a handler, and from its answer to the bytes that leave.

`Dispatcher` is handed its table by app.py. A handler answers with a response object, with None
where the protocol wants no answer, or with an awaitable of either when something must be waited
for: only then does a future exist. A KafkaError becomes the API's own error answer; anything else
that a handler raises is UNKNOWN_SERVER_ERROR, with a traceback in the log.
"""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from barnabas.broker.clock import Clock
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.context import CloseConnection, RequestContext
from barnabas.metrics.catalogue import RequestMetrics
from barnabas.protocol.codec import decoder, encoder
from barnabas.protocol.error_codes import errors_of
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError, downgrade
from barnabas.protocol.header import decode_request_header, encode_response_header
from barnabas.protocol.messages import api_versions, produce
from barnabas.protocol.schema import Api
from barnabas.storage.log_slice import LogSlice

Part = bytes | memoryview | LogSlice
Handle = Callable[[Any, RequestContext], Any]
ErrorAnswer = Callable[[Any, ErrorCode, int], Any]

_ERROR_NAMES = {code.value: code.name for code in ErrorCode}
_HEADS = {4: struct.Struct(">ii"), 5: struct.Struct(">iix")}
"""Length and response header, by the header's size: flexible versions end it with no tags."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the dispatch table: an API, the versions served, and who serves them."""

    api: Api
    serves: range
    handle: Handle
    error_response: ErrorAnswer


class Arrival(NamedTuple):
    """When the bytes of a turn arrived: wall time in ms, monotonic time in seconds."""

    wall_ms: int
    monotonic: float


class Peer(Protocol):
    """What a request needs to know of the connection it came over."""

    connection_id: int
    listener: str
    principal: str
    host: str


class _Served:
    """A route in one version: what a request needs, behind one lookup."""

    __slots__ = (
        "_encode",
        "_head",
        "_head_size",
        "bytes_in",
        "decode",
        "errors_of",
        "requests",
        "response",
        "route",
        "time_ms",
    )

    def __init__(self, route: Route, version: int, metrics: RequestMetrics) -> None:
        self.route = route
        self.response: type = route.api.response
        self.errors_of = errors_of(route.api.response)
        self.decode = decoder(route.api.request, version)
        self._encode = encoder(route.api.response, version)
        self._head_size = len(encode_response_header(route.api.key, version, 0))
        self._head = _HEADS[self._head_size]
        name = route.api.name
        self.requests = metrics.requests.cell(name, str(version))
        self.bytes_in = metrics.request_bytes.cell(name)
        self.time_ms = metrics.total_time_ms.cell(name)

    def frame(self, correlation_id: int, response: Any) -> list[Part]:
        """The answer as it leaves: length, header, body; records stay where they are.

        Raises ProtocolError where a field of it cannot travel in this version.
        """
        # The only records source that a handler ever puts into an answer is a slice of a log.
        body: list[Part] = self._encode(response)
        size = len(body[0]) if len(body) == 1 else sum(map(len, body))
        head = self._head.pack(self._head_size + size, correlation_id)
        first = body[0]
        if isinstance(first, bytes):
            body[0] = head + first
            return body
        return [head, *body]


class Exchange:
    """One request and its answer, in the order of its connection."""

    __slots__ = ("close", "context", "done", "parts", "request", "served", "started", "waiting")

    def __init__(
        self, served: _Served, request: Any, context: RequestContext, started: float
    ) -> None:
        self.served = served
        self.request = request
        self.context = context
        self.started = started
        self.done = False
        self.parts: list[Part] | None = None
        self.close = False
        """Set where closing the connection is the answer."""
        self.waiting: asyncio.Future[Any] | None = None

    @property
    def overlaps(self) -> bool:
        """Whether another of its kind may start before this one is answered."""
        return self.context.api_key == produce.API.key

    def abandon(self) -> None:
        """Nobody waits for the answer any more; a task that runs is left to finish."""
        if self.waiting is not None and not isinstance(self.waiting, asyncio.Task):
            self.waiting.cancel()


class Dispatcher:
    """Knows every route. `begin` starts a request and, if nothing must be waited for, ends it."""

    def __init__(self, routes: Iterable[Route], *, clock: Clock, metrics: RequestMetrics) -> None:
        """Raises ValueError where two handlers claim one key."""
        self._clock = clock
        self._metrics = metrics
        self._routes: dict[int, Route] = {}
        self._served: dict[tuple[int, int], _Served] = {}
        for route in routes:
            if route.api.key in self._routes:
                raise ValueError(f"two handlers claim {route.api.name} ({route.api.key})")
            self._routes[route.api.key] = route

    @property
    def routes(self) -> Mapping[int, Route]:
        """The table, by API key."""
        return self._routes

    def arrival(self) -> Arrival:
        """The clock, read once for all frames that a turn of the loop brings."""
        return Arrival(self._clock.now_ms(), self._clock.monotonic())

    def begin(
        self,
        frame: memoryview,
        peer: Peer,
        arrival: Arrival,
        finished: Callable[[Exchange], None],
    ) -> Exchange:
        """Hand one frame to its handler; calls `finished` later if the answer must be waited for.

        Raises ProtocolError for bytes that are no request, and for an API or version that is not
        served: the protocol has no way to answer those (but ApiVersions, in its version 0).
        """
        (key, version, correlation_id, client_id), offset = decode_request_header(frame)
        served = self._served.get((key, version))
        context = RequestContext(
            key, version, correlation_id, client_id, peer.principal, peer.listener,
            peer.host, peer.connection_id, arrival.wall_ms,
        )  # fmt: skip
        if served is None:
            served = self._serve(context)
            if served is None:
                return self._unknown_api_versions(context, arrival)
        # As in Kafka nobody looks behind the message: librdkafka asks for the metadata of all
        # topics (v13) with three bytes too many.
        request = served.decode(frame, offset, False)
        exchange = Exchange(served, request, context, arrival.monotonic)
        served.bytes_in.value += len(frame)
        try:
            answer = served.route.handle(request, context)
        except Exception as error:
            self._fail(exchange, error)
            return exchange
        if answer is None or type(answer) is served.response:
            self._finish(exchange, answer)
            return exchange
        waiting = exchange.waiting = asyncio.ensure_future(answer)
        waiting.add_done_callback(lambda done: self._arrived(exchange, done, finished))
        return exchange

    def _serve(self, context: RequestContext) -> _Served | None:
        """What serves an API in a version; None for ApiVersions of a version that is unknown."""
        route = self._routes.get(context.api_key)
        if route is None or context.api_version not in route.serves:
            if route is not None and context.api_key == api_versions.API.key:
                return None
            raise ProtocolError(
                f"API key {context.api_key} version {context.api_version} is not served"
            )
        served = _Served(route, context.api_version, self._metrics)
        self._served[context.api_key, context.api_version] = served
        return served

    def _unknown_api_versions(self, context: RequestContext, arrival: Arrival) -> Exchange:
        """Answered in version 0, so that the client can choose one that is served (KIP-511)."""
        context.api_version = 0
        served = self._serve(context)
        assert served is not None
        exchange = Exchange(served, None, context, arrival.monotonic)
        self._fail(exchange, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
        return exchange

    def _arrived(
        self,
        exchange: Exchange,
        answer: "asyncio.Future[Any]",
        finished: Callable[[Exchange], None],
    ) -> None:
        if answer.cancelled():
            exchange.done = exchange.close = True
        elif (error := answer.exception()) is not None:
            self._fail(exchange, error)
        else:
            self._finish(exchange, answer.result())
        finished(exchange)

    def _finish(self, exchange: Exchange, response: Any) -> None:
        served = exchange.served
        if response is not None:
            try:
                exchange.parts = exchange.served.frame(exchange.context.correlation_id, response)
            except ProtocolError as error:
                self._fail(exchange, error)
                return
            for code in served.errors_of(response):
                self._count_error(served, code)
        self._end(exchange)

    def _end(self, exchange: Exchange) -> None:
        exchange.done = True
        served = exchange.served
        served.requests.value += 1
        served.time_ms.observe((self._clock.monotonic() - exchange.started) * 1000)

    def _fail(self, exchange: Exchange, error: BaseException) -> None:
        context, route = exchange.context, exchange.served.route
        self._end(exchange)
        if isinstance(error, CloseConnection):
            exchange.close = True
            return
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(error, KafkaError):
            code = downgrade(context.api_key, context.api_version, error.code)
        else:
            _log.error("handler failed", api=route.api.name, exc_info=error)
        self._count_error(exchange.served, code)
        try:
            response = route.error_response(exchange.request, code, context.api_version)
            exchange.parts = exchange.served.frame(context.correlation_id, response)
        except Exception as second:
            _log.error("error answer failed", api=route.api.name, exc_info=second)
            exchange.close = True

    def _count_error(self, served: _Served, code: int) -> None:
        self._metrics.errors.cell(served.route.api.name, _ERROR_NAMES[code]).value += 1
