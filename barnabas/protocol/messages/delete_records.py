"""DeleteRecords (key 21): advances the log start offset (KIP-107).

v2 flexible.

Errors by partition: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
POLICY_VIOLATION, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Int16, Int32, Int64, String


@message
class DeleteRecordsPartition:
    """A partition whose records below `offset` are deleted; -1 is the high watermark."""

    partition_index: Int32
    offset: Int64


@message
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[DeleteRecordsPartition]


@message
class DeleteRecordsRequest:
    """The request; `timeout_ms` bounds the wait for the replicas."""

    topics: Array[DeleteRecordsTopic]
    timeout_ms: Int32


@message
class DeleteRecordsPartitionResult:
    """The lowest log start offset among the replicas; -1 with an error."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16 = field(default=0)


@message
class DeleteRecordsTopicResult:
    """The results of one topic's partitions."""

    name: String
    partitions: Array[DeleteRecordsPartitionResult]


@message
class DeleteRecordsResponse:
    """The results, in the order of the request's topics."""

    throttle_time_ms: Int32 = field(default=0)
    topics: Array[DeleteRecordsTopicResult]


API = declare(
    __name__,
    flexible=2,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
)
