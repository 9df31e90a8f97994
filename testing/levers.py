"""Requests that a test holds, delays or refuses, before the broker's own handler sees them.

A lever is asked about every request of its API, whichever listener it came over: what brokers say
to each other can be held too.
"""

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.server.context import CloseConnection, RequestContext
from barnabas.broker.server.dispatch import Handle, Route
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.schema import APIS, Message

_TOPIC_FIELDS = frozenset({"name", "topic", "topic_name", "topics", "topic_names"})


def api_key(api: int | str) -> int:
    """The key of an API that is named as Kafka does ("EndTxn"), or given by its key.

    Raises ValueError where there is none.
    """
    if isinstance(api, int):
        return api
    wanted = api.replace("_", "").lower()
    for key, name in APIS.items():
        if name.replace("_", "") == wanted:
            return key
    raise ValueError(f"there is no API {api}")


@dataclass(slots=True)
class Lever:
    """What is done to the requests of one API that match; exactly one of the last three is set."""

    api: int
    client_id: str | None = None
    topic: str | None = None
    transactional_id: str | None = None
    first: int = 1
    """Matching requests before the first one that is touched, itself counted."""
    times: int | None = None
    """How many are touched; None is all of them."""
    hold: bool = False
    seconds: float = 0.0
    error: int = 0
    seen: int = 0
    touched: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first request that is touched, and when there will be none."""
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def takes(self, request: Any, context: RequestContext, cache: MetadataCache) -> bool:
        """Whether this request is touched; it is counted."""
        if not self._matches(request, context, cache):
            return False
        self.seen += 1
        if self.seen < self.first or (self.times is not None and self.touched >= self.times):
            return False
        self.touched += 1
        self.arrived.set()
        return True

    def _matches(self, request: Any, context: RequestContext, cache: MetadataCache) -> bool:
        if self.client_id is not None and context.client_id != self.client_id:
            return False
        wanted = self.transactional_id
        if wanted is not None and wanted not in _values(request, {"transactional_id"}):
            return False
        return self.topic is None or self.topic in _topics(request, cache)


class Levers:
    """The levers of one broker, by the number each was given."""

    def __init__(self) -> None:
        self._levers: dict[int, Lever] = {}
        self._cache: MetadataCache | None = None
        self._told = asyncio.Event()

    def around(self, routes: list[Route], cache: MetadataCache) -> list[Route]:
        """The dispatch table with the levers in front of every handler."""
        if self._cache is None:
            self._cache = cache
            cache.on_change(self._told.set)
        return [
            each._replace(handle=partial(self._handle, each.handle, each.api.key))
            for each in routes
        ]

    def pull(self, number: int, lever: Lever) -> None:
        self._levers[number] = lever

    def remove(self, number: int) -> None:
        """Touch nothing more, and let go what is held. Idempotent."""
        lever = self._levers.pop(number, None)
        if lever is not None:
            lever.released.set()
            # Whoever waits for a first request is not left to wait.
            lever.arrived.set()

    def remove_all(self) -> None:
        for number in list(self._levers):
            self.remove(number)

    async def arrived(self, number: int) -> None:
        """Wait until the lever has touched a request; LookupError where it never will."""
        lever = self._levers.get(number)
        if lever is not None:
            await lever.arrived.wait()
        if lever is None or not lever.touched:
            raise LookupError(f"lever {number} was taken away")

    async def knows(self, brokers: int) -> None:
        """Wait until the broker has been told of so many brokers."""
        while self._cache is None or len(self._cache.brokers) < brokers:
            self._told.clear()
            await self._told.wait()

    def touched(self, number: int) -> int:
        """How many requests the lever has touched."""
        lever = self._levers.get(number)
        return 0 if lever is None else lever.touched

    def _handle(self, handle: Handle, key: int, request: Any, context: RequestContext) -> Any:
        for lever in self._levers.values():
            if lever.api == key:
                assert self._cache is not None
                if lever.takes(request, context, self._cache):
                    return self._touch(lever, handle, request, context)
        return handle(request, context)

    def _touch(self, lever: Lever, handle: Handle, request: Any, context: RequestContext) -> Any:
        if lever.error:
            # Nobody waits for an answer that could carry the error.
            if getattr(request, "acks", None) == 0:
                raise CloseConnection
            raise KafkaError(ErrorCode.of(lever.error))
        _keep(request)
        return self._later(lever, handle, request, context)

    async def _later(
        self, lever: Lever, handle: Handle, request: Any, context: RequestContext
    ) -> Any:
        if lever.hold:
            await lever.released.wait()
        else:
            await asyncio.sleep(lever.seconds)
        response = handle(request, context)
        return await response if inspect.isawaitable(response) else response


def _topics(request: Any, cache: MetadataCache) -> set[Any]:
    """Names of the topics that a request is about, as far as the broker knows their ids."""
    found = _values(request, _TOPIC_FIELDS)
    return found | {cache.topic_name(each) for each in _values(request, {"topic_id"})}


def _values(request: Any, names: frozenset[str] | set[str]) -> set[Any]:
    return {
        each
        for name, value in _fields(request)
        if name in names
        for each in (value if isinstance(value, list) else [value])
        if isinstance(each, str | bytes)
    }


def _fields(message: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a message and of what is in it."""
    for name in message._specifiers:
        value = getattr(message, name)
        yield name, value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from _fields(each)


def _keep(message: Any) -> None:
    """Copy what lies in the receive buffer: it dies when the handler returns."""
    for name in message._specifiers:
        value = getattr(message, name)
        if isinstance(value, memoryview):
            setattr(message, name, bytes(value))
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                _keep(each)
