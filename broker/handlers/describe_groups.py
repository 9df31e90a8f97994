"""DescribeGroups (key 15): groups with their members, for people.

v3 authorized operations (KIP-430), v4 static members, v6 tells GROUP_ID_NOT_FOUND (KIP-1043);
before that a group that does not exist is Dead, without an error. Errors by group: those of
coordinators.
"""

from typing import Final

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

__all__ = ["API", "SERVES", "DescribeGroupsHandler", "error_response"]

SERVES = range(7)
_NOT_FOUND_SINCE = 6
_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS = 3, 6, 8, 10, 11
GROUP_OPERATIONS: Final = sum(
    1 << each for each in (_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
)
"""Everything that can be done to a group: without an authorizer everybody may."""


class DescribeGroupsHandler:
    """Answers from the groups as they are now."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> DescribeGroupsResponse:
        groups = [self._describe(each, context.api_version) for each in request.groups]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            return self._groups.describe(group_id)
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


def error_response(
    request: DescribeGroupsRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> DescribeGroupsResponse:
    """The error for every group."""
    return DescribeGroupsResponse(groups=[_error(each, code) for each in request.groups])
