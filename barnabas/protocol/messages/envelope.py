"""Envelope (key 58): a client's request that a broker forwards to the controller (KIP-590). Brokers
only.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, INVALID_REQUEST, UNSUPPORTED_VERSION,
PRINCIPAL_DESERIALIZATION_FAILURE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import Schema, field, message
from barnabas.protocol.types import Bool, Bytes, Int16, NullableBytes, String


@message
class EnvelopeRequest:
    """A request with its header, and the client that sent it."""

    request_data: Bytes
    request_principal: NullableBytes
    """DefaultPrincipalData behind an int16 with its version."""
    client_host_address: Bytes
    """The address of the client in 4 or 16 bytes."""


@message
class EnvelopeResponse:
    """The response to the request with its header; null with an error."""

    response_data: NullableBytes = field(default=None)
    error_code: Int16 = field(default=0)


@message
class DefaultPrincipalData:
    """The principal of the client."""

    type: String
    name: String
    token_authenticated: Bool


API = declare(
    __name__,
    flexible=0,
    request=EnvelopeRequest,
    response=EnvelopeResponse,
)
PRINCIPAL = Schema(DefaultPrincipalData, range(1), flexible=0)
