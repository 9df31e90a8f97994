"""JoinGroup (key 11): come into a group, and wait for its next generation.

v1 rebalance timeout, v4 MEMBER_ID_REQUIRED (KIP-394), v5 static members (KIP-345), v7 the
protocol's type, v8 a reason, v9 skip_assignment for a static leader that came back. Errors:
INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, and those of coordinators.
"""

from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.group.joining import Client
from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.join_group import API, JoinGroupRequest, JoinGroupResponse

__all__ = ["API", "SERVES", "JoinGroupHandler", "error_response"]

SERVES = range(10)
_NULL_PROTOCOL_SINCE = 7


class JoinGroupHandler:
    """Parks each member until all are there."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: JoinGroupRequest, context: RequestContext) -> Soon[JoinGroupResponse]:
        # Kafka writes addresses as Java does, and tools show them so.
        host = f"/{context.client_host}"
        client = Client(context.api_version, context.client_id or "", host)
        return self._groups.join(request, client)


def error_response(request: JoinGroupRequest, code: ErrorCode, version: int) -> JoinGroupResponse:
    """No generation; a member that was turned away for lack of room loses its id."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= _NULL_PROTOCOL_SINCE else "",
        leader="",
        member_id="" if code is ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id,
        members=[],
    )
