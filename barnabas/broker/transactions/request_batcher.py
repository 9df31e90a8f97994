"""Batched requests to another broker: one is in flight, and the next takes all that gathers.

Their elements repeat except for some fields. So requests, and the response without any error, are
put together from templates, which are made once.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas.broker.cluster.peers import Then
from barnabas.protocol.codec import decode
from barnabas.protocol.schema import Api
from barnabas.protocol.template import ByElement, Packing

if TYPE_CHECKING:
    from barnabas.client.connection import Decode

B = TypeVar("B")
REMEMBERED: Final = 4096
"""The elements whose bytes are remembered."""
ACCEPTED: Final = object()
"""Stands for a response without any error."""


class Requester(Protocol):
    """The connection to another broker, a `Peer`."""

    def submit(
        self,
        api: Api,
        request: object,
        then: Then,
        *,
        version: int,
        timeout: float,
        decode: "Decode | None" = None,
    ) -> None: ...

    def tells(self, api: Api) -> bool: ...

    def tell(self, api: Api, request: object, *, version: int) -> None: ...

    def abort(self) -> None: ...

    async def close(self) -> None: ...


class RequestBatcher(Generic[B]):
    """Batches for one broker, sent one after the other.

    The more there is to send, the more goes with one request: all of one iteration of the event
    loop, and all that gathers while a request is in flight. No batch waits for a timer, and a slow
    broker is not sent more than it answers.
    """

    def __init__(
        self,
        take: Callable[[], B | None],
        send: Callable[[B, Then], None],
        answered: Callable[[B, Any], None],
    ) -> None:
        """`take` returns all that is to be sent now, None for nothing. `send` sends it and calls
        its second argument with the response. `answered` handles the response; None if none
        came."""
        self._take = take
        self._send = send
        self._answered = answered
        self._busy = False

    def notify(self) -> None:
        """Send what `take` returns, unless a request is in flight."""
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._send_next)

    def _send_next(self) -> None:
        self._busy = False
        batch = self._take()
        if batch is not None:
            self._send(batch, partial(self._handle, batch))
            self._busy = True

    def _handle(self, batch: B, answer: Any) -> None:
        try:
            self._answered(batch, answer)
        finally:
            self._send_next()


class Frames(NamedTuple):
    """The body of a request, and that of its response if nothing is refused."""

    request: bytes
    accepted: bytes
    form: ByElement

    def decode(self, data: bytes, offset: int) -> Any:
        """Decode a response; return ACCEPTED if it is the one without an error."""
        if data[offset:] == self.accepted:
            return ACCEPTED
        return decode(self.form.api.response, self.form.version, data, offset)


class Element(NamedTuple):
    """An element of a request, by the fields that vary."""

    same: Hashable
    """The other fields: equal for elements of one template."""
    values: tuple[Any, ...]
    answer: tuple[Any, ...]
    """The varying fields of its response."""


class Framing(Generic[B]):
    """The requests to one broker, which are put together from the templates of their elements."""

    def __init__(
        self,
        form: ByElement,
        split: Callable[[B], Element],
        build: Callable[[B], tuple[Any, Any]],
    ) -> None:
        """`split` and `build` take what an element is made of; `build` returns the element, and
        that of the response if it is not refused."""
        self._form = form
        self._split = split
        self._build = build
        self._known: dict[Hashable, tuple[Packing, Packing]] = {}

    def of(self, elements: Iterable[B]) -> Frames:
        """Return the request with these elements."""
        form, split = self._form, self._split
        asked, accepted = [], []
        for each in elements:
            same, values, answer = split(each)
            known = self._known.get(same)
            if known is None:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                element, accept = self._build(each)
                known = self._known[same] = (
                    form.request.template(element).packing(),
                    form.response.template(accept).packing(),
                )
            (pack, _, first, last), (pack_answer, _, start, end) = known
            asked.append(pack(first, *values, last))
            accepted.append(pack_answer(start, *answer, end))
        return Frames(form.request.joined(asked), form.response.joined(accepted), form)
