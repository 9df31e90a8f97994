"""DescribeAcls (key 29): the access control rules in force that a filter matches.

v1 pattern types (KIP-290). Errors: SECURITY_DISABLED without an authorizer; INVALID_REQUEST for an
unknown type, operation or permission; UNKNOWN_SERVER_ERROR while the rules are not loaded.
"""

from barnabas.broker.handlers.create_acls import NO_AUTHORIZER
from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.broker.security.rights import CLUSTER, DESCRIBE, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_acls import (
    API,
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.protocol.steps import Steps
from barnabas.security.acl.rules import (
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(whole=(Need(DESCRIBE, CLUSTER),))


def handle(
    acls: ClusterAcls | None, request: DescribeAclsRequest, _context: RequestContext
) -> Steps[DescribeAclsResponse]:
    """Answer from the rules of this broker."""
    if acls is None:
        return _error(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    wanted = AclFilter(
        ResourceType(request.resource_type_filter),
        request.resource_name_filter,
        PatternType(request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        AclOperation(request.operation),
        AclPermissionType(request.permission_type),
    )
    reason = wanted.refusal()
    if reason is not None:
        return _error(ErrorCode.INVALID_REQUEST, reason)
    rules = acls.rules
    if rules is None:
        return _error(ErrorCode.UNKNOWN_SERVER_ERROR, "The rules are not loaded.")
    resources = []
    for pattern, entries in rules.patterns():
        yield None
        if not wanted.matches_pattern(pattern):
            continue
        found = []
        for entry in entries:
            if wanted.matches_entry(entry):
                found.append(
                    AclDescription(
                        principal=str(entry.principal),
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission,
                    )
                )
            yield None
        if found:
            resources.append(
                DescribeAclsResource(
                    resource_type=pattern.type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=found,
                )
            )
    return DescribeAclsResponse(resources=resources)


def _error(code: ErrorCode, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message, resources=[])
