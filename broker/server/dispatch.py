"""From a frame to a handler, and from its answer to the bytes that leave.

`Dispatcher` is handed its table by app.py. A handler answers with a response object, with None
where the protocol wants no answer, or with an awaitable of either when something must be waited
for: only then does a future exist. A KafkaError becomes the API's own error answer; anything else
that a handler raises is UNKNOWN_SERVER_ERROR, with a traceback in the log.
"""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from barnabas.broker.clock import Clock
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.context import Acknowledgement, CloseConnection, RequestContext
from barnabas.metrics.catalogue import RequestMetrics
from barnabas.protocol.codec import decoder, encoder
from barnabas.protocol.error_codes import errors_of
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError, downgrade
from barnabas.protocol.header import decode_request_header, encode_response_header
from barnabas.protocol.messages import api_versions
from barnabas.protocol.schema import Api
from barnabas.storage.log_slice import LogSlice

Part = bytes | memoryview | LogSlice
Handle = Callable[[Any, RequestContext], Any]
ErrorAnswer = Callable[[Any, ErrorCode, int], Any]

Arrival = tuple[int, float]
"""When the bytes of a turn arrived: wall time in ms, monotonic time in seconds."""
Answer = list[Part] | None
"""What leaves for a request, empty where the protocol wants no answer; None where closing the
connection is the answer."""

_ERROR_NAMES = {code.value: code.name for code in ErrorCode}
_HEADS = {4: struct.Struct(">ii"), 5: struct.Struct(">iix")}
"""Length and response header, by the header's size: flexible versions end it with no tags."""
_log = get_logger(__name__)


class Route(NamedTuple):
    """One row of the dispatch table: an API, the versions served, and who serves them."""

    api: Api
    serves: range
    handle: Handle
    error_response: ErrorAnswer


class Peer(Protocol):
    """What a request needs to know of the connection it came over."""

    connection_id: int
    listener: str
    principal: str
    host: str

    def answered(self, exchange: "Exchange", /) -> None:
        """An answer that had to be waited for is here."""
        ...


class _Served:
    """A route in one version: what a request needs, behind one lookup."""

    __slots__ = (
        "_encode",
        "_head_size",
        "_pack_head",
        "bytes_in",
        "decode",
        "errors_of",
        "handle",
        "requests",
        "response",
        "route",
        "time_ms",
    )

    def __init__(self, route: Route, version: int, metrics: RequestMetrics) -> None:
        self.route = route
        self.handle = route.handle
        self.response: type = route.api.response
        self.errors_of = errors_of(route.api.response)
        self.decode = decoder(route.api.request, version)
        self._encode = encoder(route.api.response, version)
        self._head_size = len(encode_response_header(route.api.key, version, 0))
        self._pack_head = _HEADS[self._head_size].pack
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
        first = body[0]
        size = self._head_size + (len(first) if len(body) == 1 else sum(map(len, body)))
        head = self._pack_head(size, correlation_id)
        if isinstance(first, bytes):
            body[0] = head + first
            return body
        return [head, *body]


class Exchange:
    """A request whose answer must be waited for."""

    __slots__ = ("_waiting", "answer", "done", "overlaps")

    def __init__(self, waiting: "asyncio.Future[Any]") -> None:
        self._waiting = waiting
        self.done = False
        self.answer: Answer = None
        """There once `done`."""
        self.overlaps = isinstance(waiting, Acknowledgement)
        """Whether another of its kind may begin before the answer is there."""

    def abandon(self) -> None:
        """Nobody waits for the answer any more; a task that runs is left to finish."""
        if not isinstance(self._waiting, asyncio.Task):
            self._waiting.cancel()


class Dispatcher:
    """Knows every route. `begin` starts a request and, if nothing must be waited for, ends it."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        clock: Clock,
        metrics: RequestMetrics,
        inter_broker: bool = False,
    ) -> None:
        """Raises ValueError where two handlers claim one key."""
        self._inter_broker = inter_broker
        self._now_ms = clock.now_ms
        self._monotonic = clock.monotonic
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
        return self._now_ms(), self._monotonic()

    def begin(self, frame: memoryview, peer: Peer, arrival: Arrival) -> Answer | Exchange:
        """Hand one frame to its handler: the answer, or the exchange `peer` will be told of.

        Raises ProtocolError for bytes that are no request, and for an API or version that is not
        served: the protocol has no way to answer those (but ApiVersions, in its version 0).
        """
        (key, version, correlation_id, client_id), offset = decode_request_header(frame)
        received_ms, started = arrival
        context = RequestContext(
            key, version, correlation_id, client_id, peer.principal, peer.listener,
            peer.host, peer.connection_id, received_ms, self._inter_broker,
        )  # fmt: skip
        served = self._served.get((key, version))
        if served is None:
            served = self._serve(context)
            if served is None:
                return self._unknown_api_versions(context, started)
        # As in Kafka nobody looks behind the message: librdkafka asks for the metadata of all
        # topics (v13) with three bytes too many.
        request = served.decode(frame, offset, False)
        served.bytes_in.value += len(frame)
        try:
            response = served.handle(request, context)
            if response is None or type(response) is served.response:
                return self._answer(served, context, started, response)
        except Exception as error:
            return self._refusal(served, request, context, started, error)
        return self._wait(served, request, context, started, response, peer)

    def _wait(
        self,
        served: _Served,
        request: Any,
        context: RequestContext,
        started: float,
        response: Any,
        peer: Peer,
    ) -> Exchange:
        waiting = asyncio.ensure_future(response)
        exchange = Exchange(waiting)

        def arrived(done: "asyncio.Future[Any]") -> None:
            if not done.cancelled():
                try:
                    exchange.answer = self._answer(served, context, started, done.result())
                except Exception as error:
                    exchange.answer = self._refusal(served, request, context, started, error)
            exchange.done = True
            peer.answered(exchange)

        waiting.add_done_callback(arrived)
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

    def _unknown_api_versions(self, context: RequestContext, started: float) -> Answer:
        """Answered in version 0, so that the client can choose one that is served (KIP-511)."""
        context.api_version = 0
        served = self._serve(context)
        assert served is not None
        error = KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return self._refusal(served, None, context, started, error)

    def _answer(
        self, served: _Served, context: RequestContext, started: float, response: Any
    ) -> Answer:
        parts: list[Part] = []
        if response is not None:
            parts = served.frame(context.correlation_id, response)
            for code in served.errors_of(response):
                self._count_error(served, code)
        served.requests.value += 1
        served.time_ms.observe((self._monotonic() - started) * 1000)
        return parts

    def _refusal(
        self,
        served: _Served,
        request: Any,
        context: RequestContext,
        started: float,
        error: BaseException,
    ) -> Answer:
        served.requests.value += 1
        served.time_ms.observe((self._monotonic() - started) * 1000)
        if isinstance(error, CloseConnection):
            return None
        route = served.route
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(error, KafkaError):
            code = downgrade(context.api_key, context.api_version, error.code)
        else:
            _log.error("handler failed", api=route.api.name, exc_info=error)
        self._count_error(served, code)
        try:
            response = route.error_response(request, code, context.api_version)
            return served.frame(context.correlation_id, response)
        except Exception as second:
            _log.error("error answer failed", api=route.api.name, exc_info=second)
            return None

    def _count_error(self, served: _Served, code: int) -> None:
        self._metrics.errors.cell(served.route.api.name, _ERROR_NAMES[code]).value += 1
