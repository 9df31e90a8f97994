"""AlterConfigs (key 33): replaces all overrides of a resource. Deprecated by key 44 (KIP-339).

v2 flexible.

Errors by resource: the same as of IncrementalAlterConfigs.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, NullableString, String


@message
class AlterableConfig:
    """The new value of one key."""

    name: String
    value: NullableString


@message
class AlterConfigsResource:
    """All overrides that the resource will have."""

    resource_type: Int8
    resource_name: String
    configs: Array[AlterableConfig]


@message
class AlterConfigsRequest:
    """The request; with `validate_only` nothing is changed."""

    resources: Array[AlterConfigsResource]
    validate_only: Bool


@message
class AlterConfigsResourceResponse:
    """The result for one resource."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    resource_type: Int8
    resource_name: String


@message
class AlterConfigsResponse:
    """The results: one entry per resource of the request."""

    throttle_time_ms: Int32 = field(default=0)
    responses: Array[AlterConfigsResourceResponse]


API = declare(
    __name__,
    flexible=2,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
)
