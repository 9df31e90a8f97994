"""The client of a JoinGroup, and what its version of the request means."""

from typing import Final, NamedTuple

from barnabas.coordinator.group.group import Protocols
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_MEMBER_ID_REQUIRED_SINCE: Final = 4
_NULL_PROTOCOL_SINCE: Final = 7


class Client(NamedTuple):
    """The client of a JoinGroup, from its connection and its request."""

    version: int
    """The version of JoinGroup."""
    client_id: str
    client_host: str
    protocols: Protocols
    """The protocols of the request, which may be very many."""

    def needs_id(self, request: JoinGroupRequest) -> bool:
        """Return whether it has to join again with the id that it is given (KIP-394)."""
        return (
            not request.member_id
            and request.group_instance_id is None
            and self.version >= _MEMBER_ID_REQUIRED_SINCE
        )

    def with_id(self, member_id: str) -> JoinGroupResponse:
        """Return the response that gives it an id."""
        return self.refusal(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def refusal(self, code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
        """Return the answer with an error."""
        return JoinGroupResponse(
            error_code=code,
            protocol_name=None if self.version >= _NULL_PROTOCOL_SINCE else "",
            leader="",
            member_id=member_id,
            members=[],
        )


def rebalance_timeout(request: JoinGroupRequest) -> int:
    """Return the rebalance timeout; version 0 has none, and its session timeout serves for both."""
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms
