"""W7: during any workload, topics are created and deleted, replicas move, leaders change."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.verify.context import Context
from barnabas.verify.history import INFO, Partition

NAME: Final = "churn"
PAUSE: Final = 0.3
"""Seconds between two changes."""
MOVE_PATIENCE: Final = 20.0
"""Seconds that a change waits for a reassignment, which may have to wait for a broker."""
MORE_PARTITIONS: Final = 2
"""The number of partitions that are added to a topic; no producer writes to them."""
_LOOK: Final = 0.1


async def churn(context: Context, partitions: Sequence[Partition]) -> None:
    """Make one change after another until the run stops.

    At the end every partition has its original number of replicas.
    """
    changes = _Changes(context, partitions)
    while await context.pause(PAUSE):
        await changes.one()
    await changes.finish()


class _Changes:
    def __init__(self, context: Context, partitions: Sequence[Partition]) -> None:
        self._context = context
        self._partitions = partitions
        self._chance = context.random(NAME)
        self._cluster: Cluster = context.cluster()
        self._admin = Admin(self._cluster)
        self._partition_admin = PartitionAdmin(self._cluster)
        self._names = count(1)
        self._temporary: str | None = None
        self._grown: dict[str, int] = {}
        self._shrunk: dict[Partition, list[int]] = {}
        """The original replicas of partitions that have one replica less now."""

    async def one(self) -> None:
        await self._try(
            self._chance.choice(
                (
                    self._create_or_delete,
                    self._grow,
                    self._reorder,
                    self._reorder,
                    self._shrink,
                    self._elect,
                )
            )
        )

    async def finish(self) -> None:
        """Restore the replicas and delete the temporary topic."""
        for _ in range(len(self._shrunk)):
            await self._try(self._restore)
        if self._temporary is not None:
            await self._try(self._create_or_delete)

    async def _try(self, change: Callable[[], Awaitable[None]]) -> None:
        did, error = change.__name__.strip("_"), None
        try:
            await change()
        except (KafkaError, BrokerUnreachable, TimeoutError) as raised:
            # The cluster may be busy or without a controller; the load continues.
            error = str(raised) or type(raised).__name__
        self._context.history.note(NAME, "admin", INFO, {"did": did, "error": error})

    # -- changes ---------------------------------------------------------------------------------

    async def _create_or_delete(self) -> None:
        """Create a temporary topic, or delete it the next time."""
        if self._temporary is None:
            self._temporary = self._context.topic(f"temporary{next(self._names)}")
            await self._admin.create_topic(self._temporary, partitions=3)
        else:
            name, self._temporary = self._temporary, None
            await self._admin.delete_topic(name)

    async def _grow(self) -> None:
        name = self._chance.choice(self._partitions)[0]
        if self._grown.setdefault(name, 0) < MORE_PARTITIONS:
            self._grown[name] += 1
            partitions = self._context.options.partitions + self._grown[name]
            await self._admin.create_partitions(name, partitions)

    async def _reorder(self) -> None:
        """Change the preferred leader and elect it.

        With more brokers than replicas, the last replica moves to another broker.
        """
        at = self._chance.choice(self._partitions)
        if at in self._shrunk:
            return
        replicas = await self._replicas(at)
        self._chance.shuffle(replicas)
        others = sorted(set(self._cluster.nodes) - set(replicas))
        if others:
            replicas[-1] = self._chance.choice(others)
        await self._reassign(at, replicas)
        await self._partition_admin.elect_leaders([TopicPartition(*at)])

    async def _shrink(self) -> None:
        """Remove a replica, or add it again the next time."""
        if self._shrunk:
            await self._restore()
            return
        at = self._chance.choice(self._partitions)
        replicas = await self._replicas(at)
        if len(replicas) > 2:
            self._shrunk[at] = list(replicas)
            replicas.remove(self._chance.choice(replicas))
            await self._reassign(at, replicas)

    async def _restore(self) -> None:
        at, replicas = next(iter(self._shrunk.items()))
        await self._reassign(at, replicas)
        del self._shrunk[at]

    async def _elect(self) -> None:
        await self._partition_admin.elect_leaders(TopicPartition(*at) for at in self._partitions)

    # -- waiting ---------------------------------------------------------------------------------

    async def _replicas(self, at: Partition) -> list[int]:
        self._cluster.topics.pop(at[0], None)
        description = (await self._cluster.topic(at[0])).description
        return [
            int(node)
            for row in description.partitions
            if row.partition_index == at[1]
            for node in row.replica_nodes
        ]

    async def _reassign(self, at: Partition, replicas: Sequence[int]) -> None:
        """Reassign and wait for the end; after a TimeoutError the reassignment still runs."""
        partition = TopicPartition(*at)
        outcome = (await self._partition_admin.reassign({partition: replicas}))[partition]
        if outcome is not None:
            raise outcome
        async with asyncio.timeout(MOVE_PATIENCE):
            while partition in await self._partition_admin.reassignments([partition]):
                await self._context.wait(_LOOK)
