"""OffsetForLeaderEpoch (key 23)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Int16, Int32, Int64, String


@message
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = field(default=-1, ignorable=True)
    leader_epoch: Int32


@message
class OffsetForLeaderTopic:
    topic: String
    partitions: Array[OffsetForLeaderPartition]


@message
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: Array[OffsetForLeaderTopic]


@message
class EpochEndOffset:
    error_code: Int16 = field(default=0)
    partition: Int32
    leader_epoch: Int32 = field(default=-1, ignorable=True)
    end_offset: Int64 = field(default=-1)


@message
class OffsetForLeaderTopicResult:
    topic: String
    partitions: Array[EpochEndOffset]


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: Array[OffsetForLeaderTopicResult]


API = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    versions=range(2, 5),
    flexible=4,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
)
