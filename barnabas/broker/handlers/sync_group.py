"""SyncGroup (key 14): the group leader sends the assignments, each member gets its own.

v3 static members, v5 the protocol's type and name, which it requires. Errors:
INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS, and those of coordinators.
"""

from barnabas.broker.security.rights import GROUP, READ, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.sync_group import API, SyncGroupRequest, SyncGroupResponse

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(whole=(Need(READ, GROUP, "group_id"),), again=True)
_PROTOCOL_SINCE = 5


def handle(
    groups: GroupCoordinator, request: SyncGroupRequest, context: RequestContext
) -> Soon[SyncGroupResponse]:
    """Answer a member with its assignment; followers wait until the leader's is committed."""
    if context.api_version >= _PROTOCOL_SINCE and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return groups.sync(request)
