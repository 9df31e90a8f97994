"""DescribeDelegationToken (key 41): lists delegation tokens with their HMACs (KIP-48).

v2 flexible; v3 the principals that asked for the tokens (KIP-373). Kafka 4 dropped v0.

Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. A token that the
principal may not see is left out.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Bytes, Int16, Int32, Int64, NullableArray, String


@message
class DescribeDelegationTokenOwner:
    """An owner of tokens."""

    principal_type: String
    principal_name: String


@message
class DescribeDelegationTokenRequest:
    """The owners; null for all."""

    owners: NullableArray[DescribeDelegationTokenOwner]


@message
class DescribedDelegationTokenRenewer:
    """A principal that may renew the token."""

    principal_type: String
    principal_name: String


@message
class DescribedDelegationToken:
    """A token; its HMAC is a secret."""

    principal_type: String
    principal_name: String
    token_requester_principal_type: String = since(3, default="")
    token_requester_principal_name: String = since(3, default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: String
    hmac: Bytes = field(secret=True)
    renewers: Array[DescribedDelegationTokenRenewer]


@message
class DescribeDelegationTokenResponse:
    """The tokens."""

    error_code: Int16 = field(default=0)
    tokens: Array[DescribedDelegationToken]
    throttle_time_ms: Int32 = field(default=0)


API = declare(
    __name__,
    flexible=2,
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
)
