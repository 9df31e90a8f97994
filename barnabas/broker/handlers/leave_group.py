"""LeaveGroup (key 13): members leave at once, before their sessions expire.

v3 several members, static ones by their instance id alone (KIP-345), v5 a reason. Before v3 the
answer has the error of the one member. Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, and those of coordinators.
"""

from collections.abc import Sequence
from functools import partial

from barnabas.broker.security.rights import GROUP, READ, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon, map_answer
from barnabas.protocol.errors import ErrorCode
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
) -> Steps[Soon[LeaveGroupResponse]]:
    """Remove members; where the last one leaves, answer when that is committed."""
    response = LeaveGroupResponse(members=(yield from in_steps(_result, request.members)))
    if context.api_version >= _MEMBERS_SINCE:
        left = groups.leave(request.group_id, request.members)
        return map_answer(left, partial(_fill, response))
    left = groups.leave(request.group_id, [MemberIdentity(member_id=request.member_id)])
    return map_answer(left, lambda codes: LeaveGroupResponse(error_code=codes[0]))


def _result(leaving: MemberIdentity) -> MemberResponse:
    return MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id)


def _fill(response: LeaveGroupResponse, codes: Sequence[ErrorCode]) -> LeaveGroupResponse:
    for result, code in zip(response.members, codes, strict=True):
        result.error_code = code
    return response
