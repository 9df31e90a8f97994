"""DeleteAcls (key 31): deletes the access control rules that filters match.

v1 has pattern types (KIP-290), and a throttled response is sent before the throttling; v2 flexible;
v3 users as resources (KIP-373).

Errors: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED. By filter also INVALID_REQUEST.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.messages.create_acls import LITERAL
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, NullableString, String


@message
class DeleteAclsFilter:
    """A filter: null matches every name, principal or host; code 1 (ANY) every type."""

    resource_type_filter: Int8
    resource_name_filter: NullableString
    pattern_type_filter: Int8 = since(1, default=LITERAL)
    principal_filter: NullableString
    host_filter: NullableString
    operation: Int8
    permission_type: Int8


@message
class DeleteAclsRequest:
    """The filters; a rule is deleted if any of them matches it."""

    filters: Array[DeleteAclsFilter]


@message
class DeleteAclsMatchingAcl:
    """A rule that a filter matched, and whether it was deleted."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = since(1, default=LITERAL)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message
class DeleteAclsFilterResult:
    """The result for one filter."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    matching_acls: Array[DeleteAclsMatchingAcl]


@message
class DeleteAclsResponse:
    """The results: one entry per filter of the request."""

    throttle_time_ms: Int32 = field(default=0)
    filter_results: Array[DeleteAclsFilterResult]


API = declare(
    __name__,
    flexible=2,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
)
