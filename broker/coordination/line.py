"""A line to another broker: one request on its way, and all that is due meanwhile with the next."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.peers.peer import PeerUnreachable
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Api

B = TypeVar("B")
_log = get_logger(__name__)


class Asked(Protocol):
    """What a line needs of a `Peer`."""

    async def request(
        self, api: Api, request: object, *, version: int | None = None, timeout: float = 30.0
    ) -> Any: ...

    def abort(self) -> None: ...

    async def close(self) -> None: ...


class Line(Generic[B]):
    """Batches that one broker is sent, one after the other.

    The more there is to say, the more goes with one request: nothing waits for a timer, and a slow
    broker is not sent more than it answers.
    """

    def __init__(
        self,
        take: Callable[[], B | None],
        carry: Callable[[B], Coroutine[Any, Any, None]],
    ) -> None:
        """`take` gives what is due by now, None where nothing is; `carry` sees it through, and
        raises nothing."""
        self._take = take
        self._carry = carry
        self._task: asyncio.Task[None] | None = None

    def due(self) -> None:
        """There is something to take."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while (batch := self._take()) is not None:
                await self._carry(batch)
        finally:
            self._task = None


async def asked(
    peer: Asked, api: Api, request: object, *, version: int, timeout: float
) -> Any | None:
    """The answer; None where there is none, and what was asked for may have been done or not."""
    try:
        return await peer.request(api, request, version=version, timeout=timeout)
    except PeerUnreachable:
        return None
    except ProtocolError as error:
        _log.warning("not to be told in this version", api=api.name, version=version, reason=error)
        return None
