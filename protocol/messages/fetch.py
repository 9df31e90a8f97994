"""Fetch (key 1)."""

from barnabas.protocol.schema import Api, field, message, since, tagged
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
    replica_id: Int32 = since(15, default=-1)
    replica_epoch: Int64 = since(15, default=-1)


@message
class FetchPartition:
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
    topic: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Array[FetchPartition]


@message
class ForgottenTopic:
    topic: String = since(7, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Array[Int32] = since(7, default_factory=list)


@message
class FetchRequest:
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
    epoch: Int32 = since(12, default=-1)
    end_offset: Int64 = since(12, default=-1)


@message
class LeaderIdAndEpoch:
    leader_id: Int32 = since(12, default=-1)
    leader_epoch: Int32 = since(12, default=-1)


@message
class SnapshotId:
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@message
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@message
class PartitionData:
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
    topic: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Array[PartitionData]


@message
class NodeEndpoint:
    node_id: Int32 = since(16, default=0)
    host: String = since(16, default="")
    port: Int32 = since(16, default=0)
    rack: NullableString = since(16, default=None)


@message
class FetchResponse:
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = since(7, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0)
    responses: Array[FetchableTopicResponse]
    node_endpoints: Array[NodeEndpoint] = tagged(0, since=16, default_factory=list)


API = Api(
    key=1,
    name="Fetch",
    versions=range(4, 19),
    flexible=12,
    request=FetchRequest,
    response=FetchResponse,
)
