"""The metadata store of brokers on this host, with a link for each, and queries on its nodes."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.znodes import LeaderAndIsr, TopicAssignment
from barnabas.broker.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.broker.store.socket_server import StoreServer
from barnabas.broker.store.tree import StagedTransaction, Tree
from barnabas.faults.severable import Link, SeverableConnection
from barnabas.protocol.java_hash import partition_for

T = TypeVar("T")


class Store:
    """An open embedded store, the links of brokers to it, and the cluster's nodes in it."""

    def __init__(self, store: EmbeddedStore, server: StoreServer, directory: Path) -> None:
        """`directory` gets the sockets of the brokers."""
        self._store = store
        self._server = server
        self._directory = directory
        self._links: dict[int, Link] = {}

    async def serve(self, brokers: Iterable[int]) -> None:
        """Serve each broker at a separate socket."""
        for broker in brokers:
            link = self._links[broker] = Link()
            path = store_socket(self._directory, broker)
            await self._server.serve(path, partial(self._accept, link))

    def _accept(self, link: Link) -> SeverableConnection:
        return SeverableConnection(self._server.connection(), link)

    def link(self, broker: int) -> Link:
        return self._links[broker]

    def mend(self) -> None:
        """Make every link whole."""
        for link in self._links.values():
            link.mend()

    async def expire(self, broker: int) -> None:
        """End a broker's session as if it had timed out. Raises RuntimeError if it has none."""
        node = self._tree.find(znodes.broker_path(broker))
        if node is None:
            raise RuntimeError(f"broker {broker} has no session")
        await self._server.expire(node.ephemeral_owner)

    # -- the nodes -------------------------------------------------------------------------------

    @property
    def _tree(self) -> Tree:
        return self._store.tree

    def controller(self) -> int | None:
        """Return the id of the controller, None while no broker is."""
        node = self._tree.find(znodes.CONTROLLER)
        return None if node is None else znodes.decode_controller(node.data)

    def brokers(self) -> list[int]:
        """Return the ids of the brokers that are registered."""
        return sorted(int(name) for name in self._tree.children(znodes.BROKER_IDS))

    def topic(self, topic: str) -> TopicAssignment | None:
        """Return the replicas of a topic, None if the topic does not exist."""
        node = self._tree.find(znodes.topic_path(topic))
        return None if node is None else znodes.decode_topic(node.data)

    def replicas(self, topic: str, partition: int) -> list[int]:
        """Return the replicas of a partition. Raises ValueError if it does not exist."""
        found = self.topic(topic)
        if found is None or partition not in found.replicas:
            raise _no_partition(topic, partition)
        return list(found.replicas[partition])

    def state(self, topic: str, partition: int) -> LeaderAndIsr:
        """Return leader and ISR of a partition. Raises ValueError if it does not exist."""
        node = self._tree.find(znodes.state_path(topic, partition))
        if node is None:
            raise _no_partition(topic, partition)
        return znodes.decode_state(node.data, node.version)

    async def leader_of(self, topic: str, partition: int) -> int:
        """Return the leader of a partition; wait until it has one.

        Raises ValueError if the partition does not exist, or is deleted meanwhile.
        """

        def leader() -> int | None:
            self.replicas(topic, partition)
            if self._tree.find(znodes.state_path(topic, partition)) is None:
                return None
            found = self.state(topic, partition).leader
            return found if found >= 0 else None

        return await self.until(leader)

    def coordinating(self, internal: str, key: str) -> int | None:
        """Return the partition whose leader coordinates a key, None before its topic exists."""
        found = self.topic(internal)
        return None if found is None else partition_for(key, len(found.replicas))

    def in_sync(self) -> bool:
        """Return whether every replica of every partition is in sync."""
        names = self._tree.children(znodes.TOPICS)
        topics = {name: topic for name in names if (topic := self.topic(name)) is not None}
        return all(
            self._tree.find(znodes.state_path(name, index)) is not None
            and set(self.state(name, index).isr) == set(replicas)
            for name, topic in topics.items()
            for index, replicas in topic.replicas.items()
        )

    async def until(self, see: Callable[[], T | None]) -> T:
        """Return the first result of `see` that is not None; look again after every change."""
        listener = _ChangeListener(self._store)
        try:
            while (seen := see()) is None:
                listener.changed.clear()
                await listener.changed.wait()
            return seen
        finally:
            await listener.close()


def store_socket(directory: Path, broker: int) -> str:
    """Return the socket at which a broker finds the store; it has a link that can be cut."""
    return str(directory / f"store-{broker}.socket")


def _no_partition(topic: str, partition: int) -> ValueError:
    return ValueError(f"there is no partition {topic}-{partition}")


class _ChangeListener(EmbeddedSession):
    """A session that is notified of every change."""

    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__(store)
        self.changed = asyncio.Event()

    def notify(self, staged: StagedTransaction) -> None:  # noqa: ARG002
        self.changed.set()
