"""OffsetFetch (key 9)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableArray,
    NullableString,
    String,
    Uuid,
)


@message
class OffsetFetchRequestTopic:
    name: String = field(until=7, default="")
    partition_indexes: Array[Int32] = field(until=7, default_factory=list)


@message
class OffsetFetchRequestTopics:
    name: String = since(8, until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partition_indexes: Array[Int32] = since(8, default_factory=list)


@message
class OffsetFetchRequestGroup:
    group_id: String = since(8, default="")
    member_id: NullableString = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: NullableArray[OffsetFetchRequestTopics] = since(8, default_factory=list)


@message
class OffsetFetchRequest:
    group_id: String = field(until=7, default="")
    topics: NullableArray[OffsetFetchRequestTopic] = field(
        until=7, default_factory=list, nullable=2
    )
    groups: Array[OffsetFetchRequestGroup] = since(8, default_factory=list)
    require_stable: Bool = since(7, default=False)


@message
class OffsetFetchResponsePartition:
    partition_index: Int32 = field(until=7, default=0)
    committed_offset: Int64 = field(until=7, default=0)
    committed_leader_epoch: Int32 = since(5, until=7, default=-1, ignorable=True)
    metadata: NullableString = field(until=7, default="")
    error_code: Int16 = field(until=7, default=0)


@message
class OffsetFetchResponseTopic:
    name: String = field(until=7, default="")
    partitions: Array[OffsetFetchResponsePartition] = field(until=7, default_factory=list)


@message
class OffsetFetchResponsePartitions:
    partition_index: Int32 = since(8, default=0)
    committed_offset: Int64 = since(8, default=0)
    committed_leader_epoch: Int32 = since(8, default=-1, ignorable=True)
    metadata: NullableString = since(8, default="")
    error_code: Int16 = since(8, default=0)


@message
class OffsetFetchResponseTopics:
    name: String = since(8, until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetFetchResponsePartitions] = since(8, default_factory=list)


@message
class OffsetFetchResponseGroup:
    group_id: String = since(8, default="")
    topics: Array[OffsetFetchResponseTopics] = since(8, default_factory=list)
    error_code: Int16 = since(8, default=0)


@message
class OffsetFetchResponse:
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetFetchResponseTopic] = field(until=7, default_factory=list)
    error_code: Int16 = since(2, until=7, default=0, ignorable=True)
    groups: Array[OffsetFetchResponseGroup] = since(8, default_factory=list)


API = Api(
    key=9,
    name="OffsetFetch",
    versions=range(1, 11),
    flexible=6,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
)
