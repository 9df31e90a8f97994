"""OffsetCommit (key 8)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    NullableString,
    String,
    Uuid,
)


@message
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    committed_metadata: NullableString


@message
class OffsetCommitRequestTopic:
    name: String = field(until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetCommitRequestPartition]


@message
class OffsetCommitRequest:
    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1, ignorable=True)
    member_id: String = field(ignorable=True)
    group_instance_id: NullableString = since(7, default=None)
    retention_time_ms: Int64 = field(until=4, default=-1, ignorable=True)
    topics: Array[OffsetCommitRequestTopic]


@message
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16 = field(default=0)


@message
class OffsetCommitResponseTopic:
    name: String = field(until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetCommitResponsePartition]


@message
class OffsetCommitResponse:
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetCommitResponseTopic]


API = Api(
    key=8,
    name="OffsetCommit",
    versions=range(2, 11),
    flexible=8,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
)
