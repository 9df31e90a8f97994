"""JoinGroup (key 11): join a group, and wait for its next generation.

v1 rebalance timeout, v4 MEMBER_ID_REQUIRED (KIP-394), v5 static members (KIP-345), v7 the
protocol's type, v8 a reason, v9 skip_assignment for a static leader that rejoins. Errors:
INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, and those of coordinators.
"""

from barnabas.broker.security.rights import GROUP, READ, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.client import Client
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import settle
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.join_group import API, JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.steps import Steps, in_steps

__all__ = ["API", "RIGHTS", "error_response", "handle"]

RIGHTS = Rights(whole=(Need(READ, GROUP, "group_id"),), again=True)
_NULL_PROTOCOL_SINCE = 7
_WITHOUT_MEMBER_ID = (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.GROUP_AUTHORIZATION_FAILED)


def handle(
    groups: GroupCoordinator, request: JoinGroupRequest, context: RequestContext
) -> Steps[JoinGroupResponse]:
    """Let a member join the group; the response waits until all members have joined."""
    # The form of Java's addresses, as in Kafka: tools show it.
    host = f"/{context.client_host}"
    protocols = yield from in_steps(lambda each: (each.name, each.metadata), request.protocols)
    client = Client(context.api_version, context.client_id or "", host, tuple(protocols))
    return (yield from settle(groups.join(request, client)))


def error_response(request: JoinGroupRequest, code: ErrorCode, version: int) -> JoinGroupResponse:
    """Answer without a generation; as Kafka, some errors without the member id too."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= _NULL_PROTOCOL_SINCE else "",
        leader="",
        member_id="" if code in _WITHOUT_MEMBER_ID else request.member_id,
        members=[],
    )
