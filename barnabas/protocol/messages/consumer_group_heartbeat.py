"""ConsumerGroupHeartbeat (key 68): a member of a consumer group joins, lives and leaves (KIP-848).

v1 subscriptions by regular expression, and member ids that the member chooses (KIP-1082).

A request's null fields, and its rebalance timeout -1, mean: as in the last heartbeat.

Errors: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID,
FENCED_MEMBER_EPOCH, UNSUPPORTED_ASSIGNOR, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
TOPIC_AUTHORIZATION_FAILED, INVALID_REGULAR_EXPRESSION (since v1).
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import (
    Array,
    Int16,
    Int32,
    Nullable,
    NullableArray,
    NullableString,
    String,
    Uuid,
)


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: Array[Int32]


@message
class ConsumerGroupHeartbeatRequest:
    """A heartbeat; `member_epoch` is 0 to join, -1 to leave, -2 to leave as a static member that
    comes back."""

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: NullableString = field(default=None)
    rack_id: NullableString = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: NullableArray[String] = field(default=None)
    subscribed_topic_regex: NullableString = since(1, default=None)
    server_assignor: NullableString = field(default=None)
    topic_partitions: NullableArray[TopicPartitions] = field(default=None)


@message
class Assignment:
    """The partitions that the member may use at once."""

    topic_partitions: Array[TopicPartitions]


@message
class ConsumerGroupHeartbeatResponse:
    """The member's epoch; its assignment if it is new to the member."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    member_id: NullableString = field(default=None)
    member_epoch: Int32 = field(default=0)
    heartbeat_interval_ms: Int32 = field(default=0)
    assignment: Nullable[Assignment] = field(default=None)


API = declare(
    __name__,
    flexible=0,
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
)
