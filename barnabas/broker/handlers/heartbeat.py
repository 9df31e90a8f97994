"""Heartbeat (key 12): a member shows that it is alive, and learns of a rebalance.

v3 static members. Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, NOT_COORDINATOR. While the group is being
loaded the answer is NONE: the member should neither leave nor look for another coordinator.
"""

from barnabas.broker.security.rights import GROUP, READ, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon
from barnabas.protocol.messages.heartbeat import API, HeartbeatRequest, HeartbeatResponse

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(whole=(Need(READ, GROUP, "group_id"),))


def handle(
    groups: GroupCoordinator,
    request: HeartbeatRequest,
    _context: RequestContext,
) -> Soon[HeartbeatResponse]:
    """Answer at once."""
    return groups.heartbeat(request)
