"""Batched requests to another broker: one is in flight, and the next takes all that gathers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from barnabas.broker.cluster.peers import PeerUnreachable
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Api

B = TypeVar("B")
_log = get_logger(__name__)


class Requester(Protocol):
    """The connection to another broker, a `Peer`."""

    async def request(
        self, api: Api, request: object, *, version: int | None = None, timeout: float = 30.0
    ) -> Any: ...

    def abort(self) -> None: ...

    async def close(self) -> None: ...


class RequestBatcher(Generic[B]):
    """Batches for one broker, sent one after the other.

    The more there is to send, the more goes with one request: no batch waits for a timer, and a
    slow broker is not sent more than it answers.
    """

    def __init__(
        self,
        take: Callable[[], B | None],
        send: Callable[[B], Coroutine[Any, Any, None]],
    ) -> None:
        """`take` returns all that is to be sent now, None for nothing; `send` sends it and handles
        the answer, and raises nothing."""
        self._take = take
        self._send = send
        self._task: asyncio.Task[None] | None = None

    def notify(self) -> None:
        """Send what `take` returns, unless a request is in flight."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while (batch := self._take()) is not None:
                await self._send(batch)
        finally:
            self._task = None


async def ask_peer(
    peer: Requester, api: Api, request: object, *, version: int, timeout: float
) -> Any | None:
    """Return the answer. None means that none came: the peer may have carried out the request."""
    try:
        return await peer.request(api, request, version=version, timeout=timeout)
    except PeerUnreachable:
        return None
    except ProtocolError as error:
        _log.warning(
            "request cannot be sent in this version", api=api.name, version=version, reason=error
        )
        return None
