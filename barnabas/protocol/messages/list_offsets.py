"""ListOffsets (key 2): finds offsets by timestamp; -1 is latest, -2 earliest, more below.

v1 one offset per partition; v2 isolation level (KIP-98); v4 leader epochs (KIP-320); v5 may return
OFFSET_NOT_AVAILABLE (KIP-207); v6 flexible; v7 timestamp -3, the record of the highest timestamp
(KIP-734); v8 -4, earliest local (KIP-405); v9 -5, latest tiered (KIP-1005); v10 time limit
(KIP-1075); v11 -6, earliest pending upload (KIP-1023).

Errors by partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE,
LEADER_NOT_AVAILABLE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNSUPPORTED_VERSION,
UNSUPPORTED_FOR_MESSAGE_FORMAT, KAFKA_STORAGE_ERROR.

Tagged fields of our own ask for the records behind a committed offset, and carry their counts.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import FIRST_OWN_TAG, field, message, since, tagged
from barnabas.protocol.types import Array, Int8, Int16, Int32, Int64, String


@message
class ListOffsetsPartition:
    """A partition and a timestamp in ms, or a negative one of special meaning.

    `count_from` is our own field: with the timestamp -1 it asks for the counts of the records from
    this offset on.
    """

    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64
    count_from: Int64 = tagged(FIRST_OWN_TAG, since=6, default=-1, ignorable=True)


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
    """The first offset at or after the timestamp; -1 if there is no such record.

    Our own fields: `to_read` and `held_back` count the records from `count_from` to `counted_to`,
    on both sides of `last_stable_offset` and below `offset`; all are -1 if not requested or not
    known. `counted_to` is below `offset` if the broker has stopped early: ask again from there.
    `held_back_by` is the producer id of the oldest transaction that is not decided, -1 without one.
    """

    partition_index: Int32
    error_code: Int16 = field(default=0)
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = since(4, default=-1)
    to_read: Int64 = tagged(FIRST_OWN_TAG, since=6, default=-1)
    held_back: Int64 = tagged(FIRST_OWN_TAG + 1, since=6, default=-1)
    counted_to: Int64 = tagged(FIRST_OWN_TAG + 2, since=6, default=-1)
    last_stable_offset: Int64 = tagged(FIRST_OWN_TAG + 3, since=6, default=-1)
    held_back_by: Int64 = tagged(FIRST_OWN_TAG + 4, since=6, default=-1)


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


API = declare(
    __name__,
    flexible=6,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
)
