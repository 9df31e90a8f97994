"""DescribeConfigs (key 32)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    String,
)


@message
class DescribeConfigsResource:
    resource_type: Int8
    resource_name: String
    configuration_keys: NullableArray[String]


@message
class DescribeConfigsRequest:
    resources: Array[DescribeConfigsResource]
    include_synonyms: Bool = field(default=False)
    include_documentation: Bool = since(3, default=False)


@message
class DescribeConfigsSynonym:
    name: String
    value: NullableString
    source: Int8


@message
class DescribeConfigsResourceResult:
    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8 = field(default=-1, ignorable=True)
    is_sensitive: Bool
    synonyms: Array[DescribeConfigsSynonym] = field(ignorable=True)
    config_type: Int8 = since(3, default=0, ignorable=True)
    documentation: NullableString = since(3, default="", ignorable=True)


@message
class DescribeConfigsResult:
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    resource_type: Int8
    resource_name: String
    configs: Array[DescribeConfigsResourceResult]


@message
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = field(default=0)
    results: Array[DescribeConfigsResult]


API = Api(
    key=32,
    name="DescribeConfigs",
    versions=range(1, 5),
    flexible=4,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
)
