"""TxnOffsetCommit (key 28): commits offsets of a group as part of a transaction (KIP-98).

v2 leader epochs (KIP-320); v3 flexible, fenced by member and generation (KIP-447); v4 may return
TRANSACTION_ABORTABLE; v5 adds the offsets to the transaction without AddOffsetsToTxn (KIP-890); v6
names topics by their ids (KIP-1319).

Errors by partition: UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, INVALID_COMMIT_OFFSET_SIZE,
INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS,
TRANSACTION_ABORTABLE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED; since v6 UNKNOWN_TOPIC_ID, GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH.
"""

from typing import Final

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
class TxnOffsetCommitRequestPartition:
    """The next offset to read, with metadata of the client."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    committed_metadata: NullableString


@message
class TxnOffsetCommitRequestTopic:
    """Partitions of one topic."""

    name: String = field(default="", until=5, ignorable=True)
    topic_id: Uuid = since(6, default=ZERO_UUID, ignorable=True)
    partitions: Array[TxnOffsetCommitRequestPartition]


@message
class TxnOffsetCommitRequest:
    """The request; the group's member is checked only if one of its three fields is set."""

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = since(3, default=-1)
    member_id: String = since(3, default="")
    group_instance_id: NullableString = since(3, default=None)
    topics: Array[TxnOffsetCommitRequestTopic]


@message
class TxnOffsetCommitResponsePartition:
    """The result for one offset."""

    partition_index: Int32
    error_code: Int16 = field(default=0)


@message
class TxnOffsetCommitResponseTopic:
    """The results of one topic's partitions."""

    name: String = field(default="", until=5, ignorable=True)
    topic_id: Uuid = since(6, default=ZERO_UUID, ignorable=True)
    partitions: Array[TxnOffsetCommitResponsePartition]


@message
class TxnOffsetCommitResponse:
    """The results, in the order of the request's topics."""

    throttle_time_ms: Int32 = field(default=0)
    topics: Array[TxnOffsetCommitResponseTopic]


LAST_WITH_NAMES: Final = 5
"""The last version that names topics."""

API = declare(
    __name__,
    flexible=3,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
)
