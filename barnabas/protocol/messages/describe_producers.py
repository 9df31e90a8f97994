"""DescribeProducers (key 61): returns the producer state of a leader's partitions (KIP-664).

Errors by partition: INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Int16, Int32, Int64, NullableString, String


@message
class TopicRequest:
    """Partitions of one topic."""

    name: String
    partition_indexes: Array[Int32]


@message
class DescribeProducersRequest:
    """The partitions to describe, all led by this broker."""

    topics: Array[TopicRequest]


@message
class ProducerState:
    """A producer; this API alone has an epoch of 32 bits.

    `last_timestamp` is in ms since the epoch; `current_txn_start_offset` is -1 without an open
    transaction, and the coordinator epoch is -1 before the first marker.
    """

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = field(default=-1)


@message
class PartitionResponse:
    """The producers of one partition."""

    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    active_producers: Array[ProducerState]


@message
class TopicResponse:
    """The results of one topic's partitions."""

    name: String
    partitions: Array[PartitionResponse]


@message
class DescribeProducersResponse:
    """The results, in the order of the request's topics."""

    throttle_time_ms: Int32 = field(default=0)
    topics: Array[TopicResponse]


API = declare(
    __name__,
    flexible=0,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
)
