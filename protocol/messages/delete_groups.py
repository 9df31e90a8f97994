"""DeleteGroups (key 42)."""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Int16, Int32, String


@message
class DeleteGroupsRequest:
    groups_names: Array[String]


@message
class DeletableGroupResult:
    group_id: String
    error_code: Int16 = field(default=0)


@message
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = field(default=0)
    results: Array[DeletableGroupResult]


API = Api(
    key=42,
    name="DeleteGroups",
    versions=range(3),
    flexible=2,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
)
