"""ExpireDelegationToken (key 40): sets the end of a delegation token (KIP-48).

v2 flexible. Kafka 4 dropped v0.

Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Bytes, Int16, Int32, Int64


@message
class ExpireDelegationTokenRequest:
    """The token by its HMAC; a negative period ends it at once."""

    hmac: Bytes = field(secret=True)
    expiry_time_period_ms: Int64


@message
class ExpireDelegationTokenResponse:
    """The new end of the token, in ms since the epoch."""

    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)


API = declare(
    __name__,
    flexible=2,
    request=ExpireDelegationTokenRequest,
    response=ExpireDelegationTokenResponse,
)
