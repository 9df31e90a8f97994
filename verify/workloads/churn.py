"""W7: beside any workload, topics come and go, replicas move, and leaders change."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import INFO, Place

NAME: Final = "churn"
PAUSE: Final = 0.3
"""Between two changes, in s."""
MOVE_PATIENCE: Final = 20.0
"""How long a change waits until replicas have moved, in s; it may have to wait for a broker."""
MORE_PARTITIONS: Final = 2
"""That a topic of the run gets in all; nobody writes to them."""
_LOOK: Final = 0.1


async def churn(context: Context, places: Sequence[Place]) -> None:
    """One change after another until the run stops; every partition ends with as many replicas as
    it had."""
    changes = _Changes(context, places)
    while await context.pause(PAUSE):
        await changes.one()
    await changes.finish()


class _Changes:
    def __init__(self, context: Context, places: Sequence[Place]) -> None:
        self._context = context
        self._places = places
        self._chance = context.random(NAME)
        self._cluster: Cluster = context.cluster()
        self._admin = Admin(self._cluster)
        self._partitions = PartitionAdmin(self._cluster)
        self._names = count(1)
        self._passing: str | None = None
        self._grown: dict[str, int] = {}
        self._shrunk: dict[Place, list[int]] = {}
        """Partitions with a replica less than before, and all those that they had."""

    async def one(self) -> None:
        await self._try(
            self._chance.choice(
                (self._pass_by, self._grow, self._reorder, self._reorder, self._shrink, self._elect)
            )
        )

    async def finish(self) -> None:
        """Leaves nothing behind."""
        for _ in range(len(self._shrunk)):
            await self._try(self._restore)
        if self._passing is not None:
            await self._try(self._pass_by)

    async def _try(self, change: Callable[[], Awaitable[None]]) -> None:
        did, error = change.__name__.strip("_"), None
        try:
            await change()
        except (KafkaError, BrokerUnreachable, TimeoutError) as raised:
            # Whatever it was asked in, the cluster may be busy or headless; the load goes on.
            error = str(raised) or type(raised).__name__
        self._context.history.note(NAME, "admin", INFO, {"did": did, "error": error})

    # -- changes ---------------------------------------------------------------------------------

    async def _pass_by(self) -> None:
        """A topic is made; the next time it is deleted."""
        if self._passing is None:
            self._passing = self._context.topic(f"passing{next(self._names)}")
            await self._admin.create_topic(self._passing, partitions=3)
        else:
            name, self._passing = self._passing, None
            await self._admin.delete_topic(name)

    async def _grow(self) -> None:
        name = self._chance.choice(self._places)[0]
        if self._grown.setdefault(name, 0) < MORE_PARTITIONS:
            self._grown[name] += 1
            partitions = self._context.options.partitions + self._grown[name]
            await self._admin.create_partitions(name, partitions)

    async def _reorder(self) -> None:
        """Another replica is preferred, and leads; where there are more brokers than replicas, they
        move."""
        at = self._chance.choice(self._places)
        if at in self._shrunk:
            return
        replicas = await self._replicas(at)
        self._chance.shuffle(replicas)
        others = sorted(set(self._cluster.nodes) - set(replicas))
        if others:
            replicas[-1] = self._chance.choice(others)
        await self._reassign(at, replicas)
        await self._partitions.elect_leaders([at])

    async def _shrink(self) -> None:
        """A replica goes, and comes back the next time."""
        if self._shrunk:
            await self._restore()
            return
        at = self._chance.choice(self._places)
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
        await self._partitions.elect_leaders(self._places)

    # -- waiting ---------------------------------------------------------------------------------

    async def _replicas(self, at: Place) -> list[int]:
        self._cluster.topics.pop(at[0], None)
        description = (await self._cluster.topic(at[0])).description
        return [
            int(node)
            for row in description.partitions
            if row.partition_index == at[1]
            for node in row.replica_nodes
        ]

    async def _reassign(self, at: Place, replicas: Sequence[int]) -> None:
        """Until it is over; raises TimeoutError, and it goes on."""
        outcome = (await self._partitions.reassign({at: replicas}))[at]
        if outcome is not None:
            raise outcome
        async with asyncio.timeout(MOVE_PATIENCE):
            while at in await self._partitions.reassignments([at]):
                await self._context.wait(_LOOK)
