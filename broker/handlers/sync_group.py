"""SyncGroup (key 14): the leader gives out assignments, every member gets its own.

v3 static members, v5 the protocol's type and name, which then must be there. Errors:
INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS, and those of coordinators.
"""

from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.sync_group import API, SyncGroupRequest, SyncGroupResponse

__all__ = ["API", "SERVES", "SyncGroupHandler", "error_response"]

SERVES = range(6)
_PROTOCOL_SINCE = 5


class SyncGroupHandler:
    """Parks followers until the leader's assignment is committed."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: SyncGroupRequest, context: RequestContext) -> Soon[SyncGroupResponse]:
        if context.api_version >= _PROTOCOL_SINCE and None in (
            request.protocol_type,
            request.protocol_name,
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return self._groups.sync(request)


def error_response(
    request: SyncGroupRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> SyncGroupResponse:
    """No assignment, and why."""
    return SyncGroupResponse(error_code=code, assignment=b"")
