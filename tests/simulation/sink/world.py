"""Three complete brokers on virtual time, and the port of a sink's driver and tasks on them."""

import asyncio
from ast import literal_eval
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from random import Random
from typing import Any

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.client.two_phase import init_producer_id
from barnabas.pipeline.sink.cluster_port import DRIVER_TIMEOUT_MS, ClusterPort, errors_of_protocol
from barnabas.pipeline.sink.port import Identity, Place, StoredDecision
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.describe_transactions import TransactionState
from barnabas.protocol.records.record import Record
from barnabas.protocol.topic_partition import TopicPartition
from tests.simulation.cluster.faults import Faults
from tests.simulation.cluster.hosts import STORE, HostedLoop, end_tasks
from tests.simulation.cluster.node import BIRTHDAY_MS, Node
from tests.simulation.cluster.stage import BROKERS
from tests.simulation.cluster.workload import PARTITIONS, read_everything
from tests.support.sink.story import Driver, Protocols, Story

TIMEOUT_MS = 30_000
"""The transaction timeout of tasks."""
_REQUEST_TIMEOUT = 20.0
_ENDS_WITHIN = 300.0


class SinkWorld(Faults):
    """The cluster; its drivers and tasks are clients on one host."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed, HostedLoop(seed))
        self.loop.set_exception_handler(lambda _loop, _context: None)
        for node in self.nodes:
            node._keys["transaction.two.phase.commit.enable"] = "true"
        self._clusters: list[Cluster] = []
        self.sinks = 0
        self.alone: Node | None = None
        """The broker that is cut off from the others."""

    def start(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._store_host.spawn(self._serve_store()))
        for node in self.nodes:
            node.start()
        self.run(self._within(60.0, "start", lambda: all(node.ready for node in self.nodes)))

    def close(self) -> None:
        """End all brokers and clients."""
        asyncio.set_event_loop(None)
        end_tasks(self.loop, self.hosts)
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine of a client to its end; the brokers run meanwhile."""
        task = self._clients.spawn(asyncio.wait_for(work, _ENDS_WITHIN))
        return self.loop.run_until_complete(task)

    def cluster(self, nodes: Iterable[Node] = ()) -> Cluster:
        """Return a client that knows these brokers first, by default all that are not cut off."""
        known = list(nodes) or [each for each in self.nodes if each is not self.alone]
        cluster = Cluster(",".join(each.address for each in known), timeout=_REQUEST_TIMEOUT)
        self._clusters.append(cluster)
        return cluster

    async def close_clusters(self) -> None:
        for cluster in self._clusters:
            await cluster.close()
        self._clusters.clear()

    def now(self) -> float:
        return BIRTHDAY_MS / 1000 + self.loop.time()

    # -- faults ----------------------------------------------------------------------------------

    @property
    def is_healthy(self) -> bool:
        """Whether no broker sleeps or is cut off."""
        return self.alone is None and len(self._healthy()) == len(self.nodes)

    def move_leader(self, topic: str, partition: int) -> None:
        """Let another broker lead a partition; that of an id's log moves its coordinator."""
        self.run(self._move_leader(topic, partition))

    async def _move_leader(self, topic: str, partition: int) -> None:
        where = TopicPartition(topic, partition)
        leader = -1
        with suppress(KafkaError, TimeoutError, OSError):
            async with Cluster(self.bootstrap, timeout=_REQUEST_TIMEOUT) as cluster:
                leader = await cluster.leader(topic, partition)
        others = [each for each in BROKERS if each != leader]
        await self._administer(lambda admin: admin.reassign({where: [*others, leader]}))
        await self._administer(lambda admin: admin.elect_leaders([where]))

    def pause(self, index: int) -> None:
        """Stop a broker, until it has lost what it led."""
        node = self.nodes[index]
        assert node.host is not None
        node.host.pause()

    def kill(self, index: int) -> None:
        """Kill a broker; it starts again when all faults end."""
        self.nodes[index].kill()

    def cut_off(self, index: int) -> None:
        """Cut a broker off from the other brokers and the store, but not from clients."""
        self.alone = self.nodes[index]
        self._cut_off(self.alone, STORE)

    def heal(self) -> None:
        """End all faults."""
        self._heal()
        self.alone = None
        self.run(self._within(60.0, "recovery", self._recovered))

    def _recovered(self) -> bool:
        return all(node.ready for node in self.nodes)

    def sleep(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # -- outcomes --------------------------------------------------------------------------------

    def create_topic(self, name: str) -> None:
        async def create() -> None:
            async with Cluster(self.bootstrap, timeout=_REQUEST_TIMEOUT) as cluster:
                await Admin(cluster).create_topic(name, partitions=PARTITIONS, replication_factor=3)

        self.run(create())

    def visible(self, topic: str) -> list[bytes]:
        found = self.run(read_everything(self.bootstrap, topic, read_committed=True))
        return [value for values in found.values() for value in values]

    def still_open(self, sink_id: str) -> list[str]:
        async def ask() -> list[str]:
            async with Cluster(self.bootstrap, timeout=_REQUEST_TIMEOUT) as cluster:
                rows = await TransactionAdmin(cluster).open_under(f"{sink_id}.")
                return [each.transactional_id for each in rows]

        return list(self.run(ask()))


class BrokerPort(ClusterPort):
    """The port of a driver, with the requests of its tasks."""

    def __init__(self, world: SinkWorld, sink_id: str, driver: str, output: str) -> None:
        super().__init__(world.cluster(), sink_id, like=output, now=world.now)
        self.driver = self._driver = driver
        self.output = output
        self._random = Random(f"{sink_id} {driver}")
        self.deposed: ClusterPort | None = None
        """The port from which decisions are read, if this driver reaches a deposed leader."""

    def reach_deposed(self, world: SinkWorld, leader: Node) -> None:
        """Read decisions from this leader from now on, and send the rest to the other brokers."""
        self.deposed = ClusterPort(world.cluster([leader]), self._sink_id, now=world.now)
        self._cluster = world.cluster()
        self._admin = TransactionAdmin(self._cluster)

    async def last_decision(self, before: int | None) -> StoredDecision | None:
        if self.deposed is None:
            return await super().last_decision(before)
        self.deposed._producer = self._producer
        return await self.deposed.last_decision(before)

    @property
    def producer(self) -> Identity:
        return Identity(*self._producer)

    async def first_leader(self) -> int:
        """Return the leader of the decisions topic, which exists then."""
        await self._ensure_topic()
        return await self._cluster.leader(*self._decisions)

    async def state(self, transactional_id: str) -> tuple[str, Identity] | None:
        with errors_of_protocol():
            rows = await self._admin.describe_all([transactional_id])
        row = rows.get(transactional_id)
        return None if row is None else (row.transaction_state, _identity(row))

    async def init(self, transactional_id: str) -> Identity:
        with errors_of_protocol():
            answer = await init_producer_id(self._cluster, transactional_id, TIMEOUT_MS)
        return Identity(*answer.client)

    async def write(self, transactional_id: str, producer: Identity, rows: object) -> Place:
        where = TopicPartition(self.output, self._random.randrange(PARTITIONS))
        record = Record(0, self.now_ms(), None, repr(rows).encode())
        with errors_of_protocol():
            offset = await self._append(
                transactional_id, ProducerIdAndEpoch(*producer), where, record
            )
        return Place(*where, offset)


def _identity(row: TransactionState) -> Identity:
    return Identity(row.producer_id, row.producer_epoch)


class BrokerStory:
    """A story on the brokers of a world, with a sink of its own."""

    def __init__(self, world: SinkWorld, protocols: type[Protocols] = Protocols) -> None:
        world.sinks += 1
        self.world = world
        # The name decides about coordinators: a story is the same in each new world.
        self.name = f"sink{world.sinks}"
        self.output = f"{self.name}-output"
        world.create_topic(self.output)
        self.story = Story(
            lambda driver: BrokerPort(world, self.name, driver, self.output),
            world.run,
            sink_id=self.name,
            protocols=protocols,
        )

    def expire(self) -> None:
        self.story.history.append("the timeout passes")
        self.world.sleep(DRIVER_TIMEOUT_MS / 1000 + 5.0)

    def settle(self) -> None:
        self.world.sleep(1.0)

    def depose(self, driver: Driver) -> None:
        port = driver.port
        assert isinstance(port, BrokerPort)
        leader = self.world.nodes[self.world.run(port.first_leader()) - 1]
        self.world.cut_off(leader.id - 1)
        port.reach_deposed(self.world, leader)
        # The others elect another leader when the session of this one is over.
        self.world.sleep(10.0)

    def open_ids(self) -> list[str]:
        return self.world.still_open(self.name)

    def finish(self) -> None:
        self.world.heal()
        self.story.finish()
        self.settle()
        visible = [literal_eval(each.decode()) for each in self.world.visible(self.output)]
        self.story.judge(visible, self.open_ids())
        self.world.run(self.world.close_clusters())
