"""Produce (key 0)."""

from barnabas.protocol.schema import Api, field, message, since, tagged
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
    index: Int32
    records: Records


@message
class TopicProduceData:
    name: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partition_data: Array[PartitionProduceData]


@message
class ProduceRequest:
    transactional_id: NullableString = field(default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[TopicProduceData]


@message
class BatchIndexAndErrorMessage:
    batch_index: Int32 = since(8, default=0)
    batch_index_error_message: NullableString = since(8, default=None)


@message
class LeaderIdAndEpoch:
    leader_id: Int32 = since(10, default=-1)
    leader_epoch: Int32 = since(10, default=-1)


@message
class PartitionProduceResponse:
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
    name: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partition_responses: Array[PartitionProduceResponse]


@message
class NodeEndpoint:
    node_id: Int32 = since(10, default=0)
    host: String = since(10, default="")
    port: Int32 = since(10, default=0)
    rack: NullableString = since(10, default=None)


@message
class ProduceResponse:
    responses: Array[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    node_endpoints: Array[NodeEndpoint] = tagged(0, since=10, default_factory=list)


API = Api(
    key=0,
    name="Produce",
    versions=range(3, 14),
    flexible=9,
    request=ProduceRequest,
    response=ProduceResponse,
)
