"""Change notifications: sequential nodes that tell every broker what to read again, as in Kafka.

Each broker remembers the last one that it has applied. Old ones are deleted.
"""

from collections.abc import Callable
from contextlib import suppress

from barnabas.broker.store.metadata_store import Delete, MetadataStore, NoNode, WatchHandle

KEPT_CHANGES = 100
"""Number of notifications kept for slow brokers. A broker that missed more of them was down, and
reads everything again when it comes back."""

_AT_ONCE = 64
"""Notifications that are deleted in one transaction."""


class Notifications:
    """The notifications under one parent, as far as this broker has applied them."""

    def __init__(self, store: MetadataStore, path: str) -> None:
        """`path` is that of a notification, without its sequence number."""
        self._store = store
        self._parent, _, self._prefix = path.rpartition("/")
        self._newest = ""

    def watch(self, on_change: Callable[[], None]) -> WatchHandle:
        """Call `on_change` when there is a new notification."""
        return self._store.watch_children(self._parent, lambda _path: on_change())

    async def names(self) -> list[str]:
        """Return the names of the notifications, in order; skip other nodes."""
        nodes = await self._store.children(self._parent)
        return [node for node in nodes if node.startswith(self._prefix)]

    def unapplied(self, names: list[str]) -> list[str] | None:
        """Return the paths of those that are new; None if some may have been deleted unread."""
        known = self._newest
        if known not in names if known else len(names) >= KEPT_CHANGES:
            return None
        return [f"{self._parent}/{name}" for name in names if name > known]

    def applied(self, path: str) -> None:
        """Remember that a notification and all before it were applied."""
        self._newest = path.rpartition("/")[2]

    def all_applied(self, names: list[str]) -> None:
        """Remember that everything was read after the notifications were listed."""
        self._newest = max(names, default="")

    async def delete_old(self, names: list[str]) -> None:
        """Delete all but the last notifications."""
        old = [Delete(f"{self._parent}/{name}") for name in names[:-KEPT_CHANGES]]
        for first in range(0, len(old), _AT_ONCE):
            some = old[first : first + _AT_ONCE]
            try:
                await self._store.multi(some)
            except NoNode:
                # Other brokers delete them too.
                for each in some:
                    with suppress(NoNode):
                        await self._store.multi([each])
