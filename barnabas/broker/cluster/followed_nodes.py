"""Nodes that a broker follows: it reads all, and again those that change notifications name.

A notification is a sequential node, as in Kafka. Each broker remembers the last one that it has
applied. Old ones are deleted.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from barnabas.broker.cluster.registration import catch_up_with_all
from barnabas.broker.cluster.znodes import ZnodeError
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import (
    Delete,
    MetadataStore,
    NoNode,
    NotAllowed,
    WatchHandle,
)

KEPT_CHANGES: Final = 100
"""Number of notifications kept for slow brokers. A broker that missed more of them was down, and
reads everything again when it comes back."""
AT_ONCE: Final = 64
"""Nodes that are read at the same time, before other work of the event loop has its turn, and
notifications that are deleted in one transaction."""
MOST_ROUNDS: Final = 10
"""The times that nodes are read because others have changed meanwhile."""
K = TypeVar("K")
V = TypeVar("V")
_log = get_logger(__name__)


class FollowedNodes(ABC, Generic[K]):
    """Nodes by key, with the changes that this broker has applied so far.

    While the store is away, their last content stays in force.
    """

    def __init__(
        self, store: MetadataStore, decoders: Mapping[str, Callable[[bytes], K | None]]
    ) -> None:
        """`decoders` return the key that a notification names, None for no node, and raise
        ZnodeError. They are by path, without sequence numbers."""
        self._store = store
        self._decoders = decoders
        self._newest = dict.fromkeys(decoders, "")
        self._stale = True
        self._watching: list[WatchHandle] = []
        self._turn = asyncio.Lock()

    @abstractmethod
    async def _load(self) -> None:
        """Read all nodes."""

    @abstractmethod
    async def _read(self, keys: Sequence[K]) -> None:
        """Read nodes that have changed."""

    def _caught_up(self) -> None:
        """Put into force what was read."""

    def _denied(self, error: NotAllowed) -> None:
        """Handle that the store does not let this broker read the nodes."""
        raise error

    async def start(self, on_change: Callable[[], None]) -> None:
        """Read all nodes. `on_change` is called when `catch_up` should be awaited.

        Raises StoreError.
        """
        self._watching = [
            self._store.watch_children(path.rpartition("/")[0], lambda _path: on_change())
            for path in self._newest
        ]
        self._store.on_expired(self._expired)
        await self.catch_up()

    def stop(self) -> None:
        """Follow no more changes."""
        for watch in self._watching:
            watch.cancel()

    async def catch_up(self) -> None:
        """Apply the changes that were made since the last call, by brokers and by Kafka's tools.

        A call that was interrupted, by the loss of the store for example, can be repeated.
        """
        async with self._turn:
            try:
                await self._catch_up()
            except NotAllowed as error:
                self._stale = True
                self._denied(error)

    def _expired(self) -> None:
        """Remember that notifications may have come and gone while there was no session: Kafka
        deletes them after 15 minutes."""
        self._stale = True

    async def _catch_up(self) -> None:
        names = await self._names()
        begun = False
        try:
            # What takes the place of another node may have its notification elsewhere. Both come
            # into force together, as they were in the store at one time.
            for _ in range(MOST_ROUNDS):
                if self._stale:
                    self._stale, changed = False, None
                else:
                    changed = await self._changed(names)
                if changed == []:
                    break
                begun = True
                if changed is None:
                    await catch_up_with_all(self._store)
                    await self._load()
                else:
                    await self._read(changed)
                self._newest = {path: max(found, default="") for path, found in names.items()}
                names = await self._names()
        except BaseException:
            # Some may count as applied that are not in force.
            self._stale |= begun
            raise
        if begun:
            self._caught_up()
        for found in names.values():
            await self._delete_old(found[:-KEPT_CHANGES])

    async def _names(self) -> dict[str, list[str]]:
        """Return the paths of all notifications in order, without other nodes."""
        found = {}
        for path in self._newest:
            parent = path.rpartition("/")[0]
            nodes = [f"{parent}/{node}" for node in await self._store.children(parent)]
            found[path] = [node for node in nodes if node.startswith(path)]
        return found

    async def _changed(self, names: dict[str, list[str]]) -> list[K] | None:
        """Return the keys that new notifications name; None if one cannot be read, or may have been
        deleted unread."""
        changed: dict[K, None] = {}
        for kind, newest in self._newest.items():
            paths = names[kind]
            if newest not in paths if newest else len(paths) >= KEPT_CHANGES:
                return None
            new = [path for path in paths if path > newest]
            try:
                async for _, (data, _) in read_all(new, self._store.get):
                    key = self._decoders[kind](data)
                    if key is not None:
                        changed[key] = None
            except NoNode:
                return None
            except ZnodeError as error:
                # It is in the format of another version.
                _log.error("change notification unreadable", path=kind, reason=str(error))
                return None
        return list(changed)

    async def _delete_old(self, paths: Sequence[str]) -> None:
        for first in range(0, len(paths), AT_ONCE):
            some = list(map(Delete, paths[first : first + AT_ONCE]))
            try:
                await self._store.multi(some)
            except NoNode:
                # Other brokers delete them too.
                for each in some:
                    with suppress(NoNode):
                        await self._store.multi([each])


async def read_all(
    keys: Sequence[K], read: Callable[[K], Awaitable[V]]
) -> AsyncIterator[tuple[K, V]]:
    """Yield each key with what `read` returns for it."""
    for first in range(0, len(keys), AT_ONCE):
        some = keys[first : first + AT_ONCE]
        for each in zip(some, await asyncio.gather(*map(read, some)), strict=True):
            yield each
        # The embedded store answers at once.
        await asyncio.sleep(0)
