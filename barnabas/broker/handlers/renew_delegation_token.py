"""RenewDelegationToken (key 39): puts off the end of a delegation token (KIP-48).

Owner and renewers may do that. Errors: DELEGATION_TOKEN_AUTH_DISABLED,
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED,
DELEGATION_TOKEN_OWNER_MISMATCH.
"""

from barnabas.broker.security.delegation_tokens import TokenRequests, refused_end_ms
from barnabas.broker.security.rights import NOTHING
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.renew_delegation_token import (
    API,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "error_response", "handle"]

RIGHTS = NOTHING


def handle(
    parts: TokenRequests, request: RenewDelegationTokenRequest, context: RequestContext
) -> Steps[RenewDelegationTokenResponse]:
    """Answer with the new end: at most the one that the broker's keys allow."""

    def renewed(now_ms: int) -> int:
        period_ms = parts.config().delegation_token_expiry_time_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        return now_ms + period_ms

    expires_ms = yield in_task(parts.change(request.hmac, context, renewed))
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)


def error_response(
    _request: RenewDelegationTokenRequest, code: ErrorCode, _version: int
) -> RenewDelegationTokenResponse:
    """Answer without a time."""
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=refused_end_ms(code))
