"""The receiving end of the controller's messages on every broker: fencing, then doing.

A message of an older controller than one already heard, or one that was meant for an earlier
incarnation of this broker, is refused: its sender has lost its office or its map.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from barnabas.broker.controller.requests import EPOCH_DURING_DELETE
from barnabas.broker.metadata.cache import FULL, MetadataCache
from barnabas.broker.metadata.store import StoreError
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.broker.observability.logging import get_logger
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

RETRY_S: Final = 0.25
"""Until the store is asked again for what it could not tell."""
_log = get_logger(__name__)


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
        self._loaded: dict[str, bytes] = {}
        self._controller_epoch = 0
        self._broker_epoch = -1
        self._registered = asyncio.Event()
        self.is_told = False
        """Whether a controller has told the broker everything since it registered: while it has
        not, others may lead what this one believes to lead."""
        self._turn = asyncio.Lock()

    def joined(self, broker: BrokerInfo) -> None:
        """The broker is registered, for the first time or anew.

        Before the first time nothing is answered: what comes may be meant for an earlier run.
        """
        self._broker_epoch = broker.epoch
        self.is_told = False
        self._registered.set()

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        await self._registered.wait()
        async with self._turn:
            error = self._fence(request.controller_epoch, request.broker_epoch)
            if error is not ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=error)
            await self._load_configs(request.topic_states)
            return await self._replicas.apply_leader_and_isr(request)

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        await self._registered.wait()
        async with self._turn:
            error = self._fence(request.controller_epoch, request.broker_epoch)
            if error is ErrorCode.NONE:
                self._cache.apply(request)
                self.is_told |= request.type == FULL
            return UpdateMetadataResponse(error_code=error)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        await self._registered.wait()
        async with self._turn:
            error = self._fence(request.controller_epoch, request.broker_epoch)
            if error is not ErrorCode.NONE:
                return StopReplicaResponse(error_code=error, partition_errors=[])
            answer = await self._replicas.stop_replica(request)
            deleted = [
                topic.topic_name
                for topic in request.topic_states
                if all(
                    state.delete_partition and state.leader_epoch == EPOCH_DURING_DELETE
                    for state in topic.partition_states
                )
            ]
            self._configs.forget_topics(deleted)
            for name in deleted:
                self._loaded.pop(name, None)
            return answer

    async def close(self) -> None:
        """As a `Channel` of the broker to itself: there is nothing to give up."""

    async def _load_configs(self, topics: Iterable[LeaderAndIsrTopicState]) -> None:
        """Of topics that are new here; what changes later is told by the store."""
        new = {
            topic.topic_name: topic.topic_id
            for topic in topics
            if self._loaded.get(topic.topic_name) != topic.topic_id
        }
        while new:
            try:
                await self._configs.load_topics(new)
                self._loaded |= new
                return
            except StoreError as error:
                # With another configuration than its own no log may be opened.
                _log.warning("topic configurations out of reach", reason=repr(error))
                await asyncio.sleep(RETRY_S)

    def _fence(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if controller_epoch < self._controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch < self._broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self._controller_epoch = controller_epoch
        return ErrorCode.NONE
