"""A broker of the simulation, with real coordination on fake partitions and sockets."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.cluster.cache import FULL, MetadataCache
from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from barnabas.broker.handlers import add_partitions_to_txn, expect_producers, write_txn_markers
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.events import EventLog
from barnabas.broker.server.repeats import Again
from barnabas.broker.transactions.marker_origins import MarkerOrigins
from barnabas.broker.transactions.transaction_service import TransactionService
from barnabas.coordinator.soon import wait
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages import produce
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.topic_partition import TopicPartition
from tests.simulation.coordination.network import Line
from tests.simulation.coordination.partitions import Replica, Term
from tests.support.steps import taken

if TYPE_CHECKING:
    from tests.simulation.coordination.world import World

NEWER, OLDER = 12, 11
"""Versions of Produce."""


class Snapshot:
    """The metadata that the controller sends to brokers."""

    def __init__(
        self, number: int, leaders: dict[TopicPartition, tuple[int, int]], alive: set[int]
    ) -> None:
        """Leaders with their epochs, by partition; `number` is the controller's."""
        self.number = number
        self.leaders = leaders
        self.alive = alive

    def request(self) -> UpdateMetadataRequest:
        topics: dict[str, list[UpdateMetadataPartitionState]] = {}
        for (topic, index), (leader, epoch) in sorted(self.leaders.items()):
            state = UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=0,
                leader=leader,
                leader_epoch=epoch,
                isr=[],
                zk_version=epoch,
                replicas=[],
            )
            topics.setdefault(topic, []).append(state)
        return UpdateMetadataRequest(
            controller_id=1,
            type=FULL,
            controller_epoch=0,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=name, topic_id=name.encode().ljust(16), partition_states=states
                )
                for name, states in topics.items()
            ],
            live_brokers=[UpdateMetadataBroker(id=each) for each in sorted(self.alive)],
        )


class Node:
    """One broker. When it crashes, another object takes its place."""

    def __init__(self, world: "World", node_id: int, version: int) -> None:
        self.id = node_id
        self.alive = True
        self.version = version
        self.epochs: dict[TopicPartition, int] = {}
        self.replicas: dict[TopicPartition, Replica] = {}
        self._snapshot = 0
        self._world = world
        self._observers: dict[str, Any] = {}
        self.cache = MetadataCache("sim")
        self.coordination = TransactionService(
            lambda: world.config,
            broker_id=node_id,
            cache=self.cache,
            connect=self._connect,
            replicas=self,  # type: ignore[arg-type]
            groups=None,  # type: ignore[arg-type]
            in_touch=lambda: True,
            producer_ids=world.ids,
            transaction_version=lambda: self.version,
            partition_exists=world.exists,
            clock=world,
            offload=world,  # type: ignore[arg-type]
            slicer=Slicer(world.monotonic),
            metrics=BrokerMetrics(Registry()).transactions,
            events=EventLog(node_id, world),
        )
        coordinator = self.coordination.coordinator
        adding = coordinator, None, self.cache
        origins = MarkerOrigins(self.cache)
        marking = self.coordination.writer, origins, True
        self.again: dict[int, Again] = {
            # That of markers needs a log with files.
            add_partitions_to_txn.API.key: partial(add_partitions_to_txn.again, *adding)
        }
        self.handlers: dict[int, Callable[..., Any]] = {
            add_partitions_to_txn.API.key: partial(add_partitions_to_txn.handle, *adding),
            write_txn_markers.API.key: partial(write_txn_markers.handle, *marking),
            expect_producers.API.key: partial(expect_producers.handle, self, origins),
        }

    def _connect(self, broker_id: int) -> Line:
        return Line(self._world, self.id, broker_id)

    # -- as the replica manager --------------------------------------------------------------------

    def observe(self, topic: str, observer: Any) -> None:
        self._observers[topic] = observer

    def find(self, place: tuple[str, int]) -> Replica | None:
        return self.replicas.get(TopicPartition(*place))

    def partition(self, topic: str, index: int) -> Replica:
        replica = self.replicas.get((topic, index))
        if replica is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    # -- messages of the controller ----------------------------------------------------------------

    def told_leader(self, term: Term) -> None:
        """Apply a LeaderAndIsr, which may come late, but not after a later one."""
        if not self.alive or term.epoch <= self.epochs.get(term.place, -1):
            return
        self.epochs[term.place] = term.epoch
        before = self.replicas.pop(term.place, None)
        observer = self._observers.get(term.place[0])
        if before is not None:
            before.resign()
        if term.leader == self.id:
            replica = Replica(self._world.partitions[term.place], term)
            self.replicas[term.place] = replica
            if observer is not None:
                observer.elected(replica)
        elif before is not None and observer is not None:
            observer.resigned(before)

    def told_metadata(self, snapshot: Snapshot) -> None:
        """Apply an UpdateMetadata, which may come late too."""
        if self.alive and snapshot.number > self._snapshot:
            self._snapshot = snapshot.number
            taken(self.cache.apply(snapshot.request()))

    async def die(self) -> None:
        self.alive = False
        for replica in self.replicas.values():
            replica.resign()
            if replica.topic == TRANSACTION_STATE:
                self.coordination.resigned(replica)  # type: ignore[arg-type]
        self.replicas.clear()
        await self.coordination.close()

    # -- Produce ---------------------------------------------------------------------------------

    async def produce(
        self,
        transactional_id: str,
        producer: Producer,
        place: TopicPartition,
        sequence: int,
        value: bytes,
        *,
        adds: bool,
    ) -> None:
        """Append one transactional batch as the Produce handler does, with acks=all."""
        version = NEWER if adds else OLDER
        batch = build_batch(
            [Record(0, self._world.now_ms(), None, value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        try:
            header = read_header(batch)
            verdicts = await wait(
                self.coordination.produce_verification.ask(
                    transactional_id, version, [(TopicPartition(*place), header)]
                )
            )
            verdict = verdicts[place]
            if isinstance(verdict, KafkaError):
                raise verdict
            replica = self.partition(*place)
            appended = replica.append(batch, now_ms=0, guard=verdict)
            await _committed(replica, appended.last_offset + 1)
        except KafkaError as error:
            raise KafkaError(downgrade(produce.API.key, version, error.code)) from None


async def _committed(replica: Replica, offset: int) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(error: KafkaError | None) -> None:
        if not done.done():
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    replica.add_waiter(offset, settle)
    await done
