"""DescribeTopicPartitions (key 75)."""

from barnabas.protocol.schema import Api, field, message
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
    name: String


@message
class CursorInRequest:
    topic_name: String
    partition_index: Int32


@message
class DescribeTopicPartitionsRequest:
    topics: Array[TopicRequest]
    response_partition_limit: Int32 = field(default=2000)
    cursor: Nullable[CursorInRequest] = field(default=None)


@message
class DescribeTopicPartitionsResponsePartition:
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
    error_code: Int16 = field(default=0)
    name: NullableString
    topic_id: Uuid = field(ignorable=True)
    is_internal: Bool = field(default=False, ignorable=True)
    partitions: Array[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=-2147483648)


@message
class CursorInResponse:
    topic_name: String
    partition_index: Int32


@message
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: Array[DescribeTopicPartitionsResponseTopic]
    next_cursor: Nullable[CursorInResponse] = field(default=None)


API = Api(
    key=75,
    name="DescribeTopicPartitions",
    versions=range(1),
    flexible=0,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
)
