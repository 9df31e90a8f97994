"""Produce (key 0): appends record batches to partitions, at most one batch per partition.

v3 message format v2 (KIP-98); v4 may return KAFKA_STORAGE_ERROR; v5 log start offset; v7 zstd
(KIP-110); v8 errors of single records (KIP-467); v9 flexible; v10 the new leader with
NOT_LEADER_OR_FOLLOWER (KIP-951); v11 TRANSACTION_ABORTABLE and v12 partitions added to the
transaction by their leader (KIP-890); v13 topic ids (KIP-516). A Kafka broker advertises v0,
because librdkafka before 2.11 expects it, but serves v3 and later.

Errors by partition: CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
INVALID_TOPIC_EXCEPTION, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
INVALID_REQUIRED_ACKS, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD,
OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since, tagged
from barnabas.protocol.types import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    NullableString,
    Records,
    String,
    Uuid,
)


@message
class PartitionProduceData:
    """Record batches for one partition, as the producer wrote them."""

    index: Int32
    records: Records


@message
class TopicProduceData:
    """Partitions of one topic: named up to v12, by id since v13."""

    name: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partition_data: Array[PartitionProduceData]


@message
class ProduceRequest:
    """The request; `acks` is 0, 1 or -1 for all, `timeout_ms` bounds the wait for replicas."""

    transactional_id: NullableString = field(default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[TopicProduceData]


@message
class BatchIndexAndErrorMessage:
    """A record for which its batch was refused."""

    batch_index: Int32 = since(8, default=0)
    batch_index_error_message: NullableString = since(8, default=None)


@message
class LeaderIdAndEpoch:
    """The current leader and its epoch; -1 if unknown."""

    leader_id: Int32 = since(10, default=-1)
    leader_epoch: Int32 = since(10, default=-1)


@message
class PartitionProduceResponse:
    """The offset of the batch; `log_append_time_ms` is -1 with CreateTime."""

    index: Int32
    error_code: Int16 = field(default=0)
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: Array[BatchIndexAndErrorMessage] = since(8, default_factory=list, ignorable=True)
    error_message: NullableString = since(8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = tagged(0, since=10, default_factory=LeaderIdAndEpoch)


@message
class TopicProduceResponse:
    """The results of one topic's partitions."""

    name: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partition_responses: Array[PartitionProduceResponse]


@message
class NodeEndpoint:
    """The address of a new leader."""

    node_id: Int32 = since(10, default=0)
    host: String = since(10, default="")
    port: Int32 = since(10, default=0)
    rack: NullableString = since(10, default=None)


@message
class ProduceResponse:
    """The response, not sent for acks=0; `node_endpoints` has the addresses of new leaders."""

    responses: Array[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    node_endpoints: Array[NodeEndpoint] = tagged(0, since=10, default_factory=list)


API = declare(
    __name__,
    flexible=9,
    request=ProduceRequest,
    response=ProduceResponse,
)
