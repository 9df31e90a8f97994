"""IncrementalAlterConfigs (key 44)."""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, NullableString, String


@message
class AlterableConfig:
    name: String
    config_operation: Int8
    value: NullableString


@message
class AlterConfigsResource:
    resource_type: Int8
    resource_name: String
    configs: Array[AlterableConfig]


@message
class IncrementalAlterConfigsRequest:
    resources: Array[AlterConfigsResource]
    validate_only: Bool


@message
class AlterConfigsResourceResponse:
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    resource_type: Int8
    resource_name: String


@message
class IncrementalAlterConfigsResponse:
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
