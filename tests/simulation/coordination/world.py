"""Three brokers whose leaders and coordinators move, producers of both protocols, and one seed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.topic_partition import TopicPartition
from tests.simulation.coordination.audit import ClusterAudit
from tests.simulation.coordination.node import Node, Snapshot
from tests.simulation.coordination.partitions import NOBODY, Replicated
from tests.simulation.transactions.broker import Ids
from tests.simulation.transactions.client import TIMEOUT_MS, Client, LostError
from tests.support.virtual_loop import VirtualLoop

NODES = (1, 2, 3)
WALL_MS = 1_700_000_000_000
PATIENCE_S = 3.0
"""Seconds until a client retries on another connection."""
LONGEST_S = 600.0
"""The virtual seconds after which a history has failed to end."""
CALM_S = 3 * TIMEOUT_MS / 1000


class World:
    """The whole state of a history, and its next event. Call `run` once, on a virtual loop."""

    def __init__(self, loop: VirtualLoop, seed: int, *, faults: bool = True) -> None:
        self.rng = rng = Random(seed)
        self._loop = loop
        self._faults = faults
        self.places: list[TopicPartition] = [("t", index) for index in range(3)]
        self._logs = [(TRANSACTION_STATE, index) for index in range(2)]
        self.partitions = {place: Replicated(self, place) for place in self.places + self._logs}
        # Attributes that the producers of `tests.simulation.transactions` use.
        self.registers = rng.random() < 0.3
        self.bumps = rng.random() < 0.5
        self.abandons = 0.1 if faults else 0.0
        self.gives_up = rng.choice((0.0, 0.5))
        self.brokers = self
        self._versions = rng.choice(([1], [2], [2], [1, 2], [0, 1, 2]))
        self.config = BrokerConfig.from_properties(
            {
                "log.dirs": "/data",
                "transaction.blocking.max.wait.ms": str(rng.choice((0, 100))),
                "transaction.state.log.num.partitions": str(len(self._logs)),
            }
        )
        self.ids = Ids()
        self.counted: Counter[str] = Counter()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._connections = 0
        self._snapshots = 0
        self.faults: list[BaseException] = []
        self.nodes = {each: Node(self, each, self._versions[0]) for each in NODES}
        self.clients: list[Client] = []
        self.audit = ClusterAudit(self)

    # -- the platform ------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return WALL_MS + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    async def submit(self, _lane: str, work: Callable[[], Any]) -> Any:
        """Run the work later: the offload's thread takes time."""
        await asyncio.sleep(self.latency())
        return work()

    async def exists(self, topic: str, index: int) -> bool:
        return (topic, index) in self.partitions

    def latency(self) -> float:
        return self.rng.uniform(0.0005, 0.02)

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._loop.call_later(seconds, callback)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.faults.append(fault)

    def fate(self) -> str:
        """Draw the fate of a request."""
        draw = self.rng.random() if self._faults else 1.0
        return (
            "lost"
            if draw < 0.04
            else "stalled"
            if draw < 0.08
            else "unanswered"
            if draw < 0.12
            else "delivered"
        )

    def reaches(self, source: int, target: int) -> bool:
        return self.nodes[source].alive and self.nodes[target].alive

    def note(self, what: str) -> None:
        self._loop.note(what)

    def committed(self, partition: Replicated) -> None:
        """Audit the records of a partition that were committed."""
        self._loop.note(f"{partition.place} {partition.epoch} {partition.committed}")
        self.audit.look(partition)

    # -- requests of producers ---------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Return the transaction.version that some broker reports."""
        return self.rng.choice([each for each in self.nodes.values() if each.alive]).version

    def connect(self) -> int:
        self._connections += 1
        return self._connections

    def coordinator(self) -> TransactionCoordinator:
        return cast(TransactionCoordinator, _Coordinators(self))

    def node_for(self, place: TopicPartition) -> Node:
        """Return the broker that a client takes for the leader. Raises LostError if it is dead."""
        leader = self.partitions[place].leader
        if leader == NOBODY or self.rng.random() < 0.1:
            leader = self.rng.choice(NODES)
        node = self.nodes[leader]
        if not node.alive:
            raise LostError
        return node

    async def produce(
        self, key: str, producer: Any, place: TopicPartition, *args: Any, pause: Any, **options: Any
    ) -> None:
        del pause
        await self.node_for(place).produce(key, producer, place, *args, **options)

    def pause(self) -> "Coroutine[Any, Any, None]":
        return asyncio.sleep(self.rng.uniform(0.01, 0.2))

    def way_back(self) -> None:
        """Do nothing: leaders have links of their own here."""

    def post_request(
        self,
        client: Client,
        what: str,
        ask: Callable[[int], Any],
        connection: int,
        *,
        to_leader: bool,  # noqa: ARG002
    ) -> None:
        assert client.waits is not None
        self.spawn(self._exchange(client, what, ask, connection, client.waits))

    async def _exchange(
        self,
        client: Client,
        what: str,
        ask: Callable[[int], Any],
        connection: int,
        waits: "asyncio.Future[Any]",
    ) -> None:
        self.later(PATIENCE_S, lambda: _give_up(waits))
        await asyncio.sleep(self.latency())
        fate = self.fate()
        if fate != "delivered":
            self._loop.note(f"{client.name} {what} is {fate}")
        if fate == "lost":
            return
        if fate == "stalled":
            await asyncio.sleep(self.rng.uniform(0, 2 * PATIENCE_S))
        try:
            answer = ask(connection)
            if asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
                answer = await answer
        except KafkaError as error:
            answer = error
        except LostError:
            return
        self._loop.note(f"{client.name} {what} -> {_text(answer)}")
        self.audit.answered(client, what, answer)
        await asyncio.sleep(self.latency())
        if fate == "unanswered" or waits.done():
            return
        if isinstance(answer, KafkaError):
            waits.set_exception(answer)
        else:
            waits.set_result(answer)

    # -- a run -----------------------------------------------------------------------------------

    async def run(self) -> "World":
        """Run all events, end the faults, and judge. Raises AssertionError."""
        for place in self.partitions:
            self._move(place, self.rng.choice(NODES))
        names = self.rng.choice((("x", "x"), ("x", "y"), ("x", "y", "z")))
        self.clients = [
            Client(self, f"c{at}", name, self.rng.randint(2, 8))  # type: ignore[arg-type]
            for at, name in enumerate(names)
        ]
        sweeping = self._loop.create_task(self._sweep())
        troubles = self._loop.create_task(self._trouble()) if self._faults else None
        await asyncio.wait([each.task for each in self.clients], timeout=LONGEST_S)
        assert all(each.task.done() for each in self.clients), "the clients never come to an end"
        if troubles is not None:
            troubles.cancel()
        await self._calm_down()
        sweeping.cancel()
        assert not self.faults, self.faults
        self.audit.judge(self.clients)
        return self

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            for node in self.nodes.values():
                await node.coordination.coordinator.abort_timed_out()

    async def _calm_down(self) -> None:
        self._faults = False
        for partition in self.partitions.values():
            partition.slow = False
        for node in list(self.nodes.values()):
            if not node.alive:
                self._restart(node.id)
            for replica in node.replicas.values():
                replica.refusal = None
        for place, partition in self.partitions.items():
            if partition.leader == NOBODY:
                self._move(place, self.rng.choice(NODES))
        await asyncio.sleep(CALM_S)

    # -- faults ------------------------------------------------------------------------------------

    async def _trouble(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(0.01, 1.0))
            kind = self.rng.choice(
                (
                    "move",
                    "move",
                    "move",
                    "offline",
                    "slow",
                    "refuse",
                    "heal",
                    "heal",
                    "version",
                    "kill",
                )
            )
            self.counted[kind] += 1
            await self._disturb(kind, self.rng.choice(list(self.partitions)))

    async def _disturb(self, kind: str, place: TopicPartition) -> None:
        partition = self.partitions[place]
        alive = [each.id for each in self.nodes.values() if each.alive]
        self._loop.note(f"{kind} {place}")
        if kind == "move":
            self._move(place, self.rng.choice(alive))
        elif kind == "offline":
            self._move(place, NOBODY)
        elif kind == "slow":
            partition.slow = True
        elif kind == "refuse" and partition.leader in alive:
            replica = self.nodes[partition.leader].replicas.get(place)
            if replica is not None:
                replica.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        elif kind == "heal":
            self._heal(alive)
        elif kind == "version":
            self._finalize(self.rng.choice(self._versions))
        elif kind == "kill" and len(alive) > 1 and self.rng.random() < 0.5:
            await self._kill(self.rng.choice(alive))

    def _heal(self, alive: list[int]) -> None:
        for place, partition in self.partitions.items():
            partition.slow = False
            if partition.leader == NOBODY:
                self._move(place, self.rng.choice(alive))
            elif (replica := self.nodes[partition.leader].replicas.get(place)) is not None:
                replica.refusal = None
        for node in list(self.nodes.values()):
            if not node.alive:
                self._restart(node.id)

    def _finalize(self, version: int) -> None:
        """Let each broker learn of the version from the store after its own delay."""
        for node in self.nodes.values():
            self.later(self.rng.uniform(0, 3), lambda node=node: setattr(node, "version", version))

    def _move(self, place: TopicPartition, leader: int) -> None:
        """Elect a leader; every broker learns of it in two messages, sooner or later."""
        term = self.partitions[place].elect(leader)
        snapshot = self._snapshot()
        for node in self.nodes.values():
            self.later(self._until_told(), lambda node=node: node.told_leader(term))
            self.later(self._until_told(), lambda node=node: node.told_metadata(snapshot))

    def _until_told(self) -> float:
        return self.rng.choice((0.001, 0.01, 0.1, 1.0)) * self.rng.random()

    def _snapshot(self) -> Snapshot:
        leaders = {place: (each.leader, each.epoch) for place, each in self.partitions.items()}
        self._snapshots += 1
        return Snapshot(
            self._snapshots, leaders, {each.id for each in self.nodes.values() if each.alive}
        )

    async def _kill(self, node_id: int) -> None:
        await self.nodes[node_id].die()
        alive = [each.id for each in self.nodes.values() if each.alive]
        for place, partition in self.partitions.items():
            if partition.leader == node_id:
                self._move(place, self.rng.choice([*alive, NOBODY]))

    def _restart(self, node_id: int) -> None:
        node = self.nodes[node_id] = Node(self, node_id, self.rng.choice(self._versions))
        snapshot = self._snapshot()
        for each in self.nodes.values():
            self.later(self._until_told(), lambda each=each: each.told_metadata(snapshot))
        for place, partition in self.partitions.items():
            node.epochs[place] = partition.epoch


class _Coordinators:
    """The coordinator of a request's transactional id, at the broker where the client expects
    it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(request: Any) -> Any:
            key = request.transactional_id
            index = partition_for(key, self._world.config.transaction_state_log_num_partitions)
            node = self._world.node_for((TRANSACTION_STATE, index))
            return getattr(node.coordination.coordinator, name)(request)

        return ask


def _give_up(waits: "asyncio.Future[Any]") -> None:
    if not waits.done():
        waits.set_exception(LostError())


def _text(answer: Any) -> str:
    return answer.code.name if isinstance(answer, KafkaError) else str(answer)
