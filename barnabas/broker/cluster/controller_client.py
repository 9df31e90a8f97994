"""The client of the controller, which may be on this broker or another."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.cluster.peers import Peer, Peers, PeerUnreachable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    alter_partition,
    controlled_shutdown,
    create_topics,
    envelope,
)
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
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.schema import Api
from barnabas.protocol.topic_partition import TopicPartition

T = TypeVar("T")
ANSWER_S: Final = 30.0
"""Seconds to wait for a response of the controller."""
PATIENCE_S: Final = 5.0
"""The longest wait for a controller, in place of the client whose request is forwarded."""
_PAUSE_S: Final = 0.2
"""Seconds until a controller is looked for again, unless there is news."""

_REFUSED: Final = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
)
"""The errors of an envelope that no controller opens, or that this one cannot open."""


class _ControllerConnection(NamedTuple):
    controller_id: int
    peer: Peer


class LocalController(Protocol):
    """The controller object of this broker, which may be active."""

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        ...

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse: ...

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> list[TopicPartition]: ...

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout: float
    ) -> dict[str, CreatedTopic | KafkaError]: ...


class ControllerClient:
    """The client of the controller. It never repeats a request: only the caller knows if that is
    safe.

    All methods raise NOT_CONTROLLER if no broker is known to be controller, or if the known one
    says that it is not, and BROKER_NOT_AVAILABLE if it cannot be reached. The outcome of the
    request is unknown then.
    """

    def __init__(
        self,
        broker_id: int,
        controller: LocalController,
        cache: MetadataCache,
        peers: Peers,
        is_connected: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_connected` returns False while the metadata store is silent. The store may have ended
        the registration of this broker then, so it proposes no ISR changes."""
        self._broker_id = broker_id
        self._controller = controller
        self._cache = cache
        self._peers = peers
        self._is_connected = is_connected
        self._connections: dict[tuple[int, int], _ControllerConnection] = {}
        self._news = asyncio.Event()
        """Set, and replaced, when the metadata of this broker has changed."""
        self._closing: set[asyncio.Task[None]] = set()
        cache.on_change(self._metadata_changed)

    async def close(self) -> None:
        """Close all connections and send nothing more."""
        connections, self._connections = self._connections, {}
        await asyncio.gather(
            *(connection.peer.close() for connection in connections.values()), *self._closing
        )

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Propose ISR changes; also raises STALE_BROKER_EPOCH."""
        if not self._is_connected():
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        if self._controller.active:
            return await self._local(self._controller.alter_partition(request))
        answer: AlterPartitionResponse = await self._remote(alter_partition.API, request)
        _check(answer.error_code)
        return answer

    async def controlled_shutdown(self, broker_epoch: int) -> list[TopicPartition]:
        """Move leaderships to other brokers; return the partitions that no other broker can lead.

        Also raises STALE_BROKER_EPOCH.
        """
        if self._controller.active:
            return await self._local(
                self._controller.controlled_shutdown(self._broker_id, broker_epoch)
            )
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

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller."""
        return self._controller.active

    async def forward(self, request: EnvelopeRequest, *, kind: int, timeout: float) -> bytes:
        """Have the controller serve a client's request, and return its response with the header.

        `kind` is the API key of the request, and `timeout` the seconds that it may take. Raises
        NOT_CONTROLLER only if no controller has begun with it, and REQUEST_TIMED_OUT if its outcome
        is unknown: it is never sent twice.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(timeout, PATIENCE_S)
        while True:
            try:
                return await self._forward(request, kind, timeout)
            except KafkaError as error:
                if error.code in _REFUSED:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from error
                moves = error.code is ErrorCode.NOT_CONTROLLER and not self.is_here
                if not moves or loop.time() >= deadline:
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(loop.time() + _PAUSE_S, deadline)):
                    await self._news.wait()

    async def _forward(self, request: EnvelopeRequest, kind: int, timeout: float) -> bytes:
        peer = self._connection_for(envelope.API, kind)
        try:
            is_announced = await peer.announces(envelope.API)
        except PeerUnreachable as cause:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(cause)) from cause
        if not is_announced:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the controller is of an older release")
        try:
            answer: EnvelopeResponse = await peer.request(
                envelope.API, request, version=0, timeout=timeout + ANSWER_S
            )
        except PeerUnreachable as cause:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(cause)) from cause
        _check(answer.error_code)
        if answer.response_data is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's envelope is empty")
        return answer.response_data

    async def _local(self, work: Awaitable[T]) -> T:
        """Call the local controller with the same timeout as a remote one; its store may be
        silent."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await work
        except TimeoutError as cause:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE) from cause

    async def _remote(self, api: Api, request: object, timeout: float = ANSWER_S) -> Any:
        try:
            return await self._connection_for(api).request(api, request, timeout=timeout)
        except PeerUnreachable as cause:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(cause)) from cause

    def _connection_for(self, api: Api, kind: int = 0) -> Peer:
        """Return the connection for this kind of request: none waits for a slow response to another
        kind."""
        controller_id = self._cache.controller_id
        if controller_id in (-1, self._broker_id):
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        key = api.key, kind
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = _ControllerConnection(
                controller_id, self._peers.to(controller_id)
            )
        return connection.peer

    def _metadata_changed(self) -> None:
        self._drop_connections()
        self._news.set()
        self._news = asyncio.Event()

    def _drop_connections(self) -> None:
        """Drop connections to a former controller; requests that wait for its response fail."""
        for key, connection in list(self._connections.items()):
            if connection.controller_id != self._cache.controller_id:
                del self._connections[key]
                connection.peer.abort()
                task = asyncio.get_running_loop().create_task(_close(connection.peer))
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
