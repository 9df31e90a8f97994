"""DescribeAcls (key 29): lists the access control rules that a filter matches.

v1 has pattern types (KIP-290), and a throttled response is sent before the throttling; v2 flexible;
v3 users as resources (KIP-373).

Errors: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.messages.create_acls import LITERAL
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, NullableString, String


@message
class DescribeAclsRequest:
    """A filter: null matches every name, principal or host; code 1 (ANY) every type."""

    resource_type_filter: Int8
    resource_name_filter: NullableString
    pattern_type_filter: Int8 = since(1, default=LITERAL)
    principal_filter: NullableString
    host_filter: NullableString
    operation: Int8
    permission_type: Int8


@message
class AclDescription:
    """A rule of the resource above it."""

    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message
class DescribeAclsResource:
    """The rules of one resource pattern."""

    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = since(1, default=LITERAL)
    acls: Array[AclDescription]


@message
class DescribeAclsResponse:
    """The matching rules by resource pattern."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    resources: Array[DescribeAclsResource]


API = declare(
    __name__,
    flexible=2,
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
)
