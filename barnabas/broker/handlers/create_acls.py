"""CreateAcls (key 30): add access control rules.

v1 pattern types (KIP-290). Errors: SECURITY_DISABLED without an authorizer; by rule
INVALID_REQUEST, also for a name that the metadata store cannot hold, POLICY_VIOLATION if there are
too many rules, and UNKNOWN_SERVER_ERROR if the stored rules of the resource cannot be read.
"""

from barnabas.broker.security.cluster_acls import AclError, ClusterAcls
from barnabas.broker.security.rights import ALTER, CLUSTER, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_acls import (
    API,
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.protocol.steps import Steps, in_steps
from barnabas.security.acl.rules import AclBinding, InvalidAcl, new_rule

__all__ = ["API", "NO_AUTHORIZER", "RIGHTS", "handle", "text_of"]

NO_AUTHORIZER = "No Authorizer is configured."
"""The message of SECURITY_DISABLED."""


def text_of(code: ErrorCode) -> str:
    """Return the message of an error that concerns the whole request."""
    return NO_AUTHORIZER if code is ErrorCode.SECURITY_DISABLED else code.text


def _refused(_creation: AclCreation, code: ErrorCode, _version: int) -> AclCreationResult:
    return AclCreationResult(error_code=code, error_message=text_of(code))


RIGHTS = Rights(whole=(Need(ALTER, CLUSTER),), each=Each("creations", (), _refused, "results"))


def handle(
    acls: ClusterAcls | None, request: CreateAclsRequest, _context: RequestContext
) -> Steps[CreateAclsResponse]:
    """Add the valid rules; answer when they are in force on this broker."""
    if acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    made = yield from in_steps(_rule, request.creations)
    rules = []
    for each in made:
        if isinstance(each, AclBinding):
            rules.append(each)
        yield None
    created = iter((yield in_task(acls.create(rules))))

    def result(each: AclBinding | AclError) -> AclCreationResult:
        error = next(created) if isinstance(each, AclBinding) else each
        if error is None:
            return AclCreationResult()
        return AclCreationResult(error_code=error.code, error_message=error.message)

    return CreateAclsResponse(results=(yield from in_steps(result, made)))


def _rule(creation: AclCreation) -> AclBinding | AclError:
    try:
        return new_rule(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
    except InvalidAcl as error:
        return AclError(ErrorCode.INVALID_REQUEST, str(error))
