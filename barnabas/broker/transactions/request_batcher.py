"""Batched requests to another broker: one is in flight, and the next takes all that gathers.

Their elements repeat except for some fields, so requests are put together from templates, which are
made once, and so is the answer that refuses nothing.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas.broker.cluster.peers import Then
from barnabas.protocol.codec import decode
from barnabas.protocol.schema import Api
from barnabas.protocol.template import MOST_ELEMENTS, ByElement, Packing

if TYPE_CHECKING:
    from barnabas.client.connection import Decode

B = TypeVar("B")
REMEMBERED: Final = 4096
"""The elements whose bytes are remembered."""
ACCEPTED: Final = object()
"""Stands for an answer without any error."""


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
        """`take` returns all that is to be sent now, None for nothing. `send` sends it and has its
        second argument called with the answer. `answered` handles the answer, None if none came."""
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
    """The body of a request, and that of its answer if nothing is refused."""

    request: bytes
    accepted: bytes
    form: ByElement

    def decode(self, data: bytes, offset: int) -> Any:
        """Decode an answer; return ACCEPTED if it is the one without an error."""
        if data[offset:] == self.accepted:
            return ACCEPTED
        return decode(self.form.api.response, self.form.version, data, offset)


class Element(NamedTuple):
    """An element of a request."""

    same: Hashable
    """The rest of the element: equal if it differs from another one in varying fields only."""
    values: tuple[Any, ...]
    """The varying fields."""
    answer: tuple[Any, ...]
    """The varying fields of the answer."""
    make: Callable[[], tuple[Any, Any]]
    """Returns the element, and that of the answer without an error."""


class Framing:
    """The requests to one broker."""

    def __init__(self, form: ByElement) -> None:
        self._form = form
        self._known: dict[Hashable, tuple[Packing, Packing]] = {}

    def of(self, elements: Collection[Element]) -> Frames | None:
        """Return the request with these elements; None if there are too many."""
        if len(elements) > MOST_ELEMENTS:
            return None
        asked, accepted = [], []
        for same, values, answer, make in elements:
            known = self._known.get(same)
            if known is None:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                known = self._known[same] = self._templates(*make())
            (ask, _, first, last), (accept, _, start, end) = known
            asked.append(ask(first, *values, last))
            accepted.append(accept(start, *answer, end))
        form = self._form
        return Frames(form.request.joined(asked), form.response.joined(accepted), form)

    def _templates(self, element: Any, accepted: Any) -> tuple[Packing, Packing]:
        form = self._form
        return form.request.template(element).packing(), form.response.template(accepted).packing()
