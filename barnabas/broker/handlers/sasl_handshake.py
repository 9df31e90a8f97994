"""SaslHandshake (key 17) where nothing is left to authenticate: ILLEGAL_SASL_STATE.

That is a listener without SASL, and a session without an end. `barnabas/broker/server/sasl.py`
answers it otherwise.
"""

from barnabas.broker.security.rights import NOTHING
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.sasl_handshake import (
    API,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = NOTHING


def handle(
    _parts: object, _request: SaslHandshakeRequest, _context: RequestContext
) -> SaslHandshakeResponse:
    """Refuse the request."""
    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
