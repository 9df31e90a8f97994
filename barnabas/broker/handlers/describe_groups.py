"""DescribeGroups (key 15): the groups and their members, for tools.

v3 authorized operations (KIP-430), v4 static members, v6 GROUP_ID_NOT_FOUND (KIP-1043): older
versions describe a group that does not exist as Dead, without an error. Errors by group: those of
coordinators.
"""

from barnabas.broker.cluster.operations import GROUP_OPERATIONS
from barnabas.broker.security.rights import DESCRIBE, GROUP, Each, Need, Operations, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_groups import (
    API,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    each=Each(
        "groups",
        (Need(DESCRIBE, GROUP),),
        lambda group_id, code, _: _error(group_id, code),
        "groups",
    ),
    operations=(Operations("authorized_operations", GROUP, "groups", "group_id"),),
)

_NOT_FOUND_SINCE = 6


def handle(
    groups: GroupCoordinator, request: DescribeGroupsRequest, context: RequestContext
) -> Steps[DescribeGroupsResponse]:
    """Describe each group in its present state, once."""
    known: dict[str, DescribedGroup] = {}
    for group_id in request.groups:
        yield None
        if group_id not in known:
            group = known[group_id] = yield from _describe(groups, group_id, context.api_version)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=list(known.values()))


def _describe(groups: GroupCoordinator, group_id: str, version: int) -> Steps[DescribedGroup]:
    try:
        return (yield from groups.describe(group_id))
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return _error(group_id, error.code)
        dead = _error(group_id, ErrorCode.NONE)
        dead.group_state = GroupState.DEAD.value
        if version >= _NOT_FOUND_SINCE:
            dead.error_code = error.code
            dead.error_message = error.message
        return dead


def _error(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )
