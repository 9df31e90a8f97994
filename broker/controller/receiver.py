"""The receiving end of the controller's messages on every broker: fencing, then doing.

A message of an older controller than one already heard, or one that was meant for an earlier
incarnation of this broker, is refused: its sender has lost its office or its map.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


class Replicas(Protocol):
    """The replica manager, as far as the controller's messages go."""

    async def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse: ...

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse: ...


class TopicConfigs(Protocol):
    """Where the replicas' configurations are kept."""

    async def load_topics(self, names: Iterable[str]) -> None: ...

    def forget_topics(self, names: Iterable[str]) -> None: ...


class ControlReceiver:
    """One for each broker; the local controller uses it as its `Channel`."""

    def __init__(self, replicas: Replicas, cache: MetadataCache, configs: TopicConfigs) -> None:
        """`configs` learns of topics before their logs are opened."""
        self._replicas = replicas
        self._cache = cache
        self._configs = configs
        self._controller_epoch = 0
        self._turn = asyncio.Lock()
        self.broker_epoch = -1
        """Set as soon as the broker is registered."""

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        async with self._turn:
            error = self._fence(request.controller_epoch, request.broker_epoch)
            if error is not ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=error)
            await self._configs.load_topics(topic.topic_name for topic in request.topic_states)
            return await self._replicas.apply_leader_and_isr(request)

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        async with self._turn:
            error = self._fence(request.controller_epoch, request.broker_epoch)
            if error is ErrorCode.NONE:
                self._cache.apply(request)
            return UpdateMetadataResponse(error_code=error)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        async with self._turn:
            error = self._fence(request.controller_epoch, request.broker_epoch)
            if error is not ErrorCode.NONE:
                return StopReplicaResponse(error_code=error, partition_errors=[])
            answer = await self._replicas.stop_replica(request)
            self._configs.forget_topics(
                topic.topic_name
                for topic in request.topic_states
                if all(state.delete_partition for state in topic.partition_states)
            )
            return answer

    def _fence(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if controller_epoch < self._controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self._controller_epoch = controller_epoch
        return ErrorCode.NONE
