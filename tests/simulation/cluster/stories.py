"""Histories with given faults, for situations that random ones reach too seldom."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.simulation.cluster.hosts import STORE, HostedLoop
from tests.simulation.cluster.members import Members, require_exclusive
from tests.simulation.cluster.node import DirectoryFault
from tests.simulation.cluster.stage import CONVERGES_WITHIN
from tests.simulation.cluster.workload import GIVE_UP, PLAIN, Values
from tests.simulation.cluster.world import World


class RestartsWhileTheStoreIsAway(World):
    """A machine loses power, and the store refuses the next start."""

    async def _go_wrong(self) -> None:
        node = self.nodes[0]
        self._note("power n1")
        node.lose_power()
        await asyncio.sleep(2.0)
        node.start()
        await asyncio.sleep(0.1)
        await self.fault_store()


class HearsAnOldControllerLate(World):
    """The network holds back the messages of a controller until another controller is elected."""

    async def _go_wrong(self) -> None:
        controller = next(node for node in self.nodes if node.controls)
        listener, third = (node for node in self.nodes if node is not controller)
        # A broker without a replica of the partition gets the metadata only.
        await self._move(controller.id, third.id)
        await asyncio.sleep(2.0)
        self._note(f"nothing from {controller.name} to {listener.name}")
        self.loop.cut(controller.name, listener.name)
        await self._move(third.id, controller.id)
        self._note(f"{controller.name} without the store")
        self.loop.cut(controller.name, STORE)
        await asyncio.sleep(6.0)
        self.loop.mend()
        await asyncio.sleep(2.0)

    async def _move(self, *replicas: int) -> None:
        await self._administer(lambda admin: admin.reassign({(PLAIN, 0): replicas}))


class SessionsExpireInAQuietCluster(World):
    """One session after another expires while clients write nothing. The brokers register again and
    fetch on over connections that stay open, and packets are late."""

    async def _go_wrong(self) -> None:
        self.workload.stop()
        await asyncio.sleep(2.0)
        self.loop.stalls = 0.05
        for _ in range(20):
            await self.fault_expire()
            await asyncio.sleep(self.random.uniform(0.0, 1.0))
            await self._within(CONVERGES_WITHIN, "all in-sync sets full", self._all_in_sync)


class InTheMinority(World):
    """One broker after another is cut off from the others and the store, but not from clients."""

    async def _go_wrong(self) -> None:
        for alone in self.nodes:
            self._cut_off(alone, STORE)
            await asyncio.sleep(self.random.uniform(3.0, 6.0))
            self.loop.mend()
            await asyncio.sleep(1.0)


class LosesPowerAfterAFailedFsync(World):
    """A disk works again, but data that a failed fsync left behind is in the page cache only."""

    FLUSHES = True

    async def _go_wrong(self) -> None:
        node = self.random.choice(self.nodes)
        self._note(f"disk {node.name} sync")
        node.fail_disk(DirectoryFault("sync", ".log", from_then_on=True))
        await self._within(CONVERGES_WITHIN, "a broker without its disk ends", lambda: node.ended)
        node.kill()
        node.start()
        await self._within(
            CONVERGES_WITHIN, "in sync again", lambda: node.ready and self._all_in_sync()
        )
        await self.fault_prefer()
        await self.fault_lose_all_power()


class MembersComeAndGo(World):
    """Members of both protocols share a group, in which some end without leaving."""

    MORE_KEYS = {
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
    }

    def __init__(self, seed: int, loop: HostedLoop, *, faulty_for: float = 10.0) -> None:
        super().__init__(seed, loop, faulty_for=faulty_for)
        self.members = Members(self.bootstrap, self.random.getrandbits(32))

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [*super()._work(), self._read()]

    async def _read(self) -> None:
        reading = [asyncio.ensure_future(self.members.member(f"m{each}")) for each in range(3)]
        while not self.workload.stopping:
            require_exclusive(self.nodes)
            await asyncio.sleep(0.1)
        # The writer has ended, or gives up soon.
        await asyncio.sleep(2 * GIVE_UP)
        self.members.stop()
        await asyncio.gather(*reading)

    def _judge(self, plain: Values, transacted: Values, processed: Values) -> None:
        super()._judge(plain, transacted, processed)
        unread = {value for values in plain.values() for value in values} - self.members.read
        assert not unread, f"no member of the group has read {sorted(unread)[:5]}"
