"""ConsumerGroupDescribe (key 69): returns state and members of consumer groups (KIP-848).

v1 the type of each member (KIP-1099).

Errors by group: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND,
TOPIC_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, NullableString, String, Uuid


@message
class ConsumerGroupDescribeRequest:
    """The groups to describe, all coordinated by this broker."""

    group_ids: Array[String]
    include_authorized_operations: Bool


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: Uuid
    topic_name: String
    partitions: Array[Int32]


@message
class Assignment:
    """The partitions assigned to a member."""

    topic_partitions: Array[TopicPartitions]


@message
class Member:
    """A member; its type is -1 if unknown, 0 in the classic and 1 in the consumer protocol."""

    member_id: String
    instance_id: NullableString = field(default=None)
    rack_id: NullableString = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: NullableString = field(default=None)
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = since(1, default=-1, ignorable=True)


@message
class DescribedGroup:
    """A group, with the name of the assignor that its members chose."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    group_id: String
    group_state: String = field(default="")
    group_epoch: Int32 = field(default=0)
    assignment_epoch: Int32 = field(default=0)
    assignor_name: String = field(default="")
    members: Array[Member] = field(default_factory=list)
    authorized_operations: Int32 = field(default=-2147483648)


@message
class ConsumerGroupDescribeResponse:
    """The results: one entry per group of the request."""

    throttle_time_ms: Int32 = field(default=0)
    groups: Array[DescribedGroup]


API = declare(
    __name__,
    flexible=0,
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
)
