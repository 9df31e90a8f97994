"""The partitions of a worker: a fixed set, or the assignment of its group."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember, RebalanceListener
from barnabas.client.group import Protocol as GroupProtocol
from barnabas.client.groups.metadata import GroupMetadata
from barnabas.client.offsets import EARLIEST
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.verify.context import Context
from barnabas.verify.history import History, Partition
from barnabas.verify.wire.inspection import committed_offset
from barnabas.verify.wire.reader import Reader

SESSION_TIMEOUT: Final = 6.0
"""The session timeout of members in s: the shortest that brokers allow by default."""

_IDLE: Final = 0.05

VISIT: Final = 3.0
"""The maximum seconds that a subscriber stays in the group."""


class Ownership(Protocol):
    """The owner of partitions: it assigns them to a reader, at the offsets of the group."""

    async def ready(self) -> None:
        """Assign partitions to the reader; to be called before each poll."""
        ...

    async def rewind(self) -> None:
        """Seek to the committed offsets."""
        ...

    async def leave(self) -> None: ...

    async def crash(self) -> None:
        """Stop without leaving the group."""
        ...

    @property
    def metadata(self) -> GroupMetadata:
        """The group metadata for offset commits."""
        ...


class FixedOwnership:
    """A fixed set of partitions that no other worker reads; the worker is not a group member."""

    def __init__(
        self,
        history: History,
        cluster: Cluster,
        reader: Reader,
        group: str,
        partitions: Sequence[Partition],
    ) -> None:
        self._history = history
        self._cluster = cluster
        self._reader = reader
        self._partitions = partitions
        self.metadata = GroupMetadata(group)

    async def ready(self) -> None:
        if not self._reader.positions:
            await self.rewind()

    async def rewind(self) -> None:
        positions = {}
        for at in self._partitions:
            found = await committed_offset(
                self._history, self._cluster, self._reader.name, self.metadata.group_id, at
            )
            positions[at] = max(0, found.offset)
        self._reader.assign(positions)

    async def leave(self) -> None:
        """Do nothing: there is no group to leave."""

    async def crash(self) -> None:
        """Do nothing, as for `leave`."""


class GroupOwnership(RebalanceListener):
    """A group member; others take over its partitions when it leaves or its session times out."""

    def __init__(
        self, cluster: Cluster, reader: Reader, group: str, topic: str, protocol: GroupProtocol
    ) -> None:
        self._reader = reader
        self._consumer = Consumer(cluster, FetchSettings(offset_reset=EARLIEST))
        self._member = GroupMember(
            cluster,
            self._consumer,
            group,
            [topic],
            protocol=protocol,
            session_timeout=SESSION_TIMEOUT,
            listener=self,
        )
        self._moved = False
        self._new: set[TopicPartition] = set()

    @property
    def metadata(self) -> GroupMetadata:
        return self._member.metadata

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._moved = True
        self._new.update(partitions)

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._moved = True
        self._new.difference_update(partitions)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self.on_revoked(partitions)

    async def ready(self) -> None:
        await self._member.ensure_joined()
        if self._moved:
            self._take_over()
        if not self._reader.positions:
            # Other members have not given up partitions yet, and nothing else waits here.
            await asyncio.sleep(_IDLE)

    async def rewind(self) -> None:
        await self._member.rewind()
        self._new.update(self._consumer.positions)
        self._take_over()

    def _take_over(self) -> None:
        """Read new partitions from their committed offsets, and kept ones on."""
        read = self._reader.positions
        self._reader.assign(
            {
                at: read[at] if at in read and at not in self._new else max(0, offset)
                for at, offset in self._consumer.positions.items()
            }
        )
        self._moved = False
        self._new.clear()

    async def leave(self) -> None:
        await self._member.leave()

    async def crash(self) -> None:
        await self._member.abandon()


async def subscribe(context: Context, name: str, topic: str, protocol: GroupProtocol) -> None:
    """Join and leave a group again and again, without commits."""
    chance = context.random(name)
    loop = asyncio.get_running_loop()
    life = 0
    while not context.stopping.is_set():
        life += 1
        until = loop.time() + VISIT * chance.random()
        cluster = context.cluster()
        reader = Reader(context.history, cluster, f"{name}.{life}", committed=True)
        owner = GroupOwnership(cluster, reader, f"{topic}-readers", topic, protocol)
        try:
            while loop.time() < until and not context.stopping.is_set():
                await owner.ready()
                await reader.poll()
            await owner.leave()
        except (KafkaError, BrokerUnreachable, TimeoutError) as error:
            # Readers may fail; a broker that stays away is found at the end.
            context.problem(f"{name}: {error}")
            await owner.crash()
        finally:
            await cluster.close()
