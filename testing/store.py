"""The metadata store of a test's cluster: each broker has a line to it, and the test reads it."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.embedded import EmbeddedSession, EmbeddedStore, open_store
from barnabas.broker.metadata.served import StoreServer
from barnabas.broker.metadata.tree import Staged, Tree
from barnabas.broker.metadata.znodes import LeaderAndIsr, TopicAssignment
from barnabas.broker.offload import ThreadOffload
from barnabas.protocol.java_hash import partition_for
from barnabas.storage.files import OsFiles
from barnabas.testing.severable import Line, Severable

GROUPS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
T = TypeVar("T")


class Store:
    """An embedded store on the running loop, and what the cluster has written there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offload = ThreadOffload()
        self._lines: dict[int, Line] = {}
        self._store: EmbeddedStore
        self._server: StoreServer

    async def start(self, brokers: list[int]) -> None:
        path = os.path.join(self._directory, "metadata")
        self._store = await open_store(OsFiles(), path, self._offload)
        self._server = StoreServer(self._store)
        for broker in brokers:
            line = self._lines[broker] = Line()
            await self._server.serve(self.socket(broker), partial(self._accept, line))

    async def stop(self) -> None:
        for line in self._lines.values():
            line.mend()
        await self._server.close()
        await self._store.close()
        self._offload.close()

    def _accept(self, line: Line) -> Severable:
        return Severable(self._server.connection(), line)

    def socket(self, broker: int) -> str:
        """The socket of one broker: what comes over it can be cut."""
        return str(self._directory / f"store-{broker}.socket")

    def line(self, broker: int) -> Line:
        return self._lines[broker]

    async def expire(self, broker: int) -> None:
        """End a broker's session as if nothing had been heard of it. RuntimeError without one."""
        node = self._tree.find(znodes.broker_path(broker))
        if node is None:
            raise RuntimeError(f"broker {broker} has no session")
        await self._server.expire(node.ephemeral_owner)

    # -- what stands there -----------------------------------------------------------------------

    @property
    def _tree(self) -> Tree:
        return self._store.tree

    def controller(self) -> int | None:
        """The id of the broker that is the controller; None while there is none."""
        node = self._tree.find(znodes.CONTROLLER)
        return None if node is None else znodes.decode_controller(node.data)

    def brokers(self) -> list[int]:
        """The ids of the brokers that are registered."""
        return sorted(int(name) for name in self._tree.children(znodes.BROKER_IDS))

    def topic(self, topic: str) -> TopicAssignment | None:
        """None where there is no such topic."""
        node = self._tree.find(znodes.topic_path(topic))
        return None if node is None else znodes.decode_topic(node.data)

    def replicas(self, topic: str, partition: int) -> list[int]:
        """The brokers that have a partition. ValueError where there is none."""
        found = self.topic(topic)
        if found is None or partition not in found.replicas:
            raise _no_partition(topic, partition)
        return list(found.replicas[partition])

    def state(self, topic: str, partition: int) -> LeaderAndIsr:
        """Who leads a partition, and who is in sync. ValueError where there is none."""
        node = self._tree.find(znodes.state_path(topic, partition))
        if node is None:
            raise _no_partition(topic, partition)
        return znodes.decode_state(node.data, node.version)

    async def leader_of(self, topic: str, partition: int) -> int:
        """Waits until somebody leads."""

        def leader() -> int | None:
            if self._tree.find(znodes.state_path(topic, partition)) is None:
                return None
            found = self.state(topic, partition).leader
            return found if found >= 0 else None

        return await self.until(leader)

    def coordinating(self, internal: str, key: str) -> int | None:
        """The partition whose leader coordinates a key; None before its topic exists."""
        found = self.topic(internal)
        return None if found is None else partition_for(key, len(found.replicas))

    def in_sync(self) -> bool:
        """Whether every replica of every partition is in sync, and leads where it should."""
        names = self._tree.children(znodes.TOPICS)
        topics = {name: topic for name in names if (topic := self.topic(name)) is not None}
        return all(
            self._tree.find(znodes.state_path(name, index)) is not None
            and set(self.state(name, index).isr) == set(replicas)
            for name, topic in topics.items()
            for index, replicas in topic.replicas.items()
        )

    async def until(self, see: Callable[[], T | None]) -> T:
        """Wait until something can be seen in the store."""
        onlooker = _Onlooker(self._store)
        try:
            while (seen := see()) is None:
                onlooker.changed.clear()
                await onlooker.changed.wait()
            return seen
        finally:
            await onlooker.close()


def _no_partition(topic: str, partition: int) -> ValueError:
    return ValueError(f"there is no partition {topic}-{partition}")


class _Onlooker(EmbeddedSession):
    """A session that is told of every change."""

    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__(store)
        self.changed = asyncio.Event()

    def tell(self, staged: Staged) -> None:  # noqa: ARG002
        self.changed.set()
