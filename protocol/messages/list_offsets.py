"""ListOffsets (key 2)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, Int64, String


@message
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64


@message
class ListOffsetsTopic:
    name: String
    partitions: Array[ListOffsetsPartition]


@message
class ListOffsetsRequest:
    replica_id: Int32
    isolation_level: Int8 = since(2, default=0)
    topics: Array[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, default=0, ignorable=True)


@message
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16 = field(default=0)
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = since(4, default=-1)


@message
class ListOffsetsTopicResponse:
    name: String
    partitions: Array[ListOffsetsPartitionResponse]


@message
class ListOffsetsResponse:
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
