"""DeleteRecords (key 21)."""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Int16, Int32, Int64, String


@message
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@message
class DeleteRecordsTopic:
    name: String
    partitions: Array[DeleteRecordsPartition]


@message
class DeleteRecordsRequest:
    topics: Array[DeleteRecordsTopic]
    timeout_ms: Int32


@message
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16 = field(default=0)


@message
class DeleteRecordsTopicResult:
    name: String
    partitions: Array[DeleteRecordsPartitionResult]


@message
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = field(default=0)
    topics: Array[DeleteRecordsTopicResult]


API = Api(
    key=21,
    name="DeleteRecords",
    versions=range(3),
    flexible=2,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
)
