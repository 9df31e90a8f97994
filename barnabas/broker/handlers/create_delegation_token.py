"""CreateDelegationToken (key 38): makes a token with which others log in as its owner (KIP-48).

v3 an owner other than the principal that asks (KIP-373). Errors: DELEGATION_TOKEN_AUTH_DISABLED
without `delegation.token.secret.key`, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that is
anonymous or came in by a token, DELEGATION_TOKEN_AUTHORIZATION_FAILED, INVALID_PRINCIPAL_TYPE;
POLICY_VIOLATION if there are too many tokens.
"""

from collections.abc import Sequence
from typing import Final

from barnabas.broker.security.delegation_tokens import (
    MAX_TOKEN_BYTES,
    TokenRequests,
    principals,
    reached,
    too_many_renewers,
)
from barnabas.broker.security.rights import CREATE_TOKENS, USER, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_delegation_token import (
    API,
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.steps import Steps
from barnabas.security.principal import ANONYMOUS, Principal
from barnabas.security.principal import USER as USER_TYPE
from barnabas.security.sasl.credentials import DelegationToken

__all__ = ["API", "RIGHTS", "error_response", "handle"]

_LEAST_RENEWER: Final = len('"User:a",')
"""The bytes that a renewer takes in the node of a token."""


def _is_for_another(request: CreateDelegationTokenRequest) -> bool:
    """Return whether the owner is another principal."""
    return bool(request.owner_principal_name)


RIGHTS = Rights(inside=(Need(CREATE_TOKENS, USER, "owner_principal_name", when=_is_for_another),))


def handle(
    parts: TokenRequests, request: CreateDelegationTokenRequest, context: RequestContext
) -> Steps[CreateDelegationTokenResponse]:
    """Store a token, and answer with its HMAC; a refusal names owner and requester too."""
    requester = Principal(*context.principal)
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    try:
        token = yield from _created(parts, request, context, owner, requester)
    except KafkaError as error:
        return _refusal(error.code, context.api_version, owner, requester)
    return CreateDelegationTokenResponse(
        **principals(context.api_version, owner, requester),
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.id,
        hmac=token.hmac,
    )


def _created(
    parts: TokenRequests,
    request: CreateDelegationTokenRequest,
    context: RequestContext,
    owner: Principal,
    requester: Principal,
) -> Steps[DelegationToken]:
    parts.require_allowed(context)
    if owner != requester and not context.allows(CREATE_TOKENS, USER, str(owner)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    _require_few(request.renewers)
    renewers = tuple(Principal(r.principal_type, r.principal_name) for r in request.renewers)
    if any(each.type != USER_TYPE for each in renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    tokens, config, now_ms = parts.enabled(), parts.config(), parts.now_ms()
    lifetime_ms = config.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    token_id, max_ms = parts.new_id(), now_ms + lifetime_ms
    token = DelegationToken(
        id=token_id,
        owner=owner,
        requester=requester,
        renewers=renewers,
        issued_ms=now_ms,
        max_ms=max_ms,
        expires_ms=min(max_ms, now_ms + config.delegation_token_expiry_time_ms),
        hmac=tokens.hmac(token_id),
    )
    with reached():
        yield in_task(tokens.create(token))
    return token


def _require_few(renewers: Sequence[CreatableRenewers]) -> None:
    """Raise KafkaError if one token cannot have so many renewers; a few names cost no time."""
    if (
        len(renewers) > MAX_TOKEN_BYTES // _LEAST_RENEWER
        or sum([len(each.principal_name) for each in renewers]) > MAX_TOKEN_BYTES
    ):
        raise too_many_renewers()


def _refusal(
    code: ErrorCode, version: int, owner: Principal, requester: Principal
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        **principals(version, owner, requester),
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )


def error_response(
    _request: CreateDelegationTokenRequest, code: ErrorCode, version: int
) -> CreateDelegationTokenResponse:
    """Answer without a token; as in Kafka, it names no principal."""
    return _refusal(code, version, ANONYMOUS, ANONYMOUS)
