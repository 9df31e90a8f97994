"""LeaveGroup (key 13): members go, at once and not when their sessions end.

v3 several members, static ones by their instance alone (KIP-345), v5 a reason. Before v3 the one
member's error is the answer's. Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
and those of coordinators.
"""

from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import settled
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leave_group import (
    API,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

__all__ = ["API", "SERVES", "LeaveGroupHandler", "error_response"]

SERVES = range(6)
_MEMBERS_SINCE = 3


class LeaveGroupHandler:
    """Answers when the group's loss is decided, and logged where it is the last member's."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def handle(
        self, request: LeaveGroupRequest, context: RequestContext
    ) -> LeaveGroupResponse:
        by_list = context.api_version >= _MEMBERS_SINCE
        if not by_list:
            request.members = [MemberIdentity(member_id=request.member_id)]
        response = await settled(self._groups.leave(request))
        if by_list:
            return response
        return LeaveGroupResponse(error_code=response.members[0].error_code)


def error_response(
    request: LeaveGroupRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> LeaveGroupResponse:
    """Nobody has left."""
    return LeaveGroupResponse(error_code=code)
