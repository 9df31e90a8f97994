"""Metadata (key 3): returns brokers, topics and the leaders of their partitions.

v1 null for all topics, rack, controller; v2 cluster id; v4 choice of auto-creation; v5 offline
replicas; v7 leader epochs (KIP-320); v8 authorized operations (KIP-430); v9 flexible; v10 topic ids
(KIP-516); v11 drops the cluster's operations (KIP-700); v12 null names; v13 an error of the whole
response (KIP-1102).

Errors by topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, LEADER_NOT_AVAILABLE,
INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, INVALID_REPLICATION_FACTOR. By partition:
LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND. Of the whole response: REBOOTSTRAP_REQUIRED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import Schema, field, message, since
from barnabas.protocol.types import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    String,
    Uuid,
)


@message
class MetadataRequestTopic:
    """A topic by name or, with a null name, by id."""

    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    name: NullableString = field(nullable=10)


@message
class MetadataRequest:
    """The requested topics, null for all; v0 has no null, an empty list is all."""

    topics: NullableArray[MetadataRequestTopic] = field(nullable=1)
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, until=10, default=False)
    include_topic_authorized_operations: Bool = since(8, default=False)


@message
class MetadataResponseBroker:
    """A live broker with the address that the listener of the request advertises."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = since(1, default=None, ignorable=True)


@message
class MetadataResponsePartition:
    """Leader, replicas and ISR; leader -1 without a leader."""

    error_code: Int16 = field(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    offline_replicas: Array[Int32] = since(5, default_factory=list, ignorable=True)


@message
class MetadataResponseTopic:
    """A topic; `topic_authorized_operations` is a bit field, its minimum value if not requested."""

    error_code: Int16 = field(default=0)
    name: NullableString = field(nullable=12)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    is_internal: Bool = since(1, default=False, ignorable=True)
    partitions: Array[MetadataResponsePartition]
    topic_authorized_operations: Int32 = since(8, default=-2147483648)


@message
class MetadataResponse:
    """The cluster; `controller_id` is -1 if no controller is known."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    brokers: Array[MetadataResponseBroker]
    cluster_id: NullableString = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = since(8, until=10, default=-2147483648)
    error_code: Int16 = since(13, default=0, ignorable=True)


API = declare(
    __name__,
    flexible=9,
    request=MetadataRequest,
    response=MetadataResponse,
)
Schema(MetadataResponseTopic, API.versions, API.flexible)
