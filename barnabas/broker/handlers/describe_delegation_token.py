"""DescribeDelegationToken (key 41): lists delegation tokens with their HMACs (KIP-48).

v3 the principals that asked for the tokens (KIP-373). Errors: DELEGATION_TOKEN_AUTH_DISABLED,
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. Owner, requester and renewers see a token; for others it needs
a right.
"""

from barnabas.broker.security.delegation_tokens import TokenRequests, principals
from barnabas.broker.security.rights import (
    DELEGATION_TOKEN,
    DESCRIBE,
    DESCRIBE_TOKENS,
    USER,
    Need,
    Rights,
)
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.messages.describe_delegation_token import (
    API,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.steps import Steps
from barnabas.security.principal import Principal
from barnabas.security.sasl.credentials import DelegationToken

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    inside=(
        Need(
            DESCRIBE,
            DELEGATION_TOKEN,
            "token_id",
            unless=Need(DESCRIBE_TOKENS, USER, "principal_name"),
            without="left out of `tokens`, except for owner, requester and renewers",
        ),
    )
)


def handle(
    parts: TokenRequests, request: DescribeDelegationTokenRequest, context: RequestContext
) -> Steps[DescribeDelegationTokenResponse]:
    """Describe the tokens of the named owners, or all, that the client may see."""
    parts.require_allowed(context)
    tokens = parts.enabled()
    asked: set[Principal] | None = None
    if request.owners is not None:
        asked = set()
        for each in request.owners:
            asked.add(Principal(each.principal_type, each.principal_name))
            yield None
    described = []
    for token in tokens.known() if asked is None or asked else ():
        yield None
        named = asked is None or not asked.isdisjoint(
            (token.owner, token.requester, *token.renewers)
        )
        if named and _is_shown(token, context):
            described.append(_described(token, context.api_version))
    return DescribeDelegationTokenResponse(tokens=described)


def _is_shown(token: DelegationToken, context: RequestContext) -> bool:
    return (
        token.is_shown_to(context.principal)
        or context.allows(DESCRIBE, DELEGATION_TOKEN, token.id, log_denied=False)
        or context.allows(DESCRIBE_TOKENS, USER, str(token.owner), log_denied=False)
    )


def _described(token: DelegationToken, version: int) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        **principals(version, token.owner, token.requester),
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=token.hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=type, principal_name=name)
            for type, name in token.renewers
        ],
    )
