"""CreateDelegationToken (key 38): makes a token with which others log in as its owner (KIP-48).

v2 flexible; v3 an owner other than the principal that asks (KIP-373). Kafka 4 dropped v0.

Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
DELEGATION_TOKEN_AUTHORIZATION_FAILED, INVALID_PRINCIPAL_TYPE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Bytes, Int16, Int32, Int64, NullableString, String


@message
class CreatableRenewers:
    """A principal that may renew the token."""

    principal_type: String
    principal_name: String


@message
class CreateDelegationTokenRequest:
    """The token: without an owner it is of the principal that asks; -1 is the longest lifetime."""

    owner_principal_type: NullableString = since(3, default="", nullable=3)
    owner_principal_name: NullableString = since(3, default="", nullable=3)
    renewers: Array[CreatableRenewers]
    max_lifetime_ms: Int64


@message
class CreateDelegationTokenResponse:
    """The token; its HMAC is a secret."""

    error_code: Int16 = field(default=0)
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = since(3, default="")
    token_requester_principal_name: String = since(3, default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes = field(secret=True)
    throttle_time_ms: Int32 = field(default=0)


API = declare(
    __name__,
    flexible=2,
    request=CreateDelegationTokenRequest,
    response=CreateDelegationTokenResponse,
)
