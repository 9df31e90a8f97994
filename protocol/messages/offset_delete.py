"""OffsetDelete (key 47)."""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Int16, Int32, String


@message
class OffsetDeleteRequestPartition:
    partition_index: Int32


@message
class OffsetDeleteRequestTopic:
    name: String
    partitions: Array[OffsetDeleteRequestPartition]


@message
class OffsetDeleteRequest:
    group_id: String
    topics: Array[OffsetDeleteRequestTopic]


@message
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16 = field(default=0)


@message
class OffsetDeleteResponseTopic:
    name: String
    partitions: Array[OffsetDeleteResponsePartition]


@message
class OffsetDeleteResponse:
    error_code: Int16 = field(default=0)
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: Array[OffsetDeleteResponseTopic]


API = Api(
    key=47,
    name="OffsetDelete",
    versions=range(1),
    flexible=None,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
)
