"""ListOffsets (key 2): finds offsets by timestamp; -1 is latest, -2 earliest, more below.

v1 one offset per partition; v2 isolation level (KIP-98); v4 leader epochs (KIP-320); v5 may return
OFFSET_NOT_AVAILABLE (KIP-207); v6 flexible; v7 timestamp -3, the record of the highest timestamp
(KIP-734); v8 -4, earliest local (KIP-405); v9 -5, latest tiered (KIP-1005); v10 time limit
(KIP-1075); v11 -6, earliest pending upload (KIP-1023).

Errors by partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE,
LEADER_NOT_AVAILABLE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNSUPPORTED_VERSION,
UNSUPPORTED_FOR_MESSAGE_FORMAT, KAFKA_STORAGE_ERROR.
"""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, Int64, String


@message
class ListOffsetsPartition:
    """A partition and a timestamp in ms, or a negative one of special meaning."""

    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64


@message
class ListOffsetsTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[ListOffsetsPartition]


@message
class ListOffsetsRequest:
    """The request; `replica_id` is -1 for consumers, isolation level 1 is read_committed."""

    replica_id: Int32
    isolation_level: Int8 = since(2, default=0)
    topics: Array[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, default=0, ignorable=True)


@message
class ListOffsetsPartitionResponse:
    """The first offset at or after the timestamp; -1 if there is no such record."""

    partition_index: Int32
    error_code: Int16 = field(default=0)
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = since(4, default=-1)


@message
class ListOffsetsTopicResponse:
    """The results of one topic's partitions."""

    name: String
    partitions: Array[ListOffsetsPartitionResponse]


@message
class ListOffsetsResponse:
    """The results, in the order of the request's topics."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[ListOffsetsTopicResponse]


API = Api(
    key=2,
    name="ListOffsets",
    versions=range(1, 12),
    flexible=6,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
)
