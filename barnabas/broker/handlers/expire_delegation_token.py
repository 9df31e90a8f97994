"""ExpireDelegationToken (key 40): sets the end of a delegation token (KIP-48).

Owner and renewers may do that. Errors: DELEGATION_TOKEN_AUTH_DISABLED,
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED,
DELEGATION_TOKEN_OWNER_MISMATCH.
"""

from barnabas.broker.security.delegation_tokens import TokenRequests, refused_end_ms
from barnabas.broker.security.rights import NOTHING
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.expire_delegation_token import (
    API,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "error_response", "handle"]

RIGHTS = NOTHING


def handle(
    parts: TokenRequests, request: ExpireDelegationTokenRequest, context: RequestContext
) -> Steps[ExpireDelegationTokenResponse]:
    """End the token after the period; at once, and delete it, if the period is negative."""

    def ended(now_ms: int) -> int:
        return now_ms + request.expiry_time_period_ms

    expires_ms = yield in_task(parts.change(request.hmac, context, ended))
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)


def error_response(
    _request: ExpireDelegationTokenRequest, code: ErrorCode, _version: int
) -> ExpireDelegationTokenResponse:
    """Answer without a time."""
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=refused_end_ms(code))
