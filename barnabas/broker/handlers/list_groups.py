"""ListGroups (key 16): the groups that this broker coordinates.

v4 filters by state (KIP-518), v5 by type (KIP-848). Error: COORDINATOR_LOAD_IN_PROGRESS while a
partition of `__consumer_offsets` is being loaded, because its groups would be missing.
"""

from barnabas.broker.security.rights import CLUSTER, DESCRIBE, GROUP, Need, Rights, Shown
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.protocol.messages.list_groups import API, ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    shown=Shown("groups", Need(DESCRIBE, GROUP, "group_id", unless=Need(DESCRIBE, CLUSTER)))
)


def handle(
    groups: GroupCoordinator,
    request: ListGroupsRequest,
    _context: RequestContext,
) -> Steps[ListGroupsResponse]:
    """List the groups in their present state."""
    listing = yield from groups.listing(request.states_filter, request.types_filter)
    return ListGroupsResponse(groups=listing)
