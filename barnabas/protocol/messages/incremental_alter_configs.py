"""IncrementalAlterConfigs (key 44): changes single overrides of a resource (KIP-339).

v1 flexible.

Errors by resource: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER,
POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.messages.alter_configs import AlterConfigsResourceResponse
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Bool, Int8, Int32, NullableString, String


@message
class AlterableConfig:
    """One change: 0 set, 1 delete; for lists also 2 append, 3 subtract."""

    name: String
    config_operation: Int8
    value: NullableString


@message
class AlterConfigsResource:
    """The changes of one resource; all or none of them take effect."""

    resource_type: Int8
    resource_name: String
    configs: Array[AlterableConfig]


@message
class IncrementalAlterConfigsRequest:
    """The request; with `validate_only` nothing is changed."""

    resources: Array[AlterConfigsResource]
    validate_only: Bool


@message
class IncrementalAlterConfigsResponse:
    """The results: one entry per resource of the request."""

    throttle_time_ms: Int32 = field(default=0)
    responses: Array[AlterConfigsResourceResponse]


API = declare(
    __name__,
    flexible=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
)
