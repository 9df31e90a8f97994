"""SaslHandshake (key 17): chooses a SASL mechanism (KIP-43).

v1 the exchange that follows is in SaslAuthenticate requests (KIP-152); after v0 it has no headers.
The version cannot be raised: clients up to 2.4 negotiate it wrongly (KAFKA-9577).

Errors: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Int16, String


@message
class SaslHandshakeRequest:
    """The mechanism that the client chose."""

    mechanism: String


@message
class SaslHandshakeResponse:
    """The result, and the mechanisms that the listener offers."""

    error_code: Int16 = field(default=0)
    mechanisms: Array[String]


API = declare(
    __name__,
    flexible=None,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
)
