"""OffsetCommit (key 8): commits offsets of a group.

v5 drops the retention time (KIP-211); v6 leader epochs (KIP-320); v7 static members (KIP-345); v8
flexible; v9 member epochs instead of generations (KIP-848); v10 topic ids (KIP-848).

Errors by partition: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID,
INVALID_COMMIT_OFFSET_SIZE, GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
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
    """The next offset to read, with metadata of the client."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    committed_metadata: NullableString


@message
class OffsetCommitRequestTopic:
    """Partitions of one topic: named up to v9, by id in v10."""

    name: String = field(until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetCommitRequestPartition]


@message
class OffsetCommitRequest:
    """The request; a negative generation and an empty member commit from outside the group."""

    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1, ignorable=True)
    member_id: String = field(ignorable=True)
    group_instance_id: NullableString = since(7, default=None)
    retention_time_ms: Int64 = field(until=4, default=-1, ignorable=True)
    topics: Array[OffsetCommitRequestTopic]


@message
class OffsetCommitResponsePartition:
    """The result for one offset."""

    partition_index: Int32
    error_code: Int16 = field(default=0)


@message
class OffsetCommitResponseTopic:
    """The results of one topic's partitions."""

    name: String = field(until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetCommitResponsePartition]


@message
class OffsetCommitResponse:
    """The results, in the order of the request's topics."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetCommitResponseTopic]


API = declare(
    __name__,
    flexible=8,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
)
