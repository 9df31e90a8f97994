"""ListConfigResources (key 74): lists the resources that have configs.

v0 listed client metrics only (KIP-714); v1 the requested types (KIP-1142).

Errors: UNSUPPORTED_VERSION for an unknown type, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, String


@message
class ListConfigResourcesRequest:
    """The types to list, all if empty."""

    resource_types: Array[Int8] = since(1, default_factory=list)


@message
class ConfigResource:
    """A resource by type and name."""

    resource_name: String
    resource_type: Int8 = since(1, default=16, ignorable=True)


@message
class ListConfigResourcesResponse:
    """The resources of these types."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    config_resources: Array[ConfigResource]


API = declare(
    __name__,
    flexible=0,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
)
