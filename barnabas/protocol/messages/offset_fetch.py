"""OffsetFetch (key 9): returns committed offsets.

v2 null for all partitions, an error of the group; v5 leader epochs (KIP-320); v6 flexible; v7
require_stable (KIP-447); v8 several groups (KIP-709); v9 member epochs (KIP-848); v10 topic ids.

Errors by group: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH. By partition:
UNSTABLE_OFFSET_COMMIT, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
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
    """Partitions of one topic, up to v7."""

    name: String = field(until=7, default="")
    partition_indexes: Array[Int32] = field(until=7, default_factory=list)


@message
class OffsetFetchRequestTopics:
    """Partitions of one topic, since v8: named up to v9, by id in v10."""

    name: String = since(8, until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partition_indexes: Array[Int32] = since(8, default_factory=list)


@message
class OffsetFetchRequestGroup:
    """One of several groups; null topics stand for all committed offsets."""

    group_id: String = since(8, default="")
    member_id: NullableString = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: NullableArray[OffsetFetchRequestTopics] = since(8, default_factory=list)


@message
class OffsetFetchRequest:
    """One group up to v7, `groups` since v8."""

    group_id: String = field(until=7, default="")
    topics: NullableArray[OffsetFetchRequestTopic] = field(
        until=7, default_factory=list, nullable=2
    )
    groups: Array[OffsetFetchRequestGroup] = since(8, default_factory=list)
    require_stable: Bool = since(7, default=False)


@message
class OffsetFetchResponsePartition:
    """A committed offset, up to v7; -1 if there is no offset."""

    partition_index: Int32 = field(until=7, default=0)
    committed_offset: Int64 = field(until=7, default=0)
    committed_leader_epoch: Int32 = since(5, until=7, default=-1, ignorable=True)
    metadata: NullableString = field(until=7, default="")
    error_code: Int16 = field(until=7, default=0)


@message
class OffsetFetchResponseTopic:
    """The results of one topic's partitions, up to v7."""

    name: String = field(until=7, default="")
    partitions: Array[OffsetFetchResponsePartition] = field(until=7, default_factory=list)


@message
class OffsetFetchResponsePartitions:
    """A committed offset, since v8; -1 if there is no offset."""

    partition_index: Int32 = since(8, default=0)
    committed_offset: Int64 = since(8, default=0)
    committed_leader_epoch: Int32 = since(8, default=-1, ignorable=True)
    metadata: NullableString = since(8, default="")
    error_code: Int16 = since(8, default=0)


@message
class OffsetFetchResponseTopics:
    """The results of one topic's partitions, since v8."""

    name: String = since(8, until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetFetchResponsePartitions] = since(8, default_factory=list)


@message
class OffsetFetchResponseGroup:
    """The results of one group."""

    group_id: String = since(8, default="")
    topics: Array[OffsetFetchResponseTopics] = since(8, default_factory=list)
    error_code: Int16 = since(8, default=0)


@message
class OffsetFetchResponse:
    """One group up to v7, `groups` since v8."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetFetchResponseTopic] = field(until=7, default_factory=list)
    error_code: Int16 = since(2, until=7, default=0, ignorable=True)
    groups: Array[OffsetFetchResponseGroup] = since(8, default_factory=list)


API = declare(
    __name__,
    flexible=6,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
)
