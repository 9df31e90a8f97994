"""The faults of a history: each begins, lasts for a random time, and ends."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

from tests.simulation.cluster.hosts import CLIENTS, STORE
from tests.simulation.cluster.node import DirectoryFault, Node
from tests.simulation.cluster.stage import BROKERS, CONVERGES_WITHIN, MOST_SKEW, TOPICS, Stage
from tests.simulation.cluster.workload import PARTITIONS

_STRIKES_WITHIN = 10
"""In units of half a second: an idle broker may not write at all."""
_ENDS_WITHIN = 40.0


class Faults(Stage):
    """The faults, as methods `fault_NAME`."""

    async def _go_wrong(self) -> None:
        end = self.loop.time() + self._faulty_for
        while self.loop.time() < end:
            await self._fault()
            await asyncio.sleep(self.random.choice((0.1, 0.5, 3.0)) * self.random.random())

    async def _fault(self) -> None:
        kind = self.random.choice(self._enabled)
        await getattr(self, f"fault_{kind.replace(' ', '_')}")()

    def _healthy(self) -> list[Node]:
        return [node for node in self.nodes if node.running and not node.paused]

    def _victim(self) -> Node | None:
        """Return a broker whose failure the others survive, None if one has failed already."""
        healthy = self._healthy()
        return self.random.choice(healthy) if len(healthy) == len(self.nodes) else None

    async def _for_a_while(self, undo: Callable[[], None]) -> None:
        await asyncio.sleep(
            self.random.choice((0.2, 1.0, 3.0, 8.0)) * self.random.uniform(0.5, 1.0)
        )
        undo()

    async def fault_kill(self) -> None:
        if (node := self._victim()) is not None:
            self._note(f"kill {node.name}")
            node.kill()
            await self._for_a_while(node.start)

    async def fault_lose_power(self) -> None:
        await self._lose("power", Node.lose_power)

    async def fault_lose_all_power(self) -> None:
        self._note("power of all")
        for node in self.nodes:
            if node.running:
                node.lose_power()
        for node in self.random.sample(self.nodes, len(self.nodes)):
            await self._for_a_while(node.start)

    async def fault_lose_disk(self) -> None:
        await self._lose("disk", Node.lose_disk)

    async def _lose(self, what: str, lose: Callable[[Node], None]) -> None:
        node = self._victim()
        # The other replicas must have the data that the disk may lose: no more is promised.
        if node is not None and self._all_in_sync():
            self._note(f"{what} {node.name}")
            lose(node)
            await self._for_a_while(node.start)
            # The others must learn of the loss before they fail in turn: no more is promised.
            await self._within(
                CONVERGES_WITHIN,
                "in sync after a loss",
                lambda: node.ready and self._all_in_sync(),
            )

    async def fault_bad_disk(self) -> None:
        """Let writes or fsyncs fail in a directory. Then the disk works again, or the machine
        restarts with it or with an empty one."""
        node = self._victim()
        # The other replicas must have the data that the disk may lose, as above.
        if node is None or not self._all_in_sync():
            return
        fault = DirectoryFault(
            call=self.random.choice(("append", "sync")),
            directory=self.random.choice(node.log_dirs),
            error=self.random.choice((errno.EIO, errno.ENOSPC)),
            written=self.random.randrange(200),
            from_then_on=True,
        )
        self._note(f"disk {node.name} {fault.call} {fault.directory}")
        node.fail_disk(fault)
        for _ in range(_STRIKES_WITHIN):
            await asyncio.sleep(0.5)
            if fault.hits:
                break
        if fault.hits and len(node.log_dirs) == 1:
            await self._within(_ENDS_WITHIN, "end of a broker without a disk", lambda: node.ended)
        await self._for_a_while(lambda: None)
        await self._repair(node, fault.directory)
        await self._for_a_while(node.start)
        await self._within(
            CONVERGES_WITHIN, "in sync after a bad disk", lambda: node.ready and self._all_in_sync()
        )

    async def _repair(self, node: Node, directory: str) -> None:
        how = self.random.choice(("ended", "killed", "rebooted", "replaced"))
        self._note(f"{node.name} {how}")
        if how == "ended" and not node.ended:
            await node.stop()
        elif how in ("ended", "killed"):
            node.kill()
        elif how == "rebooted":
            node.lose_power()
        else:
            node.lose_directory(directory)

    async def fault_wrong_clock(self) -> None:
        """Set a broker's wall clock wrong, until another fault sets it or all faults end."""
        node = self.random.choice(self.nodes)
        node.clock.skew = self.random.uniform(-MOST_SKEW, MOST_SKEW)
        self._note(f"clock {node.name} {node.clock.skew:+.1f}")

    async def fault_stop(self) -> None:
        if (node := self._victim()) is not None:
            self._note(f"stop {node.name}")
            await node.stop()
            await self._for_a_while(node.start)

    async def fault_pause(self) -> None:
        node = self._victim()
        if node is not None and node.host is not None:
            self._note(f"pause {node.name}")
            node.host.pause()
            await self._for_a_while(node.host.resume)

    async def fault_partition(self) -> None:
        self._cut_off(self.random.choice(self.nodes), STORE, CLIENTS)
        await self._for_a_while(self.loop.mend)

    async def fault_minority(self) -> None:
        """Cut a broker off from the others and the store; clients still reach it, and it takes
        itself for the leader."""
        self._cut_off(self.random.choice(self.nodes), STORE)
        await self._for_a_while(self.loop.mend)

    def _cut_off(self, alone: Node, *strangers: str) -> None:
        self._note(f"{alone.name} without the others and {strangers}")
        for other in (*(node.name for node in self.nodes if node is not alone), *strangers):
            self.loop.cut(alone.name, other)
            self.loop.cut(other, alone.name)

    async def fault_one_way(self) -> None:
        sender, receiver = self.random.sample([*(n.name for n in self.nodes), CLIENTS], 2)
        self._note(f"nothing from {sender} to {receiver}")
        self.loop.cut(sender, receiver)
        await self._for_a_while(self.loop.mend)

    async def fault_store(self) -> None:
        self._note("store away")
        for node in self.nodes:
            self.loop.cut(node.name, STORE)
        await self._for_a_while(self.loop.mend)

    async def fault_expire(self) -> None:
        node = self.random.choice(self.nodes)
        found = self._store.tree.find(f"/brokers/ids/{node.id}")
        if found is not None:
            self._note(f"expire {node.name}")
            expiring = self._server.expire(found.ephemeral_owner)
            await self._store_host.spawn(_tolerant(expiring))

    async def fault_stalls(self) -> None:
        self._note("packets are lost")
        self.loop.stalls = self.random.choice((0.01, 0.05))
        await self._for_a_while(self._no_stalls)

    async def fault_prefer(self) -> None:
        """Move leaderships to the preferred replicas."""
        self._note("preferred leaders")
        await self._administer(lambda admin: admin.elect_leaders())

    async def fault_reassign(self) -> None:
        """Reorder a partition's replicas, or place them on two brokers for a while."""
        topic, partition = self.random.choice(TOPICS), self.random.randrange(PARTITIONS)
        replicas = self.random.sample(BROKERS, self.random.choice((2, 3)))
        self._note(f"{topic}-{partition} to {replicas}")
        await self._administer(lambda admin: admin.reassign({(topic, partition): replicas}))
        await asyncio.sleep(self.random.uniform(0.5, 4.0))
        everywhere = self.random.sample(BROKERS, 3)
        await self._administer(lambda admin: admin.reassign({(topic, partition): everywhere}))

    def _no_stalls(self) -> None:
        self.loop.stalls = 0.0

    def _heal(self) -> None:
        self._note("heal")
        self.loop.mend()
        self._no_stalls()
        for node in self.nodes:
            node.clock.skew = 0.0
            if not node.running:
                node.start()
            elif node.host is not None and node.paused:
                node.host.resume()


async def _tolerant(work: Awaitable[None]) -> None:
    try:
        await work
    except KeyError:
        return
