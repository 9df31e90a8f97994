"""LeaveGroup (key 13)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Int16, Int32, NullableString, String


@message
class MemberIdentity:
    member_id: String = since(3, default="")
    group_instance_id: NullableString = since(3, default=None)
    reason: NullableString = since(5, default=None, ignorable=True)


@message
class LeaveGroupRequest:
    group_id: String
    member_id: String = field(until=2, default="")
    members: Array[MemberIdentity] = since(3, default_factory=list)


@message
class MemberResponse:
    member_id: String = since(3, default="")
    group_instance_id: NullableString = since(3, default="")
    error_code: Int16 = since(3, default=0)


@message
class LeaveGroupResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    members: Array[MemberResponse] = since(3, default_factory=list)


API = Api(
    key=13,
    name="LeaveGroup",
    versions=range(6),
    flexible=4,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
)
