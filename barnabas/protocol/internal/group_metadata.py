"""Classic groups as records of `__consumer_offsets`: key and value each follow an int16.

The key's int16 is 2, which distinguishes it from the key of an offset. Values: v1 adds the
rebalance timeout, v2 the time of the state, v3 static members (KIP-345); v4 is flexible.
"""

from barnabas.protocol.schema import Schema, field, message, since
from barnabas.protocol.types import Array, Bytes, Int32, Int64, NullableString, String


@message
class GroupMetadataKey:
    """The key: a group."""

    group: String = field(default="")


@message
class MemberMetadata:
    """A member with its subscription and its assignment; timeouts in ms."""

    member_id: String
    group_instance_id: NullableString = since(3, default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message
class GroupMetadataValue:
    """A generation of the group; `protocol` and `leader` are null while it is empty."""

    protocol_type: String
    generation: Int32
    protocol: NullableString
    leader: NullableString
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: Array[MemberMetadata]


GROUP_METADATA_KEY = Schema(GroupMetadataKey, range(1))
GROUP_METADATA_VALUE = Schema(GroupMetadataValue, range(5), flexible=4)
