"""Permanent watches, built from ZooKeeper's watches that fire once.

A fired watch is set again before the callbacks run. ZooKeeper runs requests in order, so a callback
that reads sees at least the state from which the new watch starts, and no change is missed.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from kazoo.protocol import serialization as zk
from kazoo.protocol.states import EventType, WatchedEvent

from barnabas.broker.store.metadata_store import NoNode, Watch
from barnabas.broker.store.zookeeper import wire

Send = Callable[[Any, str], "asyncio.Future[Any] | None"]
"""Sends a request for a path of the port; returns None while no session is open."""


class ZooKeeperWatch:
    """One watch of a caller; see the port."""

    def __init__(self, node: "_NodeWatches", watch: Watch) -> None:
        self._node = node
        self._watch = watch

    def call(self, path: str) -> None:
        self._watch(path)

    def cancel(self) -> None:
        self._node.handles.pop(self, None)


class _NodeWatches:
    """All watches of one kind on one node.

    It stays while ZooKeeper's watch is set, even without callers, because ZooKeeper cannot be asked
    to remove it.
    """

    def __init__(self, watches: "Watches", path: str) -> None:
        self.watches = watches
        self.path = path
        self.handles: dict[ZooKeeperWatch, None] = {}
        self.armed = 0
        """Number of the current watch in ZooKeeper; 0 if none is set. Events of earlier ones are
        ignored."""
        self._armings = 0

    def arm(self) -> None:
        """Ask ZooKeeper for the next change."""
        raise NotImplementedError

    def next_arming(self) -> int:
        self._armings += 1
        self.armed = self._armings
        return self.armed

    def notify(self) -> None:
        for handle in list(self.handles):
            if handle in self.handles:
                handle.call(self.path)

    def request(self, kind: Any, fired: Callable[[int, str], None]) -> "asyncio.Future[Any] | None":
        arming = self.next_arming()

        def called(event: WatchedEvent) -> None:
            if event.type == EventType.NONE or arming != self.armed:
                return
            self.armed = 0
            if self.handles:
                fired(arming, event.type)

        answer = self.watches.send(kind(self.watches.full(self.path), called), self.path)
        if answer is None:
            self.armed = 0
        return answer


class _DataWatches(_NodeWatches):
    def arm(self) -> None:
        answer = self.request(zk.Exists, self._fired)
        if answer is not None:
            answer.add_done_callback(_retrieve)

    def _fired(self, _arming: int, _event: str) -> None:
        self.arm()
        self.notify()


class _ChildWatches(_NodeWatches):
    """The watches of a node's children.

    ZooKeeper cannot watch children of a node that does not exist; until it does, this watches the
    node.
    """

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
            self.notify()

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
                self.notify()

    def _await_node(self) -> None:
        answer = self.request(zk.Exists, self._fired)
        if answer is not None:
            arming = self.armed
            answer.add_done_callback(lambda done: self._looked(done, arming))

    def _looked(self, answer: "asyncio.Future[Any]", arming: int) -> None:
        if answer.cancelled() or answer.exception() is not None or arming != self.armed:
            return
        if answer.result() is not None:
            # The node was created in the meantime.
            self.arm()


class Watches:
    """All watches of one store, across its connections and sessions."""

    def __init__(self, send: Send, chroot: str) -> None:
        self.send = send
        self._chroot = chroot
        self._data: dict[str, _NodeWatches] = {}
        self._children: dict[str, _NodeWatches] = {}

    def full(self, path: str) -> str:
        return wire.full_path(self._chroot, path)

    def watch_data(self, path: str, watch: Watch) -> ZooKeeperWatch:
        return self._watch(self._data, _DataWatches, path, watch)

    def watch_children(self, path: str, watch: Watch) -> ZooKeeperWatch:
        return self._watch(self._children, _ChildWatches, path, watch)

    def rearm_all(self) -> None:
        """Set all watches on a connection that has none, and call all, since any node may have
        changed."""
        for table in (self._data, self._children):
            for path, node in list(table.items()):
                if node.handles:
                    node.arm()
                else:
                    del table[path]
        loop = asyncio.get_running_loop()
        for table in (self._data, self._children):
            for node in table.values():
                loop.call_soon(node.notify)

    def _watch(
        self,
        table: dict[str, _NodeWatches],
        kind: type[_NodeWatches],
        path: str,
        watch: Watch,
    ) -> ZooKeeperWatch:
        node = table.get(path)
        if node is None:
            node = table[path] = kind(self, path)
        handle = ZooKeeperWatch(node, watch)
        node.handles[handle] = None
        if not node.armed:
            node.arm()
        return handle


def _retrieve(answer: "asyncio.Future[Any]") -> None:
    """Ignore the error: the next connection sets the watch again."""
    if not answer.cancelled():
        answer.exception()
