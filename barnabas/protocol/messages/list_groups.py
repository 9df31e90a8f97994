"""ListGroups (key 16): lists the groups that a broker coordinates.

v3 flexible; v4 filter by state (KIP-518); v5 filter by type (KIP-848).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int16, Int32, String


@message
class ListGroupsRequest:
    """The filters; an empty one matches every group."""

    states_filter: Array[String] = since(4, default_factory=list)
    types_filter: Array[String] = since(5, default_factory=list)


@message
class ListedGroup:
    """A group without its members."""

    group_id: String
    protocol_type: String
    group_state: String = since(4, default="", ignorable=True)
    group_type: String = since(5, default="", ignorable=True)


@message
class ListGroupsResponse:
    """The matching groups of this broker."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    groups: Array[ListedGroup]


API = declare(
    __name__,
    flexible=3,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
)
