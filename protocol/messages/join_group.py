"""JoinGroup (key 11)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Bool, Bytes, Int16, Int32, NullableString, String


@message
class JoinGroupRequestProtocol:
    name: String
    metadata: Bytes


@message
class JoinGroupRequest:
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
    member_id: String
    group_instance_id: NullableString = since(5, default=None, ignorable=True)
    metadata: Bytes


@message
class JoinGroupResponse:
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    generation_id: Int32 = field(default=-1)
    protocol_type: NullableString = since(7, default=None, ignorable=True)
    protocol_name: NullableString = field(nullable=7)
    leader: String
    skip_assignment: Bool = since(9, default=False)
    member_id: String
    members: Array[JoinGroupResponseMember]


API = Api(
    key=11,
    name="JoinGroup",
    versions=range(10),
    flexible=6,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
)
