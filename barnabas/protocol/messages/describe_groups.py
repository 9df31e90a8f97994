"""DescribeGroups (key 15): returns state and members of classic groups.

v3 authorized operations (KIP-430); v4 static members (KIP-345); v5 flexible; v6 an unknown group is
an error, no longer a dead group (KIP-1043).

Errors by group: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
INVALID_GROUP_ID, GROUP_ID_NOT_FOUND.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Bool, Bytes, Int16, Int32, NullableString, String


@message
class DescribeGroupsRequest:
    """The groups to describe, all coordinated by this broker."""

    groups: Array[String]
    include_authorized_operations: Bool = since(3, default=False)


@message
class DescribedGroupMember:
    """A member; metadata and assignment are opaque bytes of the clients."""

    member_id: String
    group_instance_id: NullableString = since(4, default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


@message
class DescribedGroup:
    """A group; `protocol_data` is the name of its assignor while the group is stable."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = since(6, default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: Array[DescribedGroupMember]
    authorized_operations: Int32 = since(3, default=-2147483648)


@message
class DescribeGroupsResponse:
    """The results: one entry per group of the request."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    groups: Array[DescribedGroup]


API = declare(
    __name__,
    flexible=5,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
)
