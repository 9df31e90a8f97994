"""Metadata (key 3): who leads what, and where the brokers are.

v1 can ask for no topic, v4 can forbid creation, v5 has offline replicas, v7 leader epochs, v8
authorized operations (KIP-430; v11 leaves the cluster's to DescribeCluster), v10 shows topic ids,
v12 takes them, v13 has an error of the whole answer. Errors by topic: UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION; by partition: LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND.

A topic that asking creates is there when the answer comes; Kafka answers at once that it does not
know the topic, and its clients come again.
"""

from collections.abc import Awaitable, Callable, Iterable

from barnabas.broker.metadata.cache import (
    NO_LEADER,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from barnabas.broker.metadata.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from barnabas.broker.metadata.topic_names import INTERNAL_TOPICS, why_unknown
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.metadata import (
    API,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.types import ZERO_UUID

__all__ = ["API", "SERVES", "MetadataHandler", "error_response"]

SERVES = range(14)
_IDS_SINCE = 12
_OPERATIONS = range(8, 11)


class MetadataHandler:
    """Answers from the metadata cache, once that has been filled."""

    def __init__(
        self,
        cache: MetadataCache,
        *,
        auto_create: Callable[[], bool],
        create: Callable[[Iterable[str]], Awaitable[None]],
    ) -> None:
        """`auto_create` tells `auto.create.topics.enable`. `create` makes topics with default
        settings; those that it cannot make stay unknown."""
        self._cache = cache
        self._auto_create = auto_create
        self._create = create

    async def handle(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        version = context.api_version
        _check(request, version)
        if not self._cache.ready:
            # Saying "unknown topic" now would make producers forget their sequence numbers.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        wants_operations = request.include_topic_authorized_operations
        topics = []
        if request.topics is None or (version == 0 and not request.topics):
            topics = [self._topic(topic, context) for topic in self._cache.topics.values()]
        elif any(topic.topic_id != ZERO_UUID for topic in request.topics):
            # As in Kafka, a request that has any id is one for ids.
            ids = dict.fromkeys(topic.topic_id for topic in request.topics)
            topics = [self._by_id(each, context) for each in ids if each != ZERO_UUID]
        else:
            names = list(dict.fromkeys(topic.name or "" for topic in request.topics))
            if request.allow_auto_topic_creation and self._auto_create():
                await self._create_missing(names)
            topics = [self._by_name(name, context) for name in names]
        if wants_operations:
            for answer in topics:
                if answer.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                    answer.topic_authorized_operations = TOPIC_OPERATIONS
        wants_operations = version in _OPERATIONS and request.include_cluster_authorized_operations
        return MetadataResponse(
            brokers=self._brokers(context.listener),
            cluster_id=self._cache.cluster_id,
            controller_id=self._cache.controller_id,
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
        )

    async def _create_missing(self, names: Iterable[str]) -> None:
        missing = [
            name
            for name in names
            if self._cache.topic(name) is None and why_unknown(name) is not _INVALID
        ]
        if missing:
            await self._create(missing)

    def _brokers(self, listener: str) -> list[MetadataResponseBroker]:
        return [
            MetadataResponseBroker(
                node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker in self._cache.brokers.values()
            if (endpoint := broker.endpoints.get(listener)) is not None
        ]

    def _by_id(self, topic_id: bytes, context: RequestContext) -> MetadataResponseTopic:
        topic = self._cache.topic_by_id(topic_id)
        if topic is not None:
            return self._topic(topic, context)
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[]
        )

    def _by_name(self, name: str, context: RequestContext) -> MetadataResponseTopic:
        topic = self._cache.topic(name)
        if topic is not None:
            return self._topic(topic, context)
        return MetadataResponseTopic(
            error_code=why_unknown(name),
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
        )

    def _topic(self, topic: TopicMetadata, context: RequestContext) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[
                self._partition(partition, context) for partition in topic.partitions.values()
            ],
        )

    def _partition(
        self, partition: PartitionMetadata, context: RequestContext
    ) -> MetadataResponsePartition:
        listener, version = context.listener, context.api_version
        replicas, isr = list(partition.replicas), list(partition.isr)
        error, leader = ErrorCode.NONE, partition.leader
        if self._cache.endpoint(leader, listener) is None:
            if leader in self._cache.brokers:
                error = downgrade(API.key, version, ErrorCode.LISTENER_NOT_FOUND)
            else:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        if version == 0:
            # Clients of that time take every replica they are told of for alive.
            replicas = [each for each in replicas if self._reachable(each, listener)]
            isr = [each for each in isr if self._reachable(each, listener)]
            fewer = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
            if fewer and error is ErrorCode.NONE:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=partition.partition_index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=list(partition.offline_replicas),
        )

    def _reachable(self, broker_id: int, listener: str) -> bool:
        return self._cache.endpoint(broker_id, listener) is not None


_INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION


def _check(request: MetadataRequest, version: int) -> None:
    if version < _IDS_SINCE and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ()
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def error_response(
    request: MetadataRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> MetadataResponse:
    """The error for every topic that was asked for; from v13 on also for the whole."""
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=code, name=topic.name, topic_id=topic.topic_id, partitions=[]
            )
            for topic in request.topics or ()
        ],
        error_code=code,
    )
