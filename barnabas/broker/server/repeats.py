"""The memory of a connection: requests that repeat, and how they are served again.

Successive requests of a connection are mostly equal except for the correlation id and a few fields,
and so are their responses. A handler whose requests repeat has a function `again` next to `handle`.
It gets a request that `handle` has answered, and returns which fields vary and how a request with
other values there is served. The bytes around these fields are remembered too. So the next request
is compared with them and served without decoder, handler and encoder.

The short way may only accept: where something is refused or not certain, it has changed nothing,
and the handler decides. The function that serves again asks for everything that may have changed.
The memory itself asks for the rules of the authorizer, and the dispatcher for quotas.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from barnabas.broker.server.context import Asker, RequestContext
from barnabas.metrics.registry import Cell, HistogramCell
from barnabas.protocol.codec import encode
from barnabas.protocol.compile_decode import has_records
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.header import decode_request_header, encode_response_header
from barnabas.protocol.template import (
    COMPACT_LENGTH,
    LENGTH,
    ByElement,
    Templates,
    template_of,
)
from barnabas.storage.log.log_slice import LogSlice

LARGEST: Final = 1024
"""The bytes of a request that is remembered, without its records."""
MOST: Final = 16
"""The requests that a connection remembers of an API in one version."""
MOST_ELEMENTS: Final = 1024
"""The elements of the requests of another broker that a connection remembers."""
COST: Final = 32
"""The requests after which another one may take the place of a remembered one."""
COST_OF_ELEMENT: Final = 4
"""The requests after which another element may take the place of a remembered one."""
FEW: Final = 16
"""The elements of a request that is served in one step."""
MOST_SHAPES: Final = 64
"""The shapes of templates that are tried."""
_CONTENT_AT: Final = 8
"""The place in a request behind API, version and correlation id."""
_correlation_id: Final = Struct(">4xi").unpack_from
_START: Final = Struct(">ii")
"""The length and the correlation id of a response."""


class Repeat(NamedTuple):
    """The way to serve requests like one that the handler has answered."""

    serve: Callable[[Any, int, tuple[Any, ...]], Sequence[Any] | None]
    """Is called with `known`, the time in ms and the values of the varying fields. Returns the
    values of the response. If the handler has to serve, it has changed nothing, and returns None or
    raises KafkaError."""
    known: Any
    """The rest of the request."""
    fields: tuple[str, ...] = ()
    """The fields of the request that vary, as `template_of` takes them."""
    answers: tuple[str, ...] = ()
    """The fields of the response that vary: neighbours, and then perhaps records.

    `serve` returns the values of the neighbours; if there are records, a pair of both.
    """
    basis: tuple[Any, ...] = ()
    """The facts besides the request on which `known` depends: while they are equal, `known` is."""


class RepeatByElement(NamedTuple):
    """The way to serve requests whose elements repeat, in any combination."""

    serve: Callable[[Sequence[tuple[Any, tuple[Any, ...]]], int], Sequence[Sequence[Any]] | None]
    """Is called with a list of elements, what is known of each and its values, and the time in ms.
    Returns the values of the response for each element; None or KafkaError as in `Repeat`."""
    form: ByElement
    known: Sequence[Any]
    """The rest of each element of the request."""


Again = Callable[[Any, RequestContext, Any], Repeat | RepeatByElement | None]
"""Takes a request, its context and its response; returns None if the request may not repeat."""


_Known = tuple[Callable[..., Any], Any, Any, Callable[..., bytes], int, bytes, bytes, bytes | None]
"""A request that the connection has sent, or an element of one: the function that serves it, what
is known of it, and its basis; the function that packs its response, the bytes of the response
behind its length, without records and their length, and those before and behind its fields and
behind its records. Plain, because a NamedTuple takes twice the time to unpack."""


class Served(Protocol):
    """An API in one version, with its metrics."""

    again: Again | None
    version: int
    bytes_in: Cell
    requests: Cell
    time_ms: HistogramCell

    route: Any


class Repeats:
    """The memory of one connection for an API in one version."""

    __slots__ = (
        "_again", "_api", "_asker", "_cells", "_credit", "_find", "_flexible", "_form", "_head",
        "_header", "_limits", "_monotonic", "_serve_elements", "_standing", "_templates",
        "_version",
    )  # fmt: skip

    def __init__(
        self, served: Served, limits: Mapping[Any, Any], monotonic: Callable[[], float]
    ) -> None:
        """`limits` are the present limits of clients, `monotonic` returns seconds."""
        self._cells = served
        self._limits = limits
        self._monotonic = monotonic
        self._api = api = served.route.api
        self._version = version = served.version
        assert served.again is not None
        self._again = served.again
        self._flexible = api.is_flexible(version)
        self._header = encode_response_header(api.key, version, 0)[LENGTH.size :]
        """The header of a response behind the correlation id."""
        self._templates: Templates[_Known] = Templates("4xi", flexible=self._flexible)
        with_records = has_records(api.request, version)
        self._find = self._templates.find_with_records if with_records else self._templates.find
        self._asker: Asker | None = None
        self._standing: object = None
        """The rules by which the remembered requests were allowed."""
        self._form: ByElement | None = None
        self._head = b""
        """The bytes between the correlation id and the elements."""
        self._serve_elements: Callable[..., Sequence[Sequence[Any]] | None]
        self._credit = 0
        """Below 0 no request is looked at: the last one could not be remembered."""

    @property
    def count(self) -> int:
        """The number of remembered requests or elements."""
        return self._templates.count

    def serve(self, frame: memoryview, now_ms: int, arrived: float) -> list[Any] | None:
        """Serve a request that is like an earlier one; return the parts of its response, or None if
        that is not certain. It `arrived` at a time in seconds of the monotonic clock."""
        if self._limits or (
            self._asker is not None and self._asker.standing() is not self._standing
        ):
            return None
        try:
            parts = (
                self._serve_whole(frame, now_ms)
                if self._form is None
                else self._serve_by_element(self._form, bytes(frame), now_ms)
            )
        except KafkaError:
            return None
        if parts is None:
            return None
        self._credit += 1
        cells = self._cells
        cells.bytes_in.value += len(frame)
        cells.requests.value += 1
        # The same as `observe`, without a call.
        taken_ms, times = (self._monotonic() - arrived) * 1000, cells.time_ms
        times.counts[bisect_left(times.bounds, taken_ms)] += 1
        times.sum += taken_ms
        return parts

    def _serve_whole(self, frame: memoryview, now_ms: int) -> list[Any] | None:
        found = self._find(frame)
        if found is None:
            return None
        (serve, known, _, pack, size, first, last, end), correlation_id, values = found
        answer = serve(known, now_ms, values)
        if answer is None:
            return None
        if end is None:
            return [pack(size, correlation_id, first, *answer, last)]
        answer, records = answer
        count = len(records)
        length = COMPACT_LENGTH(count + 1) if self._flexible else LENGTH.pack(count)
        start = pack(size + len(length) + count, correlation_id, first, *answer, last)
        if isinstance(records, LogSlice):
            return [start + length, records, end]
        return [b"".join((start, length, records, end))]

    def _serve_by_element(self, form: ByElement, data: bytes, now_ms: int) -> list[Any] | None:
        at = _CONTENT_AT + len(self._head)
        if not data.startswith(self._head, _CONTENT_AT) or len(data) == at:
            return None
        count = data[at] - 1
        if not 0 < count <= FEW:
            return None
        at += 1
        found = []
        for _ in range(count):
            element = self._templates.find_at(data, at)
            if element is None:
                return None
            at = element[1]
            found.append(element)
        if data[at:] != form.request.behind:
            return None
        answers = self._serve_elements([(each[0][1], each[2]) for each in found], now_ms)
        if answers is None:
            return None
        packed = []
        for ((_, _, _, pack, _, first, last, _), _, _), answer in zip(found, answers, strict=True):
            packed.append(pack(first, *answer, last))
        content = self._header + form.response.joined(packed)
        (correlation_id,) = _correlation_id(data)
        return [_START.pack(LENGTH.size + len(content), correlation_id) + content]

    def learn(
        self, frame: memoryview, request: Any, context: RequestContext, response: Any
    ) -> None:
        """Remember a request that the handler has answered, if it may repeat."""
        self._credit += 1
        repeat = self._again(request, context, response)
        if repeat is None:
            return
        asker = context.asker
        standing = None if asker is None else asker.standing()
        if asker is not None and standing is None:
            # Each request has to be asked for.
            return
        if asker is not self._asker or standing is not self._standing:
            self._templates.clear()
            self._asker, self._standing = asker, standing
        _, body = decode_request_header(frame)
        if isinstance(repeat, Repeat):
            self._learn_request(frame, body, request, response, repeat)
        else:
            self._learn_elements(bytes(frame), body, request, response, repeat)

    def _learn_request(
        self, frame: memoryview, body: int, request: Any, response: Any, repeat: Repeat
    ) -> None:
        found = self._find(frame)
        if found is not None and found[0][2] == repeat.basis:
            # It was left to the handler for another reason.
            return
        if found is None and (self._credit < 0 or not self._has_room(MOST, COST)):
            return
        start = bytes(frame[_CONTENT_AT:body])
        template = template_of(request, self._version, repeat.fields, start)
        if sum(map(len, template.constants)) > LARGEST:
            self._credit = -COST
            return
        answer = template_of(response, self._version, repeat.answers, self._header)
        (pack, size, first, last), end = answer.packing("ii"), answer.end
        size += LENGTH.size + len(end or b"")
        self._templates.put(
            template, (repeat.serve, repeat.known, repeat.basis, pack, size, first, last, end)
        )
        if self._find(frame) is None:
            # It has bytes that its meaning does not need, as the next ones probably have.
            self._credit = -COST

    def _learn_elements(
        self, data: bytes, body: int, request: Any, response: Any, repeat: RepeatByElement
    ) -> None:
        form = repeat.form
        if data[body:] != encode(request, self._version):
            return
        at = body + len(form.request.before)
        head = data[_CONTENT_AT:at]
        if self._form is None or head != self._head:
            self._templates = Templates("")
        self._form, self._head, self._serve_elements = form, head, repeat.serve
        at += 1
        asked = getattr(request, form.request.array)
        answers = getattr(response, form.response.array)
        for element, answer, known in zip(asked, answers, repeat.known, strict=True):
            found = self._templates.find_at(data, at)
            if found is None or found[0][1] != known:
                if found is None and not self._has_room(MOST_ELEMENTS, COST_OF_ELEMENT):
                    return
                pack, size, first, last = form.response.template(answer).packing()
                template = form.request.template(element)
                made = repeat.serve, known, None, pack, size, first, last, None
                self._templates.put(template, made)
                found = self._templates.find_at(data, at)
            if found is None:
                return
            at = found[1]

    def _has_room(self, most: int, cost: int) -> bool:
        """Return whether one more can be remembered; all others may be forgotten for it.

        A connection that always sends other requests would remember each in vain.
        """
        if self._templates.count >= most or self._templates.shapes >= MOST_SHAPES:
            if self._credit < most * cost:
                return False
            self._templates.clear()
            self._credit = 0
        return True
