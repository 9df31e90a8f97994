"""ListConfigResources (key 74): resources that have configs.

v0 listed client metrics only (KIP-714); v1 the types that are asked for (KIP-1142).

Errors: UNSUPPORTED_VERSION for a type that is unknown, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, String


@message
class ListConfigResourcesRequest:
    """No types ask for all types."""

    resource_types: Array[Int8] = since(1, default_factory=list)


@message
class ConfigResource:
    """A resource by type and name."""

    resource_name: String
    resource_type: Int8 = since(1, default=16, ignorable=True)


@message
class ListConfigResourcesResponse:
    """The resources found."""

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
