"""RenewDelegationToken (key 39): puts off the end of a delegation token (KIP-48).

v2 flexible. Kafka 4 dropped v0.

Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Bytes, Int16, Int32, Int64


@message
class RenewDelegationTokenRequest:
    """The token by its HMAC; a period of -1 is the broker's default."""

    hmac: Bytes = field(secret=True)
    renew_period_ms: Int64


@message
class RenewDelegationTokenResponse:
    """The new end of the token, in ms since the epoch."""

    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)


API = declare(
    __name__,
    flexible=2,
    request=RenewDelegationTokenRequest,
    response=RenewDelegationTokenResponse,
)
