"""DescribeTopicPartitions (key 75): topics page by page (KIP-966).

Topics are sorted by name; a full response ends with a cursor, with which the next request
continues. Errors by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop
from operator import attrgetter

from barnabas.broker.cluster.cache import NO_LEADER, MetadataCache, PartitionMetadata
from barnabas.broker.cluster.operations import TOPIC_OPERATIONS
from barnabas.broker.cluster.topic_names import INTERNAL_TOPICS, why_unknown
from barnabas.broker.security.rights import (
    DESCRIBE,
    HIDDEN_OF_ALL,
    TOPIC,
    Each,
    Need,
    Operations,
    Rights,
)
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
from barnabas.protocol.steps import Steps, in_steps
from barnabas.protocol.types import ZERO_UUID

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    inside=(Need(DESCRIBE, TOPIC, "name", without=HIDDEN_OF_ALL),),
    each=Each("topics", (), lambda topic, code, _: _refused(topic.name, code), "topics"),
    operations=(Operations("topic_authorized_operations", TOPIC, "topics", "name"),),
)


def handle(
    cache: MetadataCache,
    limit: Callable[[], int],
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
) -> Steps[DescribeTopicPartitionsResponse]:
    """Answer from the metadata cache; `limit` returns `max.request.partition.size.limit`."""
    names = yield from _names(cache, request)
    start_topic, start = "", 0
    if request.cursor is not None:
        start_topic, start = request.cursor.topic_name, request.cursor.partition_index
    left = max(1, min(limit(), request.response_partition_limit))
    response = DescribeTopicPartitionsResponse(topics=[])
    refused = []
    for name in names:
        # Before the cursor: it must not name a hidden topic.
        if not context.allows(DESCRIBE, TOPIC, name, log_denied=bool(request.topics)):
            if request.topics:
                refused.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            yield None
            continue
        if left <= 0:
            if left == 0:
                response.next_cursor = CursorInResponse(topic_name=name, partition_index=0)
            break
        first = start if name == start_topic else 0
        yield None
        topic = yield from _describe(cache, name, first, first + left, context.listener)
        if topic.error_code and not request.topics:
            continue
        response.topics.append(topic)
        left -= len(topic.partitions)
        known = cache.topic(name)
        if known is not None and first + len(topic.partitions) < len(known.partitions):
            response.next_cursor = CursorInResponse(
                topic_name=name, partition_index=first + len(topic.partitions)
            )
            break
    response.topics += refused
    return response


def _names(cache: MetadataCache, request: DescribeTopicPartitionsRequest) -> Steps[Iterator[str]]:
    """Return the names to describe, in order; the heap sorts those that the response has."""
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    asked = set((yield from in_steps(attrgetter("name"), request.topics)))
    if cursor is not None and asked and cursor.topic_name not in asked:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    names = []
    for name in asked or list(cache.topics):
        if cursor is None or name >= cursor.topic_name:
            names.append(name)
        yield None
    heapify(names)
    return _in_order(names)


def _in_order(heap: list[str]) -> Iterator[str]:
    while heap:
        yield heappop(heap)


def _describe(
    cache: MetadataCache, name: str, first: int, end: int, listener: str
) -> Steps[DescribeTopicPartitionsResponseTopic]:
    topic = cache.topic(name)
    if topic is None:
        return DescribeTopicPartitionsResponseTopic(
            error_code=why_unknown(name),
            name=name,
            topic_id=ZERO_UUID,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def describe(partition: PartitionMetadata) -> DescribeTopicPartitionsResponsePartition:
        return _partition(cache, partition, listener)

    wanted = [topic.partitions[index] for index in range(first, min(end, len(topic.partitions)))]
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(yield from in_steps(describe, wanted)),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    cache: MetadataCache, partition: PartitionMetadata, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    reachable = cache.endpoint(partition.leader, listener) is not None
    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition.partition_index,
        leader_id=partition.leader if reachable else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        # Leaders are elected from the ISR, so there are no eligible replicas outside of it.
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=list(partition.offline_replicas),
    )


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=ZERO_UUID, partitions=[]
    )
