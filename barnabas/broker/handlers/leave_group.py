"""LeaveGroup (key 13): members leave at once, before their sessions expire.

v3 several members, static ones by their instance id alone (KIP-345), v5 a reason. Before v3 the
response has the error of the one member. Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, and those of coordinators.
"""

from barnabas.broker.security.rights import GROUP, READ, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import settle
from barnabas.protocol.messages.leave_group import (
    API,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.protocol.steps import Steps, in_steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(whole=(Need(READ, GROUP, "group_id"),))
_MEMBERS_SINCE = 3


def handle(
    groups: GroupCoordinator, request: LeaveGroupRequest, context: RequestContext
) -> Steps[LeaveGroupResponse]:
    """Remove members; where the last one leaves, answer when that is committed."""
    response = LeaveGroupResponse(members=(yield from in_steps(_result, request.members)))
    if context.api_version >= _MEMBERS_SINCE:
        codes = yield from settle(groups.leave(request.group_id, request.members))
        for result, code in zip(response.members, codes, strict=True):
            result.error_code = code
        return response
    member = MemberIdentity(member_id=request.member_id)
    (code,) = yield from settle(groups.leave(request.group_id, [member]))
    return LeaveGroupResponse(error_code=code)


def _result(leaving: MemberIdentity) -> MemberResponse:
    return MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id)
