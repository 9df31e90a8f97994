"""The broker epochs of the present registrations, by which a leader fences its followers (KIP-903).

UpdateMetadata does not have them, so every broker reads the registrations itself: when one begins
or ends, and when a request names a newer epoch than the known one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from barnabas.broker.cluster import znodes
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import MetadataStore, StoreError, WatchHandle

RETRY_S: Final = 0.25
"""Seconds until a read from the store that failed is repeated."""
PAUSE_S: Final = 0.1
"""Least seconds between two reads: requests with made-up epochs must not load the store."""
NOT_REGISTERED: Final = -1
_log = get_logger(__name__)

T = TypeVar("T")


class SharedRead(Generic[T]):
    """One read at a time: however many calls there are, at most one runs and one more is due.

    An answer is never older than the call: a call during a read gets the result of the next one,
    which begins PAUSE_S after the last one ended.
    """

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._not_before = 0.0
        self._running: asyncio.Future[T] | None = None
        self._due: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """Return what a read finds that begins now or later. Raises what the read raises."""
        if self._due is None:
            self._due = asyncio.ensure_future(self._after(self._running))
        return await asyncio.shield(self._due)

    async def _after(self, earlier: "asyncio.Future[T] | None") -> T:
        loop = asyncio.get_running_loop()
        if earlier is not None:
            await asyncio.wait([earlier])
        if (wait := self._not_before - loop.time()) > 0:
            await asyncio.sleep(wait)
        self._running, self._due = self._due, None
        try:
            return await self._read()
        finally:
            self._not_before = loop.time() + PAUSE_S


class BrokerEpochs:
    """The broker epochs of all registered brokers, by broker id."""

    def __init__(
        self, store: MetadataStore, spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        """`spawn` runs a coroutine in a new task."""
        self._store = store
        self._spawn = spawn
        self._known: dict[int, int] = {}
        self._read = SharedRead(self._read_all)
        self._watch: WatchHandle | None = None
        self._following = False

    def start(self) -> None:
        """Follow the registrations from now on."""
        self._watch = self._store.watch_children(znodes.BROKER_IDS, lambda _: self._changed())
        self._changed()

    def stop(self) -> None:
        """Follow them no longer."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def is_present(self, broker_id: int, epoch: int) -> "bool | Coroutine[Any, Any, bool]":
        """Return whether `epoch` is that of the broker's present registration.

        The result is there at once unless the epoch is newer than the known one: then the store is
        asked, and the result is False if it does not respond.
        """
        known = self._known.get(broker_id, NOT_REGISTERED)
        return epoch == known if epoch <= known else self._ask(broker_id, epoch)

    async def _ask(self, broker_id: int, epoch: int) -> bool:
        try:
            await self._read()
        except StoreError as error:
            _log.warning("broker epochs unavailable", reason=repr(error))
            return False
        return self._known.get(broker_id) == epoch

    def _changed(self) -> None:
        if not self._following:
            self._following = True
            self._spawn(self._follow())

    async def _follow(self) -> None:
        self._following = False
        while self._watch is not None:
            with suppress(StoreError):
                await self._read()
                return
            await asyncio.sleep(RETRY_S)

    async def _read_all(self) -> None:
        found: dict[int, int] = {}
        for name in await self._store.children(znodes.BROKER_IDS):
            stat = await self._store.exists(f"{znodes.BROKER_IDS}/{name}")
            if stat is not None and name.isdecimal():
                found[int(name)] = stat.czxid
        self._known = found
