"""Members of groups that poll and commit in tasks of their own, and what they have read."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember, RebalanceListener
from barnabas.client.offsets import EARLIEST
from barnabas.protocol.topic_partition import TopicPartition


class PollingMember(RebalanceListener):
    """A member in the consumer protocol that commits after each poll and before a revocation."""

    def __init__(
        self, servers: str, group: str, topics: Sequence[str] = (), **options: Any
    ) -> None:
        self._cluster = Cluster(servers)
        settings = FetchSettings(max_wait=0.05, offset_reset=EARLIEST)
        self.consumer = Consumer(self._cluster, settings)
        self.member = GroupMember(
            self._cluster,
            self.consumer,
            group,
            topics,
            protocol="consumer",
            listener=self,
            **options,
        )
        self.seen: Counter[bytes | None] = Counter()
        self.revoked: list[TopicPartition] = []
        self.lost: list[TopicPartition] = []
        self.running = asyncio.Event()
        self.running.set()
        self._paused = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self._cluster.refresh(())
        while True:
            self._paused.set()
            await self.running.wait()
            self._paused.clear()
            await self.member.ensure_joined()
            self.seen.update([message.value for message in await self.consumer.poll()])
            await self.member.commit()

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.revoked += partitions
        await self.member.commit()

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.lost += partitions

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that it reads. Raises the error with which it has ended."""
        if self._task.done():
            self._task.result()
        return set(self.consumer.positions)

    async def error(self) -> BaseException | None:
        """Return the error with which it ends."""
        await asyncio.wait([self._task], timeout=10)
        return self._task.exception()

    async def pause(self) -> None:
        """Poll no more until `running` is set."""
        self.running.clear()
        self._paused.clear()
        await self._paused.wait()

    async def die(self) -> None:
        """Stop without a word to the coordinator."""
        await self._stop()
        await self.member.abandon()
        await self._cluster.close()

    async def leave(self) -> None:
        await self._stop()
        await self.member.leave()
        await self._cluster.close()

    async def _stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def shared(*members: PollingMember, count: int) -> bool:
    """Return whether these members read `count` partitions, each one once and evenly."""
    owned = [each.partitions for each in members]
    sizes = [len(each) for each in owned]
    return len(set().union(*owned)) == sum(sizes) == count and max(sizes) - min(sizes) <= 1
