"""SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152).

v1 has the lifetime of the session, and its client can authenticate again (KIP-368); v2 flexible.

Errors: SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Bytes, Int16, Int64, NullableString


@message
class SaslAuthenticateRequest:
    """A message of the client; its form is the mechanism's."""

    auth_bytes: Bytes = field(secret=True)


@message
class SaslAuthenticateResponse:
    """The server's message; a session of lifetime 0 does not end."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default="")
    auth_bytes: Bytes = field(default=b"", secret=True)
    session_lifetime_ms: Int64 = since(1, default=0, ignorable=True)


API = declare(
    __name__,
    flexible=2,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
)
