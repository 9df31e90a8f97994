"""ListGroups (key 16): the groups that this broker coordinates.

v4 filters by state (KIP-518), v5 by type (KIP-848). Errors: COORDINATOR_LOAD_IN_PROGRESS while a
partition of `__consumer_offsets` is being loaded, because the list would lack its groups.
"""

from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_groups import API, ListGroupsRequest, ListGroupsResponse

__all__ = ["API", "SERVES", "ListGroupsHandler", "error_response"]

SERVES = range(6)


class ListGroupsHandler:
    """Answers from the groups as they are now."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(
        self,
        request: ListGroupsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> ListGroupsResponse:
        groups = self._groups.listing(request.states_filter, request.types_filter)
        return ListGroupsResponse(groups=groups)


def error_response(
    request: ListGroupsRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> ListGroupsResponse:
    """No list rather than half of one."""
    return ListGroupsResponse(error_code=code, groups=[])
