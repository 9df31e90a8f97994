"""Envelope (key 58), between brokers only: a client's request to the controller (KIP-590).

The broker that the client asked has authenticated it. The controller serves the request as if the
client had sent it here: with its principal, its address, its rights and its quotas.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any

from barnabas.broker.controller.controller import Controller
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Route, freed
from barnabas.broker.server.limits.quotas import Charge, ClientQuotas
from barnabas.coordinator.soon import settle
from barnabas.protocol.codec import decode
from barnabas.protocol.compile import Form
from barnabas.protocol.compile_decode import decoder
from barnabas.protocol.compile_encode import encoder
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.header import decode_request_header, encode_response_header
from barnabas.protocol.messages.envelope import (
    API,
    DefaultPrincipalData,
    EnvelopeRequest,
    EnvelopeResponse,
)
from barnabas.protocol.steps import Steps
from barnabas.security.principal import Principal, TokenPrincipal

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = OF_BROKERS


def handle(
    controller: Controller,
    routes: Mapping[int, Route],
    quotas: ClientQuotas,
    request: EnvelopeRequest,
    context: RequestContext,
) -> Steps[EnvelopeResponse]:
    """Serve the request inside, and return its response with its header.

    `routes` has the requests that only the controller can answer, by API key, behind the gate of
    clients.
    """
    if not controller.active:
        # Nothing has been done: the sender may ask another controller.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    route, inside, wanted = yield from _open(routes, quotas, request, context)
    version = inside.api_version
    try:
        response = yield from settle(route.handle(wanted, inside))
    except KafkaError as error:
        response = yield from route.refuse(wanted, error.code, version)
    if inside.charge is not None:
        # The broker that the client asked charges the time, and keeps the client waiting.
        inside.charge.resume()
        response.throttle_time_ms = inside.charge.settle()
    header = encode_response_header(route.api.key, version, inside.correlation_id)
    encode = encoder(route.api.response, version, Form.SLICED)
    data = b"".join([header, *(yield from encode(response))])
    messages = [response, wanted]
    del response, wanted
    yield from freed(messages)
    return EnvelopeResponse(response_data=data)


def _open(
    routes: Mapping[int, Route],
    quotas: ClientQuotas,
    envelope: EnvelopeRequest,
    context: RequestContext,
) -> Steps[tuple[Route, RequestContext, Any]]:
    """Return the request of an envelope, its route, and the context that its client would have
    here."""
    data = memoryview(envelope.request_data)
    try:
        (key, version, correlation_id, client_id), at = decode_request_header(data)
        route = routes.get(key)
        if route is None or version not in route.serves:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        decode_sliced = decoder(route.api.request, version, Form.SLICED)
        request = yield from decode_sliced(data, at, False, route.api.max_elements)
        host = str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    except (ProtocolError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    principal = read_principal(envelope.request_principal)
    inside = RequestContext(
        key,
        version,
        correlation_id,
        client_id,
        principal,
        context.listener,
        host,
        context.connection_id,
        context.received_ms,
        charge=_charge(quotas, principal, client_id),
    )
    return route, inside, request


def read_principal(data: bytes | None) -> Principal:
    """Return the principal of an envelope. Raises PRINCIPAL_DESERIALIZATION_FAILURE."""
    try:
        if data is None:
            raise ProtocolError("there is no principal")
        found = decode(DefaultPrincipalData, int.from_bytes(data[:2], "big"), data, 2)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    kind = TokenPrincipal if found.token_authenticated else Principal
    return kind(found.type, found.name)


class _NoConnection:
    """The connection of a client to another broker, which throttles it."""

    def throttle(self, seconds: float, /) -> None:
        """Do nothing."""


def _charge(quotas: ClientQuotas, principal: Principal, client_id: str | None) -> Charge | None:
    if not quotas.limits:
        return None
    charge = quotas.charge(principal.name, client_id or "", _NoConnection(), quotas.monotonic())
    if charge is not None:
        charge.pause()
    return charge
