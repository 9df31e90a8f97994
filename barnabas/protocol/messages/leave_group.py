"""LeaveGroup (key 13): removes members at once, before their session times out.

v3 several members, static ones too (KIP-345); v4 flexible; v5 the reason (KIP-800).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID. By member: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int16, Int32, NullableString, String


@message
class MemberIdentity:
    """A member by id or, with an empty id, by its instance id."""

    member_id: String = since(3, default="")
    group_instance_id: NullableString = since(3, default=None)
    reason: NullableString = since(5, default=None, ignorable=True)


@message
class LeaveGroupRequest:
    """One member up to v2, `members` since v3."""

    group_id: String
    member_id: String = field(until=2, default="")
    members: Array[MemberIdentity] = since(3, default_factory=list)


@message
class MemberResponse:
    """The result for one member."""

    member_id: String = since(3, default="")
    group_instance_id: NullableString = since(3, default="")
    error_code: Int16 = since(3, default=0)


@message
class LeaveGroupResponse:
    """The error code of the whole request, and one per member since v3."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    members: Array[MemberResponse] = since(3, default_factory=list)


API = declare(
    __name__,
    flexible=4,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
)
