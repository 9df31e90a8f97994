"""Batched requests to another broker: one is in flight, and the next takes all that gathers."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from barnabas.broker.cluster.peers import Then
from barnabas.protocol.schema import Api

if TYPE_CHECKING:
    from barnabas.client.connection import Decode

B = TypeVar("B")


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
