"""Three complete brokers, their store and their clients: one seed, one history with its faults.

quiet start -> random faults, repeatedly -> all faults end -> all invariants must hold
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.simulation.cluster.faults import Faults
from tests.simulation.cluster.hosts import HostedLoop, end_tasks
from tests.simulation.cluster.stage import (
    BROKERS,
    CLIENTS_END_WITHIN,
    COMPARE_EVERY,
    CONVERGES_WITHIN,
    TOPICS,
)
from tests.simulation.cluster.workload import (
    PARTITIONS,
    PLAIN,
    PROCESSED,
    TRANSACTED,
    Values,
    judge,
    read_everything,
)


class World(Faults):
    """One history."""

    async def run(self) -> "World":
        """Run the history. Raises AssertionError if an invariant is violated."""
        await self._store_host.spawn(self._serve_store())
        for node in self.nodes:
            node.start()
        history = self._clients.spawn(self._history())
        self.loop.after_turn = lambda: self._look(history)
        try:
            await asyncio.wait([history])
            if self._broken is not None:
                raise self._broken
            history.result()
        finally:
            self.loop.after_turn = lambda: None
        return self

    def _look(self, history: "asyncio.Task[None]") -> None:
        try:
            self.audit.glance(self.nodes)
        except AssertionError as error:
            self._broken = self._broken or error
            history.cancel()

    # -- the history -------------------------------------------------------------------------------

    async def _history(self) -> None:
        await self._create_topics()
        work = [asyncio.ensure_future(each) for each in self._work()]
        comparing = asyncio.ensure_future(self._compare())
        await asyncio.sleep(2.0)
        await self._go_wrong()
        self._heal()
        restoring = asyncio.ensure_future(self._restore_replicas())
        await self._within(CONVERGES_WITHIN, "all in-sync sets full", self._all_in_sync)
        restoring.cancel()
        await asyncio.sleep(2.0)
        self.workload.stop()
        _, unfinished = await asyncio.wait(work, timeout=CLIENTS_END_WITHIN)
        assert not unfinished, "clients find no end"
        for each in work:
            each.result()
        await self._within(CONVERGES_WITHIN, "no transaction open", self._nothing_open)
        await self._within(CONVERGES_WITHIN, "all know who leads", self._all_know)
        comparing.cancel()
        self.audit.compare(self.nodes)
        plain = await read_everything(self.bootstrap, PLAIN, read_committed=False)
        transacted = await read_everything(self.bootstrap, TRANSACTED, read_committed=True)
        processed = await read_everything(self.bootstrap, PROCESSED, read_committed=True)
        told = self.workload.told
        self.loop.note(f"told {len(told.acknowledged)} {len(told.transactions)}")
        self._judge(plain, transacted, processed)

    def _judge(self, plain: Values, transacted: Values, processed: Values) -> None:
        judge(self.workload.told, plain, transacted, processed)

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        """Return what the clients do."""
        return [
            self.workload.idempotent("a"),
            self.workload.transactional("t"),
            self.workload.transactional("u"),
            self.workload.pipeline("p"),
        ]

    async def _create_topics(self) -> None:
        for topic in TOPICS:
            while True:
                try:
                    async with Cluster(self.bootstrap) as cluster:
                        await Admin(cluster).create_topic(
                            topic, partitions=PARTITIONS, replication_factor=3
                        )
                    break
                except (KafkaError, TimeoutError, OSError) as error:
                    if getattr(error, "code", None) is ErrorCode.TOPIC_ALREADY_EXISTS:
                        break
                    assert self.loop.time() < CONVERGES_WITHIN, f"{topic} cannot be created"
                    await asyncio.sleep(0.2)

    async def _compare(self) -> None:
        while True:
            self.audit.compare(self.nodes)
            await asyncio.sleep(COMPARE_EVERY)

    async def _restore_replicas(self) -> None:
        """Assign every partition to all brokers again, after any reassignment."""
        places = [(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
        wanted = dict.fromkeys(places, BROKERS)
        for _ in range(int(CONVERGES_WITHIN)):
            if await self._administer(lambda admin: admin.reassign(wanted)):
                return
            await asyncio.sleep(1.0)


def history(seed: int, kind: type[World] = World, **options: float) -> World:
    """Run the history of a seed."""
    loop = HostedLoop(seed)
    loop.set_exception_handler(lambda _loop, _context: None)
    world = kind(seed, loop, **options)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(world.run())
    finally:
        asyncio.set_event_loop(None)
        end_tasks(loop, world.hosts)
        loop.close()
