"""OffsetForLeaderEpoch (key 23): returns a leader epoch's end offset (KIP-101, KIP-320).

v2 the reader's leader epoch; v3 replica id; v4 flexible.

Errors by partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int16, Int32, Int64, String


@message
class OffsetForLeaderPartition:
    """The requested epoch, and the current one that the reader knows."""

    partition: Int32
    current_leader_epoch: Int32 = field(default=-1, ignorable=True)
    leader_epoch: Int32


@message
class OffsetForLeaderTopic:
    """Partitions of one topic."""

    topic: String
    partitions: Array[OffsetForLeaderPartition]


@message
class OffsetForLeaderEpochRequest:
    """The request; `replica_id` is -1 for consumers, -2 before v3."""

    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: Array[OffsetForLeaderTopic]


@message
class EpochEndOffset:
    """The largest epoch not above the requested one, and its end offset; -1 if unknown."""

    error_code: Int16 = field(default=0)
    partition: Int32
    leader_epoch: Int32 = field(default=-1, ignorable=True)
    end_offset: Int64 = field(default=-1)


@message
class OffsetForLeaderTopicResult:
    """The results of one topic's partitions."""

    topic: String
    partitions: Array[EpochEndOffset]


@message
class OffsetForLeaderEpochResponse:
    """The results, in the order of the request's topics."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: Array[OffsetForLeaderTopicResult]


API = declare(
    __name__,
    flexible=4,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
)
