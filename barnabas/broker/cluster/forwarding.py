"""The forwarding of clients' requests that only the controller can answer (KIP-590).

A client may send them to any broker. A controller of a release that does not know Envelope gets
none: the client is told NOT_CONTROLLER then, and asks the controller itself.
"""

import ipaddress
from typing import Any, Final

from barnabas.broker.cluster.controller_client import ControllerClient
from barnabas.broker.cluster.peers import broker_id_of
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Route
from barnabas.coordinator.soon import in_task, settle
from barnabas.protocol.codec import encode
from barnabas.protocol.compile import Form
from barnabas.protocol.compile_decode import decoder
from barnabas.protocol.compile_encode import encoder
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.header import decode_response_header, encode_request_header
from barnabas.protocol.messages.envelope import DefaultPrincipalData, EnvelopeRequest
from barnabas.protocol.steps import Steps
from barnabas.security.principal import Principal, TokenPrincipal

_PRINCIPAL_VERSION: Final = 0
_ANY_NUMBER: Final = 2**31 - 1
"""The elements of a response: the controller is believed."""
_log = get_logger(__name__)


class Forwarder:
    """The forwarder of requests to the controller, if that is another broker."""

    def __init__(self, controller: ControllerClient) -> None:
        self.controller = controller

    def route(self, route: Route) -> Route:
        """Return a client's route whose requests are forwarded, where this broker cannot answer."""
        return route._replace(handle=_Forwarding(self.controller, route).handle)


class _Forwarding:
    """A route whose requests are forwarded."""

    def __init__(self, controller: ControllerClient, route: Route) -> None:
        self._controller = controller
        self._route = route

    def handle(self, request: Any, context: RequestContext) -> Any:
        """Serve a request here, or forward it. Those of brokers are for this broker alone."""
        if self._controller.is_here or broker_id_of(context.client_id) is not None:
            return self._route.handle(request, context)
        try:
            host = ipaddress.ip_address(context.client_host).packed
        except ValueError:
            # The rules of the controller could not tell who asks.
            return self._route.handle(request, context)
        return self._forward(request, context, host)

    def _forward(self, request: Any, context: RequestContext, host: bytes) -> Steps[Any]:
        key, version = context.api_key, context.api_version
        header = encode_request_header(key, version, context.correlation_id, context.client_id)
        body = yield from encoder(self._route.api.request, version, Form.SLICED)(request)
        envelope = EnvelopeRequest(
            request_data=b"".join([header, *body]),
            request_principal=write_principal(context.principal),
            client_host_address=host,
        )
        forwarded = self._controller.forward(
            envelope, kind=key, timeout=max(request.timeout_ms, 0) / 1000
        )
        try:
            data = yield in_task(forwarded)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            # No controller has begun with it. This broker refuses it, or has become the controller.
            _log.info("request not forwarded", api=self._route.api.name, reason=error.message)
            return (yield from settle(self._route.handle(request, context)))
        _, at = decode_response_header(key, version, data)
        decode = decoder(self._route.api.response, version, Form.SLICED)
        response = yield from decode(memoryview(data), at, False, _ANY_NUMBER)
        # The dispatcher knows a response by its class, and decoders make objects of a subclass.
        response.__class__ = self._route.api.response
        if context.charge is not None:
            context.charge.owes_mutations(getattr(response, "throttle_time_ms", 0))
        return response


def write_principal(principal: Principal) -> bytes:
    """Return a principal in the form of Kafka's default principal builder."""
    is_token = isinstance(principal, TokenPrincipal)
    data = DefaultPrincipalData(
        type=principal.type, name=principal.name, token_authenticated=is_token
    )
    return _PRINCIPAL_VERSION.to_bytes(2, "big") + encode(data, _PRINCIPAL_VERSION)
