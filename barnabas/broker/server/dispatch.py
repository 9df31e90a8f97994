"""The dispatcher: it decodes a frame, calls the handler, and encodes the response.

A handler has one of two shapes. It returns a response, None if the protocol has no response, or a
future of either if the request has to wait: only then does a future exist. If its work may be long,
or waits in between, it is a generator function, which the slicer runs (`slices.py`): it yields
None or a future, and returns the response. A KafkaError becomes the API's error response; any other
exception of a handler is UNKNOWN_SERVER_ERROR, with a traceback in the log.

A small request is decoded, handled and answered in one go. A large frame is decoded in slices,
unless its records make it large. Responses and errors of many elements are made in slices too.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import Any, NamedTuple, NoReturn, Protocol

from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.context import Acknowledgement, CloseConnection, RequestContext
from barnabas.broker.server.limits.quotas import Charge, ClientQuotas, timed
from barnabas.broker.server.repeats import Again, Repeats
from barnabas.coordinator.ports import Clock
from barnabas.coordinator.soon import settle
from barnabas.metrics.catalogue import RequestMetrics
from barnabas.protocol.compile import STRIDE, Form
from barnabas.protocol.compile_decode import decoder, has_records
from barnabas.protocol.compile_encode import encoder
from barnabas.protocol.errors import (
    ErrorCode,
    KafkaError,
    ProtocolError,
    TooManyElements,
    codes_of,
    downgrade,
    errors_of,
)
from barnabas.protocol.header import decode_request_header, encode_response_header
from barnabas.protocol.messages import api_versions, produce
from barnabas.protocol.schema import MISSING, Api, Field, Message, fields_of
from barnabas.protocol.steps import Future, Steps
from barnabas.security.principal import Principal
from barnabas.storage.log.log_slice import LogSlice

Part = bytes | memoryview | LogSlice
Handle = Callable[[Any, RequestContext], Any]
ErrorAnswer = Callable[[Any, ErrorCode, int], Steps[Any]]

Arrival = tuple[int, float]
"""The arrival time of received bytes: wall time in ms, monotonic time in seconds."""
EncodedResponse = list[Part] | ProtocolError | None
"""The parts of a response, empty if the protocol has no response; None closes the connection, and
so does ProtocolError, for bytes that are not a request."""

SMALL_FRAME = 16 * 1024
"""Bytes of a frame that is always decoded in one go: at most about 4 ms."""

_ALONE = 2
"""The references to an object in one place only, as `sys.getrefcount` counts them."""
_ERROR_NAMES = {code.value: code.name for code in ErrorCode}
_HEADS = {4: struct.Struct(">ii"), 5: struct.Struct(">iix")}
"""Length and response header, by the header's size; in flexible versions it ends with tags."""
_EMPTY: dict[str, Any] = {"array": (), "bytes": b"", "string": ""}
"""The values of required fields in a response that has only an error, by kind of type."""
_log = get_logger(__name__)


class Route(NamedTuple):
    """One row of the dispatch table: an API, its served versions and its handler."""

    api: Api
    serves: range
    handle: Handle
    error_response: ErrorAnswer | None = None
    """Builds the response to a request that failed as a whole; None is `error_alone`."""
    for_brokers: bool = False
    """Whether only brokers send the requests, which quotas do not limit."""
    again: Again | None = None
    """Returns how requests like one that was answered are served. A route with another handler
    needs another one or none, because requests that repeat do not reach the handler."""

    def refuse(self, request: Any, code: ErrorCode, version: int) -> Steps[Any]:
        """Return the response to a request that failed as a whole."""
        code = downgrade(self.api.key, version, code)
        if self.error_response is None:
            return error_alone(self.api.response, code, version)
        return (yield from self.error_response(request, code, version))


def error_alone(response: type[Message], code: ErrorCode, version: int) -> Message:
    """Return a response that has a top-level error, and the code's text, where it has the fields.

    Its other fields are their defaults, or empty.
    """
    fields = fields_of(response)
    values = {field.name: _EMPTY[field.type.kind] for field in fields if _is_required(field)}
    told = {"error_code": code, "error_message": code.text}
    values |= {
        field.name: told[field.name]
        for field in fields
        if field.name in told and field.exists(version)
    }
    return response(**values)


def _is_required(field: Field) -> bool:
    return field.spec.default is MISSING and field.spec.default_factory is None


def freed(messages: list[Any]) -> Steps[None]:
    """Free messages and the elements in their arrays: in one go, 100,000 take 10 ms or more.

    What something else still refers to stays as it is.
    """
    few = len(messages) <= STRIDE
    while messages:
        if few and sys.getrefcount(messages[-1]) == _ALONE:
            for field in fields_of(type(messages[-1])):
                item = field.type.item
                if (
                    item is not None
                    and item.struct is not None
                    and sys.getrefcount(getattr(messages[-1], field.name)) == _ALONE
                ):
                    yield from freed(getattr(messages[-1], field.name) or [])
        del messages[-1 if few else -STRIDE :]
        yield None


class ClientConnection(Protocol):
    """The connection of a request, as the dispatcher uses it."""

    connection_id: int
    listener: str
    principal: Principal
    host: str
    repeats: dict[int, Repeats]
    """The memory of requests that repeat, by API key and version as one number."""

    def answered(self, exchange: Exchange, /) -> None:
        """Send the response of a request that had to wait."""
        ...

    def handled(self, exchange: Exchange, /) -> None:
        """Begin the next requests that `exchange` allows: its handler waits."""
        ...

    def throttle(self, seconds: float, /) -> None:
        """Begin no request for some seconds."""
        ...


class _Served:
    """A route in one version, with its codec and its metrics."""

    __slots__ = (
        "_encode",
        "_head_size",
        "_pack_head",
        "again",
        "bytes_in",
        "decode",
        "decode_records",
        "errors_of",
        "handle",
        "key",
        "requests",
        "response",
        "route",
        "time_ms",
        "version",
    )

    def __init__(self, route: Route, version: int, metrics: RequestMetrics) -> None:
        self.route = route
        self.handle = route.handle
        self.again = route.again
        self.key = route.api.key << 16 | version
        self.response: type = route.api.response
        self.errors_of = errors_of(route.api.response)
        self.version = version
        self.decode = decoder(route.api.request, version)
        self.decode_records: Callable[..., Any] = _too_many
        """Decodes a frame that is large because of its records, or raises TooManyElements."""
        if has_records(route.api.request, version):
            self.decode_records = decoder(route.api.request, version, Form.SMALL)
        self._encode = encoder(route.api.response, version, Form.SMALL)
        self._head_size = len(encode_response_header(route.api.key, version, 0))
        self._pack_head = _HEADS[self._head_size].pack
        name = route.api.name
        self.requests = metrics.requests.cell(name, str(version))
        self.bytes_in = metrics.request_bytes.cell(name)
        self.time_ms = metrics.total_time_ms.cell(name)

    def frame(self, correlation_id: int, response: Any) -> list[Part]:
        """Encode the response: length, header, body; records are not copied.

        Raises ProtocolError if this version cannot carry a field, and TooManyElements if the
        response has to be encoded in slices.
        """
        body = self._encode(response)
        if len(body) == 1:
            # Most answers: one call less.
            first: bytes = body[0]
            return [self._pack_head(self._head_size + len(first), correlation_id) + first]
        return self._framed(correlation_id, body)

    def decode_in_slices(self, frame: memoryview, offset: int) -> Steps[Any]:
        """Decode a large request. Raises ProtocolError, also for too many elements."""
        api = self.route.api
        decode = decoder(api.request, self.version, Form.SLICED)
        return (yield from decode(frame, offset, False, api.max_elements))

    def frame_in_slices(self, correlation_id: int, response: Any) -> Steps[list[Part]]:
        """Encode as `frame` does, but any number of elements."""
        encode = encoder(self.response, self.version, Form.SLICED)
        return self._framed(correlation_id, (yield from encode(response)))

    def _framed(self, correlation_id: int, body: list[Part]) -> list[Part]:
        # Handlers use no other records source than a slice of a log.
        first = body[0]
        head = self._pack_head(self._head_size + sum(map(len, body)), correlation_id)
        if isinstance(first, bytes):
            body[0] = head + first
            return body
        return [head, *body]


class _Call(NamedTuple):
    """A request that is not answered in one go."""

    served: _Served
    context: RequestContext
    started: float
    peer: ClientConnection
    exchange: Exchange


class Exchange:
    """A request that waits for its response."""

    __slots__ = ("_waiting", "answer", "done", "overlaps", "reads_frame")

    def __init__(self, waiting: asyncio.Future[Any] | None = None) -> None:
        self._waiting = waiting
        self.done = False
        self.answer: EncodedResponse = None
        """The response, once `done`."""
        self.overlaps = isinstance(waiting, Acknowledgement)
        """Whether the next request of the same kind may begin before the response."""
        self.reads_frame = waiting is None
        """Whether the handler is at work for the first time: the receive buffer must not change."""

    def wait_for(self, work: asyncio.Future[Any]) -> None:
        """Set the future of the work that ends with the response."""
        self._waiting = work

    def leave_frame(self, waiting: Future) -> None:
        """Record that the handler waits for a future, and reads no records from the frame."""
        self.reads_frame = False
        self.overlaps = isinstance(waiting, Acknowledgement)

    def finish(self, answer: EncodedResponse) -> None:
        self.answer = answer
        self.done = True
        self.reads_frame = False
        # The work refers to this object: only the collector would free them.
        self._waiting = None

    def abandon(self) -> None:
        """Stop the work, and cancel the wait, because the connection is closed.

        A task runs to its end.
        """
        if self._waiting is not None and not isinstance(self._waiting, asyncio.Task):
            self._waiting.cancel()


def _too_many(*_: object) -> NoReturn:
    """Decode nothing: all large frames of the API are large because of their elements."""
    raise TooManyElements


def _settle(charge: Charge, response: Any) -> None:
    """Tell the client for how long it is throttled, where the response has a field for it."""
    throttle_ms = charge.settle()
    if throttle_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms


class Dispatcher:
    """The dispatch table. `begin` starts a request and finishes it, unless it has to wait."""

    def __init__(
        self,
        routes: Mapping[int, Route],
        *,
        clock: Clock,
        slicer: Slicer,
        metrics: RequestMetrics,
        inter_broker: bool = False,
        quotas: ClientQuotas | None = None,
    ) -> None:
        """`routes` are those by API key. Without `quotas` clients have none."""
        self.slicer = slicer
        self._quotas = quotas
        self._inter_broker = inter_broker
        self.now_ms = clock.now_ms
        self.monotonic = clock.monotonic
        self._metrics = metrics
        self.routes = routes
        self._served: dict[tuple[int, int], _Served] = {}

    def arrival(self) -> Arrival:
        """Read the clocks, once for all frames that arrive together."""
        return self.now_ms(), self.monotonic()

    def begin(
        self, frame: memoryview, peer: ClientConnection, arrival: Arrival
    ) -> EncodedResponse | Exchange:
        """Pass a frame to its handler; return the response, or the exchange if it has to wait.

        Raises ProtocolError for bytes that are not a request, and for an API or version that is not
        served: the protocol cannot answer these, except ApiVersions in version 0.
        """
        received_ms, started = arrival
        quotas = self._quotas if self._quotas is not None and self._quotas.limits else None
        (key, version, correlation_id, client_id), offset = decode_request_header(frame)
        context = RequestContext(
            key, version, correlation_id, client_id, peer.principal, peer.listener,
            peer.host, peer.connection_id, received_ms, self._inter_broker,
        )  # fmt: skip
        served = self._served.get((key, version)) or self._serve(context)
        if served is None:
            return self._unknown_api_versions(context, started, peer)
        size = len(frame)
        served.bytes_in.value += size
        if quotas is not None and not served.route.for_brokers:
            charge = quotas.charge(peer.principal.name, client_id or "", peer, started)
            if charge is not None:
                context.charge = charge
                if served.route.api is produce.API:
                    charge.produced(size)
        # As in Kafka, bytes behind the message are ignored: librdkafka's Metadata v13 for all
        # topics is three bytes too long.
        decode = served.decode if size <= SMALL_FRAME else served.decode_records
        try:
            request = decode(frame, offset, False)
        except TooManyElements:
            call = _Call(served, context, started, peer, Exchange())
            return self._run(call, self._decode(call, frame, offset))
        try:
            response = served.handle(request, context)
            if response is None or type(response) is served.response:
                answer = self._answer(served, context, started, response)
                if served.again is not None and response is not None and quotas is None:
                    self._learn(served, frame, request, context, response, peer)
                return answer
        except TooManyElements:
            outcome = response
        except Exception as error:
            outcome = error
        else:
            if type(response) is not GeneratorType:
                return self._wait(served, request, context, started, response, peer)
            outcome = response
        call = _Call(served, context, started, peer, Exchange())
        return self._run(call, self._conclude(call, request, outcome))

    def _learn(
        self,
        served: _Served,
        frame: memoryview,
        request: Any,
        context: RequestContext,
        response: Any,
        peer: ClientConnection,
    ) -> None:
        known = peer.repeats.get(served.key)
        if known is None:
            limits = {} if self._quotas is None else self._quotas.limits
            known = peer.repeats[served.key] = Repeats(served, limits, self.monotonic)
        try:
            known.learn(frame, request, context, response)
        except Exception as error:
            # The request has its effect and its response: this must not become an error response.
            _log.error("request not remembered", api=served.route.api.name, exc_info=error)
            del peer.repeats[served.key]

    def _wait(
        self,
        served: _Served,
        request: Any,
        context: RequestContext,
        started: float,
        waiting: asyncio.Future[Any],
        peer: ClientConnection,
    ) -> Exchange:
        exchange = Exchange(waiting)
        charge = context.charge
        if charge is not None:
            charge.pause()

        def arrived(done: asyncio.Future[Any]) -> None:
            answer: EncodedResponse = None
            if charge is not None:
                charge.resume()
            if not done.cancelled():
                outcome: Any = None
                try:
                    outcome = done.result()
                    answer = self._answer(served, context, started, outcome)
                except Exception as error:
                    # A response of many elements is encoded in slices.
                    outcome = outcome if isinstance(error, TooManyElements) else error
                    call = _Call(served, context, started, peer, exchange)
                    begun = self._run(call, self._conclude(call, request, outcome))
                    if isinstance(begun, Exchange):
                        return
                    answer = begun
            exchange.finish(answer)
            peer.answered(exchange)

        waiting.add_done_callback(arrived)
        return exchange

    def _run(self, call: _Call, steps: Steps[EncodedResponse]) -> EncodedResponse | Exchange:
        """Run the rest of a request in slices; return the exchange if that is not done at once."""
        exchange, peer = call.exchange, call.peer

        def waits(waiting: Future) -> None:
            if exchange.reads_frame:
                exchange.leave_frame(waiting)
                asyncio.get_running_loop().call_soon(peer.handled, exchange)

        if call.context.charge is not None:
            steps = timed(call.context.charge, steps)

        def finished(done: asyncio.Future[EncodedResponse]) -> None:
            exchange.finish(None if done.cancelled() else done.result())
            peer.answered(exchange)

        work = self.slicer.run(steps, waits)
        if work.done():
            return None if work.cancelled() else work.result()
        exchange.wait_for(work)
        work.add_done_callback(finished)
        return exchange

    def _decode(self, call: _Call, frame: memoryview, offset: int) -> Steps[EncodedResponse]:
        served = call.served
        try:
            request = yield from served.decode_in_slices(frame, offset)
        except ProtocolError as error:
            return error
        try:
            outcome = served.handle(request, call.context)
        except Exception as error:
            outcome = error
        answer = yield from self._conclude(call, request, outcome)
        requests = [request]
        del request, outcome
        yield from freed(requests)
        return answer

    def _conclude(self, call: _Call, request: Any, outcome: Any) -> Steps[EncodedResponse]:
        """Answer a request whose handler has returned or raised `outcome`."""
        served, context, started, *_ = call
        try:
            if isinstance(outcome, Exception):
                raise outcome
            response = yield from settle(outcome)
            del outcome
            try:
                return self._answer(served, context, started, response)
            except TooManyElements:
                parts = yield from self._long_answer(call, response)
            responses = [response]
            del response
            yield from freed(responses)
            return parts
        except Exception as error:
            return (yield from self._refusal(call, request, error))

    def _serve(self, context: RequestContext) -> _Served | None:
        """Return the served API in a version; None for an unknown version of ApiVersions."""
        key = context.api_key
        # A lookup may import the handler, whose KeyError is no missing route.
        route = self.routes[key] if key in self.routes else None  # noqa: SIM401
        if route is None or context.api_version not in route.serves:
            if route is not None and key == api_versions.API.key:
                return None
            raise ProtocolError(f"API key {key} version {context.api_version} is not served")
        served = _Served(route, context.api_version, self._metrics)
        self._served[key, context.api_version] = served
        return served

    def _unknown_api_versions(
        self, context: RequestContext, started: float, peer: ClientConnection
    ) -> EncodedResponse | Exchange:
        """Answer in version 0, so that the client can choose a served version (KIP-511)."""
        context.api_version = 0
        served = self._serve(context)
        assert served is not None
        error = KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        call = _Call(served, context, started, peer, Exchange())
        return self._run(call, self._conclude(call, None, error))

    def _answer(
        self, served: _Served, context: RequestContext, started: float, response: Any
    ) -> EncodedResponse:
        parts: list[Part] = []
        if context.charge is not None:
            _settle(context.charge, response)
        if response is not None:
            parts = served.frame(context.correlation_id, response)
            for code in served.errors_of(response):
                self._count_error(served, code)
        served.requests.value += 1
        served.time_ms.observe((self.monotonic() - started) * 1000)
        return parts

    def _long_answer(self, call: _Call, response: Any) -> Steps[EncodedResponse]:
        served, context, started, *_ = call
        if context.charge is not None:
            _settle(context.charge, response)
        parts = yield from served.frame_in_slices(context.correlation_id, response)
        for number, code in enumerate(codes_of(served.response)(response)):
            if code:
                self._count_error(served, code)
            if not number % STRIDE:
                yield None
        served.requests.value += 1
        served.time_ms.observe((self.monotonic() - started) * 1000)
        return parts

    def _refusal(self, call: _Call, request: Any, error: Exception) -> Steps[EncodedResponse]:
        served, context, started, *_ = call
        served.requests.value += 1
        served.time_ms.observe((self.monotonic() - started) * 1000)
        if isinstance(error, CloseConnection):
            return None
        route = served.route
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(error, KafkaError):
            code = downgrade(context.api_key, context.api_version, error.code)
        else:
            _log.error("handler failed", api=route.api.name, exc_info=error)
        # Its frames have the request, in a cycle: the collector would walk over all elements.
        error.__traceback__ = None
        self._count_error(served, code)
        try:
            response = yield from route.refuse(request, code, context.api_version)
            if context.charge is not None:
                _settle(context.charge, response)
            return (yield from served.frame_in_slices(context.correlation_id, response))
        except Exception as second:
            _log.error("error answer failed", api=route.api.name, exc_info=second)
            return None

    def _count_error(self, served: _Served, code: int) -> None:
        self._metrics.errors.cell(served.route.api.name, _ERROR_NAMES[code]).value += 1
