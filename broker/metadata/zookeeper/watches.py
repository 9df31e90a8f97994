"""Watches that stay, made of ZooKeeper's that fire once.

A watch that has fired is armed again before anybody is told: requests are carried out in order, so
who reads when told reads what the new watch begins from, and no change falls between the two.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from kazoo.protocol import serialization as zk
from kazoo.protocol.states import EventType, WatchedEvent

from barnabas.broker.metadata.store import NoNode, Watch
from barnabas.broker.metadata.zookeeper import wire

Send = Callable[[Any, str], "asyncio.Future[Any] | None"]
"""Makes a request for a path of the port; None while there is nobody to ask."""


class Watching:
    """One watch of somebody's; see the port."""

    def __init__(self, node: "_WatchedNode", watch: Watch) -> None:
        self._node = node
        self._watch = watch

    def call(self, path: str) -> None:
        self._watch(path)

    def cancel(self) -> None:
        self._node.watchings.pop(self, None)


class _WatchedNode:
    """All watches of one kind on one node. Stays while armed, also where nobody watches any more:
    ZooKeeper cannot be asked to forget."""

    def __init__(self, watches: "Watches", path: str) -> None:
        self.watches = watches
        self.path = path
        self.watchings: dict[Watching, None] = {}
        self.armed = 0
        """Number of the arming that counts; 0 where none does. Events of others are stale."""
        self._armings = 0

    def arm(self) -> None:
        """Have ZooKeeper tell of the next change."""
        raise NotImplementedError

    def next_arming(self) -> int:
        self._armings += 1
        self.armed = self._armings
        return self.armed

    def tell(self) -> None:
        for watching in list(self.watchings):
            if watching in self.watchings:
                watching.call(self.path)

    def request(self, kind: Any, fired: Callable[[int, str], None]) -> "asyncio.Future[Any] | None":
        arming = self.next_arming()

        def called(event: WatchedEvent) -> None:
            if event.type == EventType.NONE or arming != self.armed:
                return
            self.armed = 0
            if self.watchings:
                fired(arming, event.type)

        answer = self.watches.send(kind(self.watches.full(self.path), called), self.path)
        if answer is None:
            self.armed = 0
        return answer


class _WatchedData(_WatchedNode):
    def arm(self) -> None:
        answer = self.request(zk.Exists, self._fired)
        if answer is not None:
            answer.add_done_callback(_retrieve)

    def _fired(self, _arming: int, _event: str) -> None:
        self.arm()
        self.tell()


class _WatchedChildren(_WatchedNode):
    """ZooKeeper watches no children of a node that does not exist; until it does, we watch it."""

    def __init__(self, watches: "Watches", path: str) -> None:
        super().__init__(watches, path)
        self._was_missing = False

    def arm(self) -> None:
        answer = self.request(zk.GetChildren, self._fired)
        if answer is not None:
            arming = self.armed
            answer.add_done_callback(lambda done: self._listed(done, arming))

    def _fired(self, _arming: int, event: str) -> None:
        self._was_missing |= event == EventType.DELETED
        self.arm()
        if event == EventType.CHILD:
            self.tell()

    def _listed(self, answer: "asyncio.Future[Any]", arming: int) -> None:
        if answer.cancelled() or arming != self.armed:
            return
        error = answer.exception()
        if isinstance(error, NoNode):
            self._was_missing = True
            self._await_node()
        elif error is None and self._was_missing:
            self._was_missing = False
            if answer.result():
                self.tell()

    def _await_node(self) -> None:
        answer = self.request(zk.Exists, self._fired)
        if answer is not None:
            arming = self.armed
            answer.add_done_callback(lambda done: self._looked(done, arming))

    def _looked(self, answer: "asyncio.Future[Any]", arming: int) -> None:
        if answer.cancelled() or answer.exception() is not None or arming != self.armed:
            return
        if answer.result() is not None:
            # It has come in between.
            self.arm()


class Watches:
    """Every watch of one store, across its connections and sessions."""

    def __init__(self, send: Send, chroot: str) -> None:
        self.send = send
        self._chroot = chroot
        self._data: dict[str, _WatchedNode] = {}
        self._children: dict[str, _WatchedNode] = {}

    def full(self, path: str) -> str:
        return wire.full_path(self._chroot, path)

    def watch_data(self, path: str, watch: Watch) -> Watching:
        return self._watch(self._data, _WatchedData, path, watch)

    def watch_children(self, path: str, watch: Watch) -> Watching:
        return self._watch(self._children, _WatchedChildren, path, watch)

    def begin_anew(self) -> None:
        """There is a connection that knows of no watch: arm all, and tell all, since anything may
        have changed meanwhile."""
        for table in (self._data, self._children):
            for path, node in list(table.items()):
                if node.watchings:
                    node.arm()
                else:
                    del table[path]
        loop = asyncio.get_running_loop()
        for table in (self._data, self._children):
            for node in table.values():
                loop.call_soon(node.tell)

    def _watch(
        self,
        table: dict[str, _WatchedNode],
        kind: type[_WatchedNode],
        path: str,
        watch: Watch,
    ) -> Watching:
        node = table.get(path)
        if node is None:
            node = table[path] = kind(self, path)
        watching = Watching(node, watch)
        node.watchings[watching] = None
        if not node.armed:
            node.arm()
        return watching


def _retrieve(answer: "asyncio.Future[Any]") -> None:
    """What became of it shows with the next connection."""
    if not answer.cancelled():
        answer.exception()
