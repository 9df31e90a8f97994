"""DescribeConfigs (key 32): returns the configs of topics, brokers, groups and loggers.

v1 sources and synonyms (KIP-226); v3 types and documentation (KIP-569); v4 flexible.

Errors by resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST,
TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
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
    """A resource by type and name; null keys ask for all."""

    resource_type: Int8
    resource_name: String
    configuration_keys: NullableArray[String]


@message
class DescribeConfigsRequest:
    """The request; synonyms and documentation are included only on request."""

    resources: Array[DescribeConfigsResource]
    include_synonyms: Bool = field(default=False)
    include_documentation: Bool = since(3, default=False)


@message
class DescribeConfigsSynonym:
    """Another source that sets the key, in order of precedence."""

    name: String
    value: NullableString
    source: Int8


@message
class DescribeConfigsResourceResult:
    """One key; the value is null if it is sensitive."""

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
    """The configs of one resource."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    resource_type: Int8
    resource_name: String
    configs: Array[DescribeConfigsResourceResult]


@message
class DescribeConfigsResponse:
    """The results: one entry per resource of the request."""

    throttle_time_ms: Int32 = field(default=0)
    results: Array[DescribeConfigsResult]


API = declare(
    __name__,
    flexible=4,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
)
