"""JoinGroup (key 11): joins a classic group, or its next rebalance.

v1 rebalance timeout; v4 the first join returns a member id (KIP-394); v5 static members (KIP-345);
v6 flexible; v7 protocol type in the response (KIP-559); v8 the reason (KIP-800); v9 a static leader
may skip its assignment (KIP-814).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL, INVALID_SESSION_TIMEOUT, MEMBER_ID_REQUIRED,
GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Bool, Bytes, Int16, Int32, NullableString, String


@message
class JoinGroupRequestProtocol:
    """An assignor that the member supports, with the member's metadata for it."""

    name: String
    metadata: Bytes


@message
class JoinGroupRequest:
    """The request; protocols in order of preference, an empty member id for a new member."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: String
    group_instance_id: NullableString = since(5, default=None)
    protocol_type: String
    protocols: Array[JoinGroupRequestProtocol]
    reason: NullableString = since(8, default=None, ignorable=True)


@message
class JoinGroupResponseMember:
    """A member; only the leader gets the list."""

    member_id: String
    group_instance_id: NullableString = since(5, default=None, ignorable=True)
    metadata: Bytes


@message
class JoinGroupResponse:
    """The response, sent when all members have joined; `members` is empty except for the leader."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    generation_id: Int32 = field(default=-1)
    protocol_type: NullableString = since(7, default=None, ignorable=True)
    protocol_name: NullableString = field(nullable=7)
    leader: String
    skip_assignment: Bool = since(9, default=False)
    member_id: String
    members: Array[JoinGroupResponseMember]


API = declare(
    __name__,
    flexible=6,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
)
