"""Fetch (key 1): reads record batches, for consumers and for followers.

v4 isolation level and aborted transactions (KIP-98); v5 log start offset; v7 sessions (KIP-227); v9
leader epochs (KIP-320); v10 zstd; v11 rack of the consumer (KIP-392); v12 flexible, diverging
epochs (KIP-595); v13 topic ids (KIP-516); v15 replica state instead of the replica id (KIP-903);
v16 endpoints of new leaders (KIP-951); v17 directory of the replica (KIP-853); v18 high watermark
of the follower (KIP-1166).

Errors of the whole response: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
FETCH_SESSION_TOPIC_ID_ERROR. By partition: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, REPLICA_NOT_AVAILABLE,
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since, tagged
from barnabas.protocol.types import (
    ZERO_UUID,
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableArray,
    NullableString,
    Records,
    String,
    Uuid,
)


@message
class ReplicaState:
    """A follower by id and broker epoch; -1 for consumers."""

    replica_id: Int32 = since(15, default=-1)
    replica_epoch: Int64 = since(15, default=-1)


@message
class FetchPartition:
    """The next offset to read, a limit of bytes, and the reader's view of leader and log."""

    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = tagged(0, since=17, default=ZERO_UUID, ignorable=True)
    high_watermark: Int64 = tagged(1, since=18, default=9223372036854775807, ignorable=True)


@message
class FetchTopic:
    """Partitions of one topic: named up to v12, by id since v13."""

    topic: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Array[FetchPartition]


@message
class ForgottenTopic:
    """Partitions that leave the fetch session."""

    topic: String = since(7, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Array[Int32] = since(7, default_factory=list)


@message
class FetchRequest:
    """A request that waits up to `max_wait_ms` for `min_bytes`; `session_epoch` -1: no session."""

    cluster_id: NullableString = tagged(0, since=12, default=None, ignorable=True)
    replica_id: Int32 = field(until=14, default=-1)
    replica_state: ReplicaState = tagged(1, since=15, default_factory=ReplicaState)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2147483647, ignorable=True)
    isolation_level: Int8 = field(default=0, ignorable=True)
    session_id: Int32 = since(7, default=0, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: Array[FetchTopic]
    forgotten_topics_data: Array[ForgottenTopic] = since(7, default_factory=list)
    rack_id: String = since(11, default="", ignorable=True)


@message
class EpochEndOffset:
    """The point at which the leader's log diverges from the epoch that the follower fetched in."""

    epoch: Int32 = since(12, default=-1)
    end_offset: Int64 = since(12, default=-1)


@message
class LeaderIdAndEpoch:
    """The current leader and its epoch; -1 if unknown."""

    leader_id: Int32 = since(12, default=-1)
    leader_epoch: Int32 = since(12, default=-1)


@message
class SnapshotId:
    """A snapshot to load instead of the log, for metadata quorums only; never sent here."""

    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@message
class AbortedTransaction:
    """An aborted transaction: the producer's records from `first_offset` on are to be dropped."""

    producer_id: Int64
    first_offset: Int64


@message
class PartitionData:
    """Batches and the log's bounds; `aborted_transactions` is null for read_uncommitted."""

    partition_index: Int32
    error_code: Int16 = field(default=0)
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = tagged(0, since=12, default_factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = tagged(1, since=12, default_factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = tagged(2, since=12, default_factory=SnapshotId)
    aborted_transactions: NullableArray[AbortedTransaction] = field(ignorable=True)
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Records


@message
class FetchableTopicResponse:
    """The results of one topic's partitions."""

    topic: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Array[PartitionData]


@message
class NodeEndpoint:
    """The address of a new leader."""

    node_id: Int32 = since(16, default=0)
    host: String = since(16, default="")
    port: Int32 = since(16, default=0)
    rack: NullableString = since(16, default=None)


@message
class FetchResponse:
    """The response; in a session, only partitions with news. `session_id` 0 means no session."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = since(7, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0)
    responses: Array[FetchableTopicResponse]
    node_endpoints: Array[NodeEndpoint] = tagged(0, since=16, default_factory=list)


API = declare(
    __name__,
    flexible=12,
    request=FetchRequest,
    response=FetchResponse,
)
