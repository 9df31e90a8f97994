"""From any broker to the controller, which may be on this one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.state import TopicPartition
from barnabas.broker.controller.topics import CreatedTopic, NewTopic
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.peers.peer import Peer, PeerUnreachable
from barnabas.broker.peers.peers import Peers
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_partition, controlled_shutdown, create_topics
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.schema import Api

T = TypeVar("T")
ANSWER_S: Final = 30.0
"""Within which an answer of the controller is expected."""


class _Line(NamedTuple):
    controller_id: int
    peer: Peer


class ToController:
    """Nothing is tried twice here: who asks knows whether it may.

    Everything raises NOT_CONTROLLER where no broker is known to be in office, or where the one that
    was does not say so any more, and BROKER_NOT_AVAILABLE where it cannot be reached; what it did
    is then unknown.
    """

    def __init__(
        self,
        broker_id: int,
        controller: Controller,
        cache: MetadataCache,
        peers: Peers,
        in_touch: Callable[[], bool] = lambda: True,
    ) -> None:
        """A broker that is not `in_touch` with the metadata may have been counted out: it proposes
        no in-sync sets."""
        self._broker_id = broker_id
        self._controller = controller
        self._cache = cache
        self._peers = peers
        self._in_touch = in_touch
        self._lines: dict[int, _Line] = {}
        self._closing: set[asyncio.Task[None]] = set()
        cache.on_change(self._drop_lines)

    async def close(self) -> None:
        """Ask nothing more."""
        lines, self._lines = self._lines, {}
        await asyncio.gather(*(line.peer.close() for line in lines.values()), *self._closing)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Propose in-sync sets; raises STALE_BROKER_EPOCH too."""
        if not self._in_touch():
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        if self._controller.active:
            return await self._local(self._controller.alter_partition(request))
        answer: AlterPartitionResponse = await self._remote(alter_partition.API, request)
        _check(answer.error_code)
        return answer

    async def controlled_shutdown(self, broker_epoch: int) -> list[TopicPartition]:
        """Hand leaderships over; what is left is what nobody else can lead.

        Raises STALE_BROKER_EPOCH too.
        """
        if self._controller.active:
            return await self._local(self._controller.shut_down(self._broker_id, broker_epoch))
        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=broker_epoch)
        answer: ControlledShutdownResponse = await self._remote(controlled_shutdown.API, request)
        _check(answer.error_code)
        return [
            TopicPartition(each.topic_name, each.partition_index)
            for each in answer.remaining_partitions
        ]

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout: float
    ) -> dict[str, CreatedTopic | KafkaError]:
        """See `Controller.create_topics`."""
        if self._controller.active:
            return await self._controller.create_topics(topics, timeout=timeout)
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics], timeout_ms=int(timeout * 1000)
        )
        answer: CreateTopicsResponse = await self._remote(
            create_topics.API, request, timeout + ANSWER_S
        )
        return {each.name: _created(each) for each in answer.topics}

    async def _local(self, work: Awaitable[T]) -> T:
        """Its store may be silent: no more patience with this broker than with another."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await work
        except TimeoutError as cause:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE) from cause

    async def _remote(self, api: Api, request: object, timeout: float = ANSWER_S) -> Any:
        try:
            return await self._line(api).request(api, request, timeout=timeout)
        except PeerUnreachable as cause:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(cause)) from cause

    def _line(self, api: Api) -> Peer:
        """Each kind of request has its own: none waits behind a slow answer to another."""
        controller_id = self._cache.controller_id
        if controller_id in (-1, self._broker_id):
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        line = self._lines.get(api.key)
        if line is None:
            line = self._lines[api.key] = _Line(controller_id, self._peers.to(controller_id))
        return line.peer

    def _drop_lines(self) -> None:
        """Whoever still waits for an answer of the controller before waits in vain."""
        for key, line in list(self._lines.items()):
            if line.controller_id != self._cache.controller_id:
                del self._lines[key]
                line.peer.abort()
                task = asyncio.get_running_loop().create_task(_close(line.peer))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


async def _close(peer: Peer) -> None:
    with suppress(ConnectionError):
        await peer.close()


def _check(code: int) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(code))


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _created(result: CreatableTopicResult) -> CreatedTopic | KafkaError:
    if result.error_code != ErrorCode.NONE:
        return KafkaError(ErrorCode.of(result.error_code), result.error_message)
    return CreatedTopic(result.topic_id, result.num_partitions, result.replication_factor)
