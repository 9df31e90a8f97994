"""The receiver of controller requests on every broker: fencing, then execution.

It accepts requests of the newest controller for this registration of the broker. The sender of
another one is no longer controller, has outdated metadata, or has never been a controller: an epoch
above the known one counts only if the metadata store has it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from barnabas.broker.cluster.broker_epochs import RETRY_S, SharedRead
from barnabas.broker.cluster.cache import EPOCH_DURING_DELETE, FULL, MetadataCache
from barnabas.broker.cluster.registration import Epochs
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import StoreError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from barnabas.protocol.steps import Steps

_log = get_logger(__name__)


class ControlledReplicas(Protocol):
    """The part of the replica manager that controller requests need."""

    async def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse: ...

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse: ...


class TopicConfigs(Protocol):
    """The store of the replicas' configurations."""

    async def load_topics(self, names: Iterable[str]) -> None: ...

    def forget_topic(self, name: str) -> None: ...


class ControlReceiver:
    """The receiver of one broker. The local controller uses it as its `BrokerClient`."""

    def __init__(
        self,
        replicas: ControlledReplicas,
        cache: MetadataCache,
        configs: TopicConfigs,
        stored_epochs: Callable[[], Awaitable[Epochs]],
        slicer: Slicer,
    ) -> None:
        """`configs` is told of topics before their logs are opened; `stored_epochs` asks the
        metadata store."""
        self._replicas = replicas
        self._cache = cache
        self._configs = configs
        self._slicer = slicer
        self._loaded: dict[str, bytes] = {}
        self._stored_epochs = SharedRead(stored_epochs)
        self._controller_epoch = 0
        self._broker_epoch = -1
        self._registration = asyncio.Event()
        """Set at the next registration, which has another event."""
        self.has_full_metadata = False
        """Whether a controller has sent full metadata since the registration. Before that, other
        brokers may lead partitions that this one believes to lead."""
        self._turn = asyncio.Lock()

    def broker_registered(self, broker: BrokerInfo) -> None:
        """Record a registration, the first or a later one.

        Before the first one no request is answered: it may be meant for an earlier run.
        """
        self._broker_epoch = broker.epoch
        self.has_full_metadata = False
        registration, self._registration = self._registration, asyncio.Event()
        registration.set()

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        await self._learn(request.controller_epoch, request.broker_epoch)
        async with self._turn:
            error = self._fence(request.controller_epoch, request.broker_epoch)
            if error is not ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=error)
            await self._load_configs(request.topic_states)
            return await self._replicas.apply_leader_and_isr(request)

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        await self._learn(request.controller_epoch, request.broker_epoch)
        async with self._turn:
            error = self._fence(request.controller_epoch, request.broker_epoch)
            if error is ErrorCode.NONE:
                await self._slicer.run(self._cache.apply(request))
                self.has_full_metadata |= request.type == FULL
            return UpdateMetadataResponse(error_code=error)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        await self._learn(request.controller_epoch, request.broker_epoch)
        async with self._turn:
            error = self._fence(request.controller_epoch, request.broker_epoch)
            if error is not ErrorCode.NONE:
                return StopReplicaResponse(error_code=error, partition_errors=[])
            answer = await self._replicas.stop_replica(request)
            await self._slicer.run(self._forget(request))
            return answer

    def _forget(self, request: StopReplicaRequest) -> Steps[None]:
        """Forget the topics whose replicas were all deleted."""
        for topic in request.topic_states:
            yield None
            for state in topic.partition_states:
                if not state.delete_partition or state.leader_epoch != EPOCH_DURING_DELETE:
                    break
                yield None
            else:
                self._configs.forget_topic(topic.topic_name)
                self._loaded.pop(topic.topic_name, None)

    async def close(self) -> None:
        """Do nothing: as the `BrokerClient` for its own broker the receiver has no connection."""

    async def _load_configs(self, topics: Iterable[LeaderAndIsrTopicState]) -> None:
        """Load the configurations of new topics. The store announces later changes."""
        new = {
            topic.topic_name: topic.topic_id
            async for topic in self._slicer.each(topics)
            if self._loaded.get(topic.topic_name) != topic.topic_id
        }
        while new:
            try:
                await self._configs.load_topics(new)
                self._loaded |= new
                return
            except StoreError as error:
                # No log may be opened without its own configuration.
                _log.warning("topic configurations unavailable", reason=repr(error))
                await asyncio.sleep(RETRY_S)

    async def _learn(self, controller_epoch: int, broker_epoch: int) -> None:
        """Ask the store about epochs that are newer than the known ones."""
        await self._registered_as(0)
        while controller_epoch > self._controller_epoch or broker_epoch > self._broker_epoch:
            try:
                stored = await self._stored_epochs()
            except StoreError as error:
                _log.warning("epochs unavailable", reason=repr(error))
                await asyncio.sleep(RETRY_S)
            else:
                self._controller_epoch = max(self._controller_epoch, stored.controller)
                # The controller may have seen the registration before its answer arrived here.
                await self._registered_as(stored.broker)
                return

    async def _registered_as(self, epoch: int) -> None:
        while self._broker_epoch < epoch:
            await self._registration.wait()

    def _fence(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if controller_epoch != self._controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch != self._broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.NONE
