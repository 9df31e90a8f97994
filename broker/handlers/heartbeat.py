"""Heartbeat (key 12): a member is alive, and hears when it has to join again.

v3 static members. Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, NOT_COORDINATOR. While the group is being loaded the
answer is NONE: its member should neither leave nor look elsewhere.
"""

from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.heartbeat import API, HeartbeatRequest, HeartbeatResponse

__all__ = ["API", "SERVES", "HeartbeatHandler", "error_response"]

SERVES = range(5)


class HeartbeatHandler:
    """Answers at once."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(
        self,
        request: HeartbeatRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> HeartbeatResponse:
        return self._groups.heartbeat(request)


def error_response(
    request: HeartbeatRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> HeartbeatResponse:
    """The error alone."""
    return HeartbeatResponse(error_code=code)
