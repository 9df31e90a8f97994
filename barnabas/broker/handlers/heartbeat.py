"""Heartbeat (key 12): a member shows that it is alive, and learns of a rebalance.

v3 static members. Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, NOT_COORDINATOR. While the group is being
loaded the response is NONE, so that the member neither leaves nor looks for another coordinator.
"""

from barnabas.broker.security.rights import GROUP, READ, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import Repeat
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.protocol.messages.heartbeat import API, HeartbeatRequest, HeartbeatResponse

__all__ = ["API", "RIGHTS", "again", "handle"]

RIGHTS = Rights(whole=(Need(READ, GROUP, "group_id"),))


def handle(
    groups: GroupCoordinator,
    request: HeartbeatRequest,
    _context: RequestContext,
) -> HeartbeatResponse:
    """Answer at once."""
    return groups.heartbeat(request)


def again(
    groups: GroupCoordinator,
    request: HeartbeatRequest,
    _context: RequestContext,
    response: HeartbeatResponse,
) -> Repeat | None:
    """Serve a member whose generation continues: its requests are equal."""
    return None if response.error_code else Repeat(_beat_again, (groups, request))


def _beat_again(
    known: tuple[GroupCoordinator, HeartbeatRequest], _now_ms: int, _values: tuple[()]
) -> tuple[()] | None:
    groups, request = known
    return None if groups.heartbeat(request).error_code else ()
