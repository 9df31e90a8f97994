"""DeleteGroups (key 42): deletes empty groups with their offsets (KIP-229).

v2 flexible; v3 messages with errors.

Errors by group: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
INVALID_GROUP_ID, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int16, Int32, NullableString, String


@message
class DeleteGroupsRequest:
    """The groups to delete, all coordinated by this broker."""

    groups_names: Array[String]


@message
class DeletableGroupResult:
    """The result for one group."""

    group_id: String
    error_code: Int16 = field(default=0)
    error_message: NullableString = since(3, default=None, nullable=3, ignorable=True)


@message
class DeleteGroupsResponse:
    """The results: one entry per group of the request."""

    throttle_time_ms: Int32 = field(default=0)
    results: Array[DeletableGroupResult]


API = declare(
    __name__,
    flexible=2,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
)
