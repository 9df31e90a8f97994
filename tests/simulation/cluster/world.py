"""Three whole brokers, their store and their clients: one seed, one history with its faults.

quiet start -> faults, drawn anew again and again -> everything mended -> all must be well
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from barnabas.broker.metadata.embedded import EmbeddedStore, open_store
from barnabas.broker.metadata.served import StoreServer
from barnabas.broker.offload import InlineOffload
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.partition_admin import Outcomes, PartitionAdmin
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.mem_files import MemFiles
from tests.simulation.cluster.audit import Audit, partitions_of
from tests.simulation.cluster.hosts import (
    CLIENTS,
    STORE,
    Host,
    HostedLoop,
    HostServer,
    end_tasks,
)
from tests.simulation.cluster.node import BIRTHDAY_MS, STORE_PATH, Node
from tests.simulation.cluster.workload import (
    PARTITIONS,
    PLAIN,
    PROCESSED,
    TRANSACTED,
    Workload,
    judge,
    read_everything,
)

BROKERS = (1, 2, 3)
KEYS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "metadata.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "4000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
FLUSHING = {"log.flush.interval.messages": "1"}
"""What is acknowledged is on the disks of the in-sync set then, and all may lose power."""
FAULTS = (
    "kill", "stop", "pause", "partition", "minority", "one way", "store", "expire", "lose power",
    "lose disk", "stalls", "prefer", "reassign",
)  # fmt: skip
TOPICS = (PLAIN, TRANSACTED, PROCESSED)
_FLUSHING_SHARE = 0.25
CONVERGES_WITHIN = 60.0
CLIENTS_END_WITHIN = 300.0
"""Each connection to a machine that lost power is waited on for a client's whole timeout."""
COMPARE_EVERY = 0.25


class World:
    """One history."""

    def __init__(self, seed: int, loop: HostedLoop, *, faulty_for: float = 15.0) -> None:
        self.random = Random(seed)
        self.loop = loop
        self.audit = Audit()
        self.faults: list[str] = []
        self._faulty_for = faulty_for
        self._enabled = [each for each in FAULTS if self.random.random() < 0.5] or ["kill"]
        keys = KEYS
        if Random(f"flushing {seed}").random() < _FLUSHING_SHARE:
            keys = KEYS | FLUSHING
            self._enabled.append("lose all power")
        self._clients = Host(loop, CLIENTS)
        self._store_host = Host(loop, STORE)
        self._store: EmbeddedStore
        self._server: StoreServer
        self.nodes = [Node(loop, each, self.random.getrandbits(32), keys) for each in BROKERS]
        self.bootstrap = ",".join(node.address for node in self.nodes)
        self.workload = Workload(
            self.bootstrap, self.random.getrandbits(32), lambda: BIRTHDAY_MS / 1000 + loop.time()
        )
        self._broken: BaseException | None = None

    async def run(self) -> "World":
        """Raises AssertionError where a promise is broken."""
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

    @property
    def hosts(self) -> list[Host]:
        """All there were."""
        return [self._clients, self._store_host, *(h for n in self.nodes for h in n.hosts)]

    def _look(self, history: "asyncio.Task[None]") -> None:
        try:
            self.audit.glance(self.nodes)
        except AssertionError as error:
            self._broken = self._broken or error
            history.cancel()

    async def _serve_store(self) -> None:
        self._store = await open_store(MemFiles(), "/metadata", InlineOffload())
        self._server = StoreServer(self._store)
        factory = self._server.connection
        server = HostServer(self.loop, self._store_host, factory, STORE_PATH)
        server.serving = True
        self.loop.servers[STORE_PATH] = server  # type: ignore[index, assignment]

    # -- the history -------------------------------------------------------------------------------

    async def _history(self) -> None:
        await self._create_topics()
        work = [
            asyncio.ensure_future(self.workload.idempotent("a")),
            asyncio.ensure_future(self.workload.transactional("t")),
            asyncio.ensure_future(self.workload.transactional("u")),
            asyncio.ensure_future(self.workload.pipeline("p")),
        ]
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
        judge(told, plain, transacted, processed)

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
                    assert self.loop.time() < CONVERGES_WITHIN, f"{topic} cannot be made"
                    await asyncio.sleep(0.2)

    async def _compare(self) -> None:
        while True:
            self.audit.compare(self.nodes)
            await asyncio.sleep(COMPARE_EVERY)

    async def _within(self, seconds: float, what: str, reached: Callable[[], bool]) -> None:
        end = self.loop.time() + seconds
        while not reached():
            assert self.loop.time() < end, f"not within {seconds:g} s: {what}"
            for node in self.nodes:
                if (failure := node.failure()) is not None:
                    raise AssertionError(f"{node.name} failed") from failure
            await asyncio.sleep(0.1)

    def _all_in_sync(self) -> bool:
        leading = [p for node in self.nodes if node.running for p in partitions_of(node)]
        led = [each for each in leading if each.is_leader]
        places = {(each.topic, each.index) for each in leading}
        return len(led) == len(places) >= len(TOPICS) * PARTITIONS and all(
            len(each.isr) == len(BROKERS) for each in led
        )

    def _nothing_open(self) -> bool:
        return all(
            each.log.last_stable_offset == each.log.log_end_offset
            for node in self.nodes
            for each in partitions_of(node)
            if each.is_leader and each.topic in TOPICS
        )

    def _all_know(self) -> bool:
        caches = [node.cache for node in self.nodes]
        return all(
            (known := cache.partition(each.topic, each.index)) is not None
            and (known.leader, known.leader_epoch) == (node.id, each.leader_epoch)
            for node in self.nodes
            for each in partitions_of(node)
            if each.is_leader
            for cache in caches
        )

    # -- faults ------------------------------------------------------------------------------------

    async def _go_wrong(self) -> None:
        end = self.loop.time() + self._faulty_for
        while self.loop.time() < end:
            await self._fault()
            await asyncio.sleep(self.random.choice((0.1, 0.5, 3.0)) * self.random.random())

    async def _fault(self) -> None:
        kind = self.random.choice(self._enabled)
        await getattr(self, f"fault_{kind.replace(' ', '_')}")()

    def _note(self, what: str) -> None:
        self.faults.append(what)
        self.loop.note(f"fault: {what}")

    def _healthy(self) -> list[Node]:
        return [node for node in self.nodes if node.running and not node.paused]

    def _victim(self) -> Node | None:
        """Somebody, while the others can go on: what the promises are about."""
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
        # What its disk may lose must be elsewhere: nobody promises more.
        if node is not None and self._all_in_sync():
            self._note(f"{what} {node.name}")
            lose(node)
            await self._for_a_while(node.start)
            # Nor that the others may go before they know that it has not all it had.
            await self._within(
                CONVERGES_WITHIN,
                "in sync after a loss",
                lambda: node.ready and self._all_in_sync(),
            )

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
        """Clients still find it, and it does not know that it is the leader of nothing."""
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
        """Leaderships go home."""
        self._note("preferred leaders")
        await self._administer(lambda admin: admin.elect_leaders())

    async def fault_reassign(self) -> None:
        """A partition gets its replicas in another order, or on two brokers for a while."""
        topic, partition = self.random.choice(TOPICS), self.random.randrange(PARTITIONS)
        replicas = self.random.sample(BROKERS, self.random.choice((2, 3)))
        self._note(f"{topic}-{partition} to {replicas}")
        await self._administer(lambda admin: admin.reassign({(topic, partition): replicas}))
        await asyncio.sleep(self.random.uniform(0.5, 4.0))
        everywhere = self.random.sample(BROKERS, 3)
        await self._administer(lambda admin: admin.reassign({(topic, partition): everywhere}))

    async def _restore_replicas(self) -> None:
        """Every partition on every broker again, whatever was asked for before."""
        places = [(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
        wanted = dict.fromkeys(places, BROKERS)
        for _ in range(int(CONVERGES_WITHIN)):
            if await self._administer(lambda admin: admin.reassign(wanted)):
                return
            await asyncio.sleep(1.0)

    async def _administer(self, work: Callable[[PartitionAdmin], Awaitable[Outcomes]]) -> bool:
        try:
            async with Cluster(self.bootstrap, timeout=10.0) as cluster:
                outcomes = await work(PartitionAdmin(cluster))
        except (KafkaError, TimeoutError, OSError) as error:
            self.loop.note(f"refused: {error!r}")
            return False
        return not any(outcomes.values())

    def _no_stalls(self) -> None:
        self.loop.stalls = 0.0

    def _heal(self) -> None:
        self._note("heal")
        self.loop.mend()
        self._no_stalls()
        for node in self.nodes:
            if not node.running:
                node.start()
            elif node.host is not None and node.paused:
                node.host.resume()


async def _tolerant(work: Awaitable[None]) -> None:
    try:
        await work
    except KeyError:
        return


def history(seed: int, kind: type[World] = World, **options: float) -> World:
    """Runs the history of a seed."""
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
