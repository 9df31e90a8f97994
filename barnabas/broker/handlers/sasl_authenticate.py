"""SaslAuthenticate (key 36) where nothing is left to authenticate: ILLEGAL_SASL_STATE.

That is a listener without SASL, and a session. `barnabas/broker/server/sasl.py` answers it
otherwise.
"""

from barnabas.broker.security.rights import NOTHING
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.sasl_authenticate import (
    API,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = NOTHING


def handle(
    _parts: object, _request: SaslAuthenticateRequest, _context: RequestContext
) -> SaslAuthenticateResponse:
    """Refuse the request with Kafka's text."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
