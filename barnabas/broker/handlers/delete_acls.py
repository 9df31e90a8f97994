"""DeleteAcls (key 31): delete the access control rules that filters match.

v1 pattern types (KIP-290). Errors: SECURITY_DISABLED without an authorizer; by filter
INVALID_REQUEST for an unknown type, operation or permission, POLICY_VIOLATION if the filters match
more than 100,000 rules together; by rule UNKNOWN_SERVER_ERROR if it
cannot be deleted.
"""

from barnabas.broker.handlers.create_acls import NO_AUTHORIZER, text_of
from barnabas.broker.security.cluster_acls import ClusterAcls, DeletedAcl
from barnabas.broker.security.rights import ALTER, CLUSTER, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_acls import (
    API,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.protocol.steps import Steps, in_steps
from barnabas.security.acl.rules import (
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    whole=(Need(ALTER, CLUSTER),),
    each=Each("filters", (), lambda _, code, __: _refused(code, text_of(code)), "filter_results"),
)


def handle(
    acls: ClusterAcls | None, request: DeleteAclsRequest, _context: RequestContext
) -> Steps[DeleteAclsResponse]:
    """Delete rules; answer when they are no longer in force on this broker."""
    if acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    filters = yield from in_steps(_filter, request.filters)
    valid = []
    for each in filters:
        if each.refusal() is None:
            valid.append(each)
        yield None
    by_filter, results = iter((yield in_task(acls.delete(valid)))), []
    for each in filters:
        yield None
        reason = each.refusal()
        if reason is not None:
            results.append(_refused(ErrorCode.INVALID_REQUEST, reason))
            continue
        matching = yield from in_steps(_matching, next(by_filter))
        results.append(DeleteAclsFilterResult(matching_acls=matching))
    return DeleteAclsResponse(filter_results=results)


def _filter(asked: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        ResourceType(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        AclOperation(asked.operation),
        AclPermissionType(asked.permission_type),
    )


def _matching(deleted: DeletedAcl) -> DeleteAclsMatchingAcl:
    (kind, name, how), (principal, host, operation, permission) = deleted.rule
    error = deleted.error
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=kind,
        resource_name=name,
        pattern_type=how,
        principal=str(principal),
        host=host,
        operation=operation,
        permission_type=permission,
    )


def _refused(code: ErrorCode, message: str) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
