"""DescribeTopicPartitions (key 75): returns topics page by page (KIP-966).

Errors by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED. Of
the request: INVALID_REQUEST for a page of no partitions.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import (
    Array,
    Bool,
    Int16,
    Int32,
    Nullable,
    NullableArray,
    NullableString,
    String,
    Uuid,
)


@message
class TopicRequest:
    """A topic by name."""

    name: String


@message
class CursorInRequest:
    """The first partition of the page."""

    topic_name: String
    partition_index: Int32


@message
class DescribeTopicPartitionsRequest:
    """The topics to describe, all if empty; a page ends at the limit of partitions."""

    topics: Array[TopicRequest]
    response_partition_limit: Int32 = field(default=2000)
    cursor: Nullable[CursorInRequest] = field(default=None)


@message
class DescribeTopicPartitionsResponsePartition:
    """Leader, ISR and replicas of one partition."""

    error_code: Int16 = field(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1, ignorable=True)
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    eligible_leader_replicas: NullableArray[Int32] = field(default=None)
    last_known_elr: NullableArray[Int32] = field(default=None)
    offline_replicas: Array[Int32] = field(ignorable=True)


@message
class DescribeTopicPartitionsResponseTopic:
    """A topic and its partitions on this page."""

    error_code: Int16 = field(default=0)
    name: NullableString
    topic_id: Uuid = field(ignorable=True)
    is_internal: Bool = field(default=False, ignorable=True)
    partitions: Array[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=-2147483648)


@message
class CursorInResponse:
    """The first partition of the next page."""

    topic_name: String
    partition_index: Int32


@message
class DescribeTopicPartitionsResponse:
    """A page; the cursor of the last page is null."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: Array[DescribeTopicPartitionsResponseTopic]
    next_cursor: Nullable[CursorInResponse] = field(default=None)


API = declare(
    __name__,
    flexible=0,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
)
