"""AlterConfigs (key 33)."""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, NullableString, String


@message
class AlterableConfig:
    name: String
    value: NullableString


@message
class AlterConfigsResource:
    resource_type: Int8
    resource_name: String
    configs: Array[AlterableConfig]


@message
class AlterConfigsRequest:
    resources: Array[AlterConfigsResource]
    validate_only: Bool


@message
class AlterConfigsResourceResponse:
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    resource_type: Int8
    resource_name: String


@message
class AlterConfigsResponse:
    throttle_time_ms: Int32 = field(default=0)
    responses: Array[AlterConfigsResourceResponse]


API = Api(
    key=33,
    name="AlterConfigs",
    versions=range(3),
    flexible=2,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
)
