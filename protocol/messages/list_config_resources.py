"""ListConfigResources (key 74)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, String


@message
class ListConfigResourcesRequest:
    resource_types: Array[Int8] = since(1, default_factory=list)


@message
class ConfigResource:
    resource_name: String
    resource_type: Int8 = since(1, default=16, ignorable=True)


@message
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    config_resources: Array[ConfigResource]


API = Api(
    key=74,
    name="ListConfigResources",
    versions=range(2),
    flexible=0,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
)
