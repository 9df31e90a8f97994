"""DescribeUserScramCredentials (key 50): users, their mechanisms and iterations (KIP-554)."""

from barnabas.broker.security.rights import CLUSTER, DESCRIBE, Need, Rights
from barnabas.broker.security.scram_users import ScramUsers
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_user_scram_credentials import (
    API,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.protocol.steps import Steps, counted

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(whole=(Need(DESCRIBE, CLUSTER),))


def handle(
    users: ScramUsers, request: DescribeUserScramCredentialsRequest, _context: RequestContext
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Describe the named users, or all."""
    if request.users:
        asked = yield from counted(each.name for each in request.users)
    else:
        asked = yield from counted(list(users.names))
    results = []
    for name, times in asked.items():
        results.append(_described(users, name, times))
        yield None
    return DescribeUserScramCredentialsResponse(results=results)


def _described(users: ScramUsers, name: str, times: int) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name)
    credentials = users.credentials(name)
    if times > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    elif not credentials:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    result.credential_infos = (
        []
        if result.error_code
        else [
            CredentialInfo(mechanism=mechanism.code, iterations=credential.iterations)
            for mechanism, credential in credentials.items()
        ]
    )
    return result
