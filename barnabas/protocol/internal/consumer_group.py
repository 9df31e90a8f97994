"""Consumer groups (KIP-848) as records of `__consumer_offsets`: key and value each follow an int16.

The key's int16 is 3 for a group, 4 for the topics of a group (written before Kafka 4.1 only), 5 for
a member, 6 and 7 for the target assignment of a group and of a member, 8 for the current assignment
of a member, and 16 for the topics that a regular expression matches. Every value has version 0.
"""

from barnabas.protocol.schema import Schema, field, message, tagged
from barnabas.protocol.types import (
    Array,
    Bytes,
    Int8,
    Int32,
    Int64,
    Nullable,
    NullableArray,
    NullableString,
    String,
    Uuid,
)


@message
class ConsumerGroupKey:
    """The key of kinds 3, 4 and 6: a group."""

    group_id: String


@message
class ConsumerGroupMemberKey:
    """The key of kinds 5, 7 and 8: a member."""

    group_id: String
    member_id: String


@message
class ConsumerGroupRegularExpressionKey:
    """The key of kind 16: an expression of a group."""

    group_id: String
    regular_expression: String


@message
class ConsumerGroupMetadataValue:
    """A group; the hash covers its subscribed topics (KIP-1101)."""

    epoch: Int32
    metadata_hash: Int64 = tagged(0, since=0, default=0)


@message
class ClassicProtocol:
    """A protocol of a classic member, with its metadata."""

    name: String
    metadata: Bytes


@message
class ClassicMemberMetadata:
    """The parts of a member that speaks the classic protocol."""

    session_timeout_ms: Int32 = field(default=0)
    supported_protocols: Array[ClassicProtocol] = field(default_factory=list)


@message
class ConsumerGroupMemberMetadataValue:
    """A member and its subscription."""

    instance_id: NullableString
    rack_id: NullableString
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: NullableString
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: NullableString
    classic_member_metadata: Nullable[ClassicMemberMetadata] = tagged(
        0, since=0, default_factory=ClassicMemberMetadata
    )


@message
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch of the target assignment, and when it was computed (KIP-1263)."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = tagged(0, since=0, default=0, ignorable=True)


@message
class TargetTopicPartitions:
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: Array[Int32]


@message
class ConsumerGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: Array[TargetTopicPartitions]


@message
class CurrentTopicPartitions:
    """Partitions of one topic, and the epochs in which the member got them (KIP-1251)."""

    topic_id: Uuid
    partitions: Array[Int32]
    assignment_epochs: NullableArray[Int32] = tagged(0, since=0, default_factory=list)


@message
class ConsumerGroupCurrentMemberAssignmentValue:
    """The current assignment of a member; `state` is a MemberState."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[CurrentTopicPartitions]
    partitions_pending_revocation: Array[CurrentTopicPartitions]


@message
class ConsumerGroupRegularExpressionValue:
    """The topics that an expression matched, in a version of the metadata and at a time."""

    topics: Array[String]
    version: Int64
    timestamp: Int64


@message
class PartitionRacks:
    """The racks of a partition's replicas."""

    partition: Int32
    racks: Array[String]


@message
class TopicMetadata:
    """A topic and the racks of its partitions."""

    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: Array[PartitionRacks]


@message
class ConsumerGroupPartitionMetadataValue:
    """The topics of a group, before Kafka 4.1."""

    topics: Array[TopicMetadata]


GROUP_KEY = Schema(ConsumerGroupKey, range(1))
MEMBER_KEY = Schema(ConsumerGroupMemberKey, range(1))
EXPRESSION_KEY = Schema(ConsumerGroupRegularExpressionKey, range(1))
VALUES = {
    kind: Schema(cls, range(1), flexible=0)
    for kind, cls in (
        (3, ConsumerGroupMetadataValue),
        (4, ConsumerGroupPartitionMetadataValue),
        (5, ConsumerGroupMemberMetadataValue),
        (6, ConsumerGroupTargetAssignmentMetadataValue),
        (7, ConsumerGroupTargetAssignmentMemberValue),
        (8, ConsumerGroupCurrentMemberAssignmentValue),
        (16, ConsumerGroupRegularExpressionValue),
    )
}
"""The schemas of values by the kind of their key."""
