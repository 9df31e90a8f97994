"""Faults on requests: a request is held, delayed or refused before the broker's handler sees it.

Faults apply to every request of their API on all listeners, so also to requests between brokers.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.server.context import CloseConnection, RequestContext
from barnabas.broker.server.dispatch import Handle, Route
from barnabas.broker.server.repeats import Again, Repeat, RepeatByElement
from barnabas.coordinator.soon import in_task, settle
from barnabas.faults.arguments import check_text
from barnabas.protocol.apis import APIS
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.schema import Message

_TOPIC_FIELDS = frozenset({"name", "topic", "topic_name", "topics", "topic_names"})


def api_key(api: int | str) -> int:
    """Return the key of an API, which is given by Kafka's name ("EndTxn") or by its key.

    Raises ValueError if it does not exist.
    """
    if isinstance(api, int) and not isinstance(api, bool):
        if api in APIS:
            return api
        raise ValueError(f"there is no API {api}")
    check_text("an API", api)
    wanted = str(api).replace("_", "").lower()
    for key, listed in APIS.items():
        if listed.module.replace("_", "") == wanted:
            return key
    raise ValueError(f"there is no API {api}")


def error_code(error: int | str) -> int:
    """Return the code of an error, which is given by Kafka's name or by its code.

    Raises ValueError if it does not exist, or means no error.
    """
    if isinstance(error, bool) or not isinstance(error, int | str):
        raise TypeError(f"an error is Kafka's name or code, not {error!r}")
    if isinstance(error, str):
        found = ErrorCode.__members__.get(error)
    else:
        found = next((each for each in ErrorCode if each == error), None)
    if not found:
        raise ValueError(f"there is no error {error}")
    return int(found)


@dataclass(slots=True)
class RequestFault:
    """A fault on the matching requests of one API: one of `hold`, `seconds` and `error` is set."""

    api: int
    client_id: str | None = None
    topic: str | None = None
    transactional_id: str | None = None
    first: int = 1
    """The number of the first matching request that is touched, counted from 1."""
    times: int | None = None
    """The number of requests that are touched; None for all."""
    hold: bool = False
    seconds: float = 0.0
    error: int = 0
    seen: int = 0
    touched: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first request that is touched, and when the fault is removed."""
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def touches(self, request: Any, context: RequestContext, cache: MetadataCache) -> bool:
        """Count a request if it matches, and return whether it is touched."""
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


class RequestFaults:
    """The faults of one broker, by the number of their lever."""

    def __init__(self) -> None:
        self._faults: dict[int, RequestFault] = {}
        self._removed: dict[int, int] = {}
        """The requests that removed faults have touched, until they are asked for."""
        self._cache: MetadataCache | None = None
        self._cache_changed = asyncio.Event()
        self._slicer = Slicer(time.monotonic)

    def around(self, cache: MetadataCache) -> Callable[[Route], Route]:
        """Return the function that puts the faults in front of a route's handler."""
        if self._cache is None:
            self._cache = cache
            cache.on_change(self._cache_changed.set)
        return self._before

    def _before(self, route: Route) -> Route:
        return route._replace(
            handle=partial(self._handle, route.handle, route.api.key),
            again=None if route.again is None else partial(self._again, route.again),
        )

    def _again(
        self, again: Again, request: Any, context: RequestContext, response: Any
    ) -> Repeat | RepeatByElement | None:
        """Return how a request is served again, while there is no fault."""
        repeat = again(request, context, response)
        if repeat is None:
            return None
        serve = repeat.serve
        return repeat._replace(serve=lambda *asked: None if self._faults else serve(*asked))

    def add(self, number: int, fault: RequestFault) -> None:
        self._faults[number] = fault

    def remove(self, number: int) -> bool:
        """Remove a fault, and release the requests that it holds; return whether it was there."""
        fault = self._faults.pop(number, None)
        if fault is not None:
            self._removed[number] = fault.touched
            fault.released.set()
            # No request will come: wake those that wait for the first.
            fault.arrived.set()
        return fault is not None

    def remove_all(self) -> list[int]:
        """Remove every fault, and return their numbers."""
        numbers = list(self._faults)
        for number in numbers:
            self.remove(number)
        return numbers

    async def arrived(self, number: int) -> None:
        """Wait until a fault has touched a request. Raises LookupError if it was removed before."""
        fault = self._faults.get(number)
        if fault is not None:
            await fault.arrived.wait()
        if fault is None or not fault.touched:
            raise LookupError(f"lever {number} was removed")

    async def wait_for_brokers(self, count: int) -> None:
        """Wait until the metadata cache holds so many brokers."""
        while self._cache is None or len(self._cache.brokers) < count:
            self._cache_changed.clear()
            await self._cache_changed.wait()

    def touched(self, number: int) -> int:
        """Return the number of requests that a fault has touched.

        That of a fault which was removed is forgotten then.
        """
        fault = self._faults.get(number)
        return self._removed.pop(number, 0) if fault is None else fault.touched

    def _handle(self, handle: Handle, key: int, request: Any, context: RequestContext) -> Any:
        for fault in self._faults.values():
            if fault.api == key:
                assert self._cache is not None
                if fault.touches(request, context, self._cache):
                    return self._touch(fault, handle, request, context)
        return handle(request, context)

    def _touch(
        self, fault: RequestFault, handle: Handle, request: Any, context: RequestContext
    ) -> Any:
        if fault.error:
            # With acks=0 there is no response that could carry the error.
            if getattr(request, "acks", None) == 0:
                raise CloseConnection
            raise KafkaError(ErrorCode.of(fault.error))
        _keep(request)
        return in_task(self._later(fault, handle, request, context))

    async def _later(
        self, fault: RequestFault, handle: Handle, request: Any, context: RequestContext
    ) -> Any:
        if fault.hold:
            await fault.released.wait()
        else:
            await asyncio.sleep(fault.seconds)
        return await self._slicer.run(settle(handle(request, context)))


def _topics(request: Any, cache: MetadataCache) -> set[Any]:
    """Return the names of a request's topics, but of topic ids that the broker does not know."""
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
    """Yield name and value of every field of a message and of the messages in it."""
    for name in message._specifiers:
        value = getattr(message, name)
        yield name, value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from _fields(each)


def _keep(message: Any) -> None:
    """Copy the parts that lie in the receive buffer, which is reused when the handler returns."""
    for name in message._specifiers:
        value = getattr(message, name)
        if isinstance(value, memoryview):
            setattr(message, name, bytes(value))
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                _keep(each)
