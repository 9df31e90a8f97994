"""CreateAcls (key 30): adds access control rules.

v1 has pattern types (KIP-290), and a throttled response is sent before the throttling; v2 flexible;
v3 users as resources (KIP-373).

Errors: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED. By rule also INVALID_REQUEST.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, NullableString, String

LITERAL = 3
"""The pattern type of a resource name that is compared as a whole."""


@message
class AclCreation:
    """A rule; types, operation and permission are the codes in `security.acl.rules`."""

    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = since(1, default=LITERAL)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message
class CreateAclsRequest:
    """The rules to add."""

    creations: Array[AclCreation]


@message
class AclCreationResult:
    """The result for one rule."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)


@message
class CreateAclsResponse:
    """The results: one entry per rule of the request."""

    throttle_time_ms: Int32 = field(default=0)
    results: Array[AclCreationResult]


API = declare(
    __name__,
    flexible=2,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
)
