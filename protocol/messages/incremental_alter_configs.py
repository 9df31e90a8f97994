"""IncrementalAlterConfigs (key 44): change single overrides of a resource (KIP-339).

v1 flexible.

Errors by resource: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER,
POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, NullableString, String


@message
class AlterableConfig:
    """One change: 0 set, 1 delete, 2 append and 3 subtract, which are for lists."""

    name: String
    config_operation: Int8
    value: NullableString


@message
class AlterConfigsResource:
    """The changes of one resource, all or none of which take effect."""

    resource_type: Int8
    resource_name: String
    configs: Array[AlterableConfig]


@message
class IncrementalAlterConfigsRequest:
    """With `validate_only` nothing is changed."""

    resources: Array[AlterConfigsResource]
    validate_only: Bool


@message
class AlterConfigsResourceResponse:
    """What became of one resource."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    resource_type: Int8
    resource_name: String


@message
class IncrementalAlterConfigsResponse:
    """One entry per resource of the request."""

    throttle_time_ms: Int32 = field(default=0)
    responses: Array[AlterConfigsResourceResponse]


API = Api(
    key=44,
    name="IncrementalAlterConfigs",
    versions=range(2),
    flexible=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
)
