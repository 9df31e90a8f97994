"""SyncGroup (key 14): the leader sends the assignment, each member receives its part.

v3 static members (KIP-345); v4 flexible; v5 protocol type and name (KIP-559).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS,
FENCED_INSTANCE_ID.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Bytes, Int16, Int32, NullableString, String


@message
class SyncGroupRequestAssignment:
    """The assignment of one member."""

    member_id: String
    assignment: Bytes


@message
class SyncGroupRequest:
    """The request; `assignments` is empty unless the leader sends it."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: NullableString = since(3, default=None)
    protocol_type: NullableString = since(5, default=None, ignorable=True)
    protocol_name: NullableString = since(5, default=None, ignorable=True)
    assignments: Array[SyncGroupRequestAssignment]


@message
class SyncGroupResponse:
    """The member's own assignment."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    protocol_type: NullableString = since(5, default=None, ignorable=True)
    protocol_name: NullableString = since(5, default=None, ignorable=True)
    assignment: Bytes


API = declare(
    __name__,
    flexible=4,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
)
