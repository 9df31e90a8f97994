"""DescribeTopicPartitions (key 75): topics page by page (KIP-966).

Topics come in the order of their names; an answer that is full ends with a cursor from which the
next request goes on. Errors by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
"""

from collections.abc import Callable

from barnabas.broker.metadata.cache import NO_LEADER, MetadataCache, PartitionMetadata
from barnabas.broker.metadata.operations import TOPIC_OPERATIONS
from barnabas.broker.metadata.topic_names import INTERNAL_TOPICS, why_unknown
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_topic_partitions import (
    API,
    CursorInResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.protocol.types import ZERO_UUID

__all__ = ["API", "SERVES", "DescribeTopicPartitionsHandler", "error_response"]

SERVES = range(1)


class DescribeTopicPartitionsHandler:
    """Answers from the metadata cache."""

    def __init__(self, cache: MetadataCache, limit: Callable[[], int]) -> None:
        """`limit` tells `max.request.partition.size.limit`."""
        self._cache = cache
        self._limit = limit

    def handle(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> DescribeTopicPartitionsResponse:
        names = self._names(request)
        start_topic, start = "", 0
        if request.cursor is not None:
            start_topic, start = request.cursor.topic_name, request.cursor.partition_index
        left = max(1, min(self._limit(), request.response_partition_limit))
        response = DescribeTopicPartitionsResponse(topics=[])
        for name in names:
            if left <= 0:
                if left == 0:
                    response.next_cursor = CursorInResponse(topic_name=name, partition_index=0)
                break
            first = start if name == start_topic else 0
            topic = self._describe(name, first, first + left, context.listener)
            if topic.error_code and not request.topics:
                continue
            response.topics.append(topic)
            left -= len(topic.partitions)
            known = self._cache.topic(name)
            if known is not None and first + len(topic.partitions) < len(known.partitions):
                response.next_cursor = CursorInResponse(
                    topic_name=name, partition_index=first + len(topic.partitions)
                )
                break
        return response

    def _names(self, request: DescribeTopicPartitionsRequest) -> list[str]:
        cursor = request.cursor
        if cursor is None:
            asked = {topic.name for topic in request.topics} or set(self._cache.topics)
            return sorted(asked)
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        asked = {topic.name for topic in request.topics}
        if asked and cursor.topic_name not in asked:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return sorted(
            name for name in asked or set(self._cache.topics) if name >= cursor.topic_name
        )

    def _describe(
        self, name: str, first: int, end: int, listener: str
    ) -> DescribeTopicPartitionsResponseTopic:
        topic = self._cache.topic(name)
        if topic is None:
            return DescribeTopicPartitionsResponseTopic(
                error_code=why_unknown(name),
                name=name,
                topic_id=ZERO_UUID,
                is_internal=name in INTERNAL_TOPICS,
                partitions=[],
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        return DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[
                self._partition(topic.partitions[index], listener)
                for index in range(first, min(end, len(topic.partitions)))
            ],
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _partition(
        self, partition: PartitionMetadata, listener: str
    ) -> DescribeTopicPartitionsResponsePartition:
        reachable = self._cache.endpoint(partition.leader, listener) is not None
        return DescribeTopicPartitionsResponsePartition(
            partition_index=partition.partition_index,
            leader_id=partition.leader if reachable else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            # The election keeps to the in-sync set: there are no eligible replicas beside it.
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=list(partition.offline_replicas),
        )


def error_response(
    request: DescribeTopicPartitionsRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> DescribeTopicPartitionsResponse:
    """The error for every topic that was named."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(
                error_code=code, name=topic.name, topic_id=ZERO_UUID, partitions=[]
            )
            for topic in request.topics
        ]
    )
