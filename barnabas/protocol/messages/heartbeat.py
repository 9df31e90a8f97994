"""Heartbeat (key 12): keeps a member in its group and tells it to rejoin if necessary.

v3 static members (KIP-345); v4 flexible.

Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID,
ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Int16, Int32, NullableString, String


@message
class HeartbeatRequest:
    """One member in one generation."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: NullableString = since(3, default=None)


@message
class HeartbeatResponse:
    """The response; REBALANCE_IN_PROGRESS tells the member to send a JoinGroup."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = field(default=0)


API = declare(
    __name__,
    flexible=4,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
)
