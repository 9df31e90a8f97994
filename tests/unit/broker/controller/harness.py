"""A cluster of controllers and brokers without disks or sockets: one store, several sessions."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.control_receiver import ControlReceiver
from barnabas.broker.cluster.registration import (
    prepare_cluster,
    register_broker,
    stored_epochs,
)
from barnabas.broker.cluster.znodes import BrokerEndpoint, BrokerInfo, Restart
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.controller_channel import BrokerClientClosed
from barnabas.broker.controller.rules.leader_election import ElectionPolicy
from barnabas.broker.controller.topic_admin import Defaults
from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.events import EventLog
from barnabas.broker.store.embedded import EmbeddedStore, open_store
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from barnabas.storage.files.files import Files
from tests.support.mem_files import MemFiles
from tests.unit.broker.controller.remote_session import RemoteSession


class FakeReplicas:
    """A recorder of requests; replicas in `broken` cannot serve."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, int], LeaderAndIsrPartitionState] = {}
        self.deleted: list[tuple[str, int]] = []
        self.broken: set[tuple[str, int]] = set()
        self.full_requests = 0

    async def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        if request.type == 2:
            self.full_requests += 1
            self.states.clear()
        topics = []
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                at = (topic.topic_name, state.partition_index)
                self.states[at] = state
                code = ErrorCode.KAFKA_STORAGE_ERROR if at in self.broken else ErrorCode.NONE
                errors.append(
                    LeaderAndIsrPartitionError(
                        partition_index=state.partition_index, error_code=code
                    )
                )
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(topics=topics)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        for topic in request.topic_states:
            for state in topic.partition_states:
                self.states.pop((topic.topic_name, state.partition_index), None)
                self.deleted.append((topic.topic_name, state.partition_index))
        return StopReplicaResponse(partition_errors=[])


class NoConfigs:
    """Topics without overrides."""

    async def load_topics(self, names: Iterable[str]) -> None:
        del names

    def forget_topic(self, name: str) -> None:
        del name


class UnpluggedClient:
    """The client of a broker that is gone."""

    async def leader_and_isr(self, _: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        raise BrokerClientClosed

    async def update_metadata(self, _: UpdateMetadataRequest) -> UpdateMetadataResponse:
        raise BrokerClientClosed

    async def stop_replica(self, _: StopReplicaRequest) -> StopReplicaResponse:
        raise BrokerClientClosed

    async def close(self) -> None:
        """Do nothing: there is no connection."""


@dataclass
class FakeBroker:
    """One incarnation of a broker."""

    info: BrokerInfo
    session: RemoteSession
    cache: MetadataCache
    replicas: FakeReplicas
    receiver: ControlReceiver
    controller: Controller


def accept_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in configs.items() if value is not None}


@dataclass
class FakeCluster:
    store: EmbeddedStore
    brokers: dict[int, FakeBroker] = field(default_factory=dict)
    receivers: dict[int, ControlReceiver | UnpluggedClient] = field(default_factory=dict)
    unclean: set[str] = field(default_factory=set)
    flushing: set[str] = field(default_factory=set)
    session_timeout: float = math.inf
    fatal: list[BaseException] = field(default_factory=list)
    check_configs: Callable[[Mapping[str, str | None]], dict[str, str]] = accept_configs
    require_descriptors: Callable[[int], None] = lambda _: None
    defaults: Defaults = field(default_factory=lambda: Defaults(1, 1))
    slicer: Slicer = field(default_factory=lambda: Slicer(time.monotonic))

    async def start(
        self, broker_id: int, rack: str | None = None, *, restart: Restart = Restart.CLEAN
    ) -> FakeBroker:
        session: Any = RemoteSession(self.store.session(), self.session_timeout)
        cluster_id = await prepare_cluster(session, "cluster")
        endpoint = BrokerEndpoint("PLAINTEXT", "PLAINTEXT", f"host{broker_id}", 9092)
        cache = MetadataCache(cluster_id)
        replicas = FakeReplicas()
        receiver = self.receivers[broker_id] = ControlReceiver(
            replicas, cache, NoConfigs(), lambda: stored_epochs(session, broker_id), self.slicer
        )
        info = BrokerInfo(broker_id, (endpoint,), rack, restart=restart)
        info = await register_broker(session, info, 0)
        receiver.broker_registered(info)
        controller = Controller(
            session,
            broker_id,
            clock=SystemClock(),
            slicer=self.slicer,
            random=Random(broker_id),
            connect=self._connect,
            policy=self._policy,
            defaults=lambda: self.defaults,
            check_configs=lambda configs: self.check_configs(configs),
            require_descriptors=lambda new: self.require_descriptors(new),
            events=EventLog(broker_id, SystemClock()),
            on_fatal=self.fatal.append,
        )
        broker = FakeBroker(info, session, cache, replicas, receiver, controller)
        self.brokers[broker_id] = broker
        await controller.start()
        await until(lambda: cache.ready)
        return broker

    async def kill(self, broker_id: int) -> None:
        """Kill a broker: it is silent until its session ends."""
        broker = self.brokers.pop(broker_id)
        del self.receivers[broker_id]
        await self.store.expire(broker.session.session_id)
        await broker.controller.stop()

    async def lose_session(self, broker_id: int) -> None:
        """End the broker's session; the broker keeps running without a registration."""
        await self.store.expire(self.brokers[broker_id].session.session_id)

    async def renew_session(self, broker_id: int) -> None:
        """Register the broker again, as `Membership` does."""
        broker = self.brokers[broker_id]
        await broker.session.renew()
        store: Any = broker.session
        broker.info = await register_broker(store, broker.info, 0)
        broker.receiver.broker_registered(broker.info)

    async def close(self) -> None:
        for broker in list(self.brokers.values()):
            await broker.controller.stop()
        await self.store.close()

    async def _policy(self, topic: str) -> ElectionPolicy:
        return ElectionPolicy(topic in self.unclean, topic in self.flushing)

    def _connect(self, info: BrokerInfo) -> ControlReceiver | UnpluggedClient:
        return self.receivers.get(info.id, UnpluggedClient())


async def open_cluster(files: Files | None = None, slicer: Slicer | None = None) -> FakeCluster:
    """Return a cluster whose store is on `files`, or on a new disk."""
    store = await open_store(files or MemFiles(), "/metadata", InlineOffload())
    return FakeCluster(store, slicer=slicer or Slicer(time.monotonic))


async def until(condition: Callable[[], object], seconds: float = 5) -> None:
    """Wait until other tasks make the condition true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def eventually(work: Callable[[], Awaitable[object]], seconds: float = 5) -> None:
    """Wait as `until`, for a condition that must be awaited."""
    async with asyncio.timeout(seconds):
        while not await work():  # noqa: ASYNC110
            await asyncio.sleep(0)
