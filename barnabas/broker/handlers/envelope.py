"""Envelope (key 58), between brokers only: a client's request to the controller (KIP-590).

The broker that the client asked has authenticated it. The controller serves the request as if the
client had sent it here: with its principal, its address, its rights and its quotas.
"""

import ipaddress
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

from barnabas.broker.controller.controller import Controller
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Route, freed
from barnabas.broker.server.quotas import Charge, ClientQuotas
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


@dataclass(slots=True)
class _Forwarded:
    """A client's request, with its route."""

    route: Route
    request: Any
    context: RequestContext

    def refuse(self, code: ErrorCode) -> Any:
        return self.route.refuse(self.request, code, self.context.api_version)


def handle(
    controller: Controller,
    routes: Mapping[int, Route],
    quotas: ClientQuotas,
    request: EnvelopeRequest,
    context: RequestContext,
) -> Steps[Any]:
    """Serve the request inside, and return its response with its header.

    `routes` has the requests that only the controller can answer, by API key, behind the gate of
    clients.
    """
    if not controller.active:
        # Nothing has been done: the sender may ask another controller.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    forwarded = yield from _open(routes, quotas, request, context)
    try:
        outcome = forwarded.route.handle(forwarded.request, forwarded.context)
        while type(outcome) is GeneratorType:
            outcome = yield from outcome
    except KafkaError as error:
        outcome = forwarded.refuse(error.code)
    if isinstance(outcome, Awaitable):
        return _later(forwarded, outcome)
    responses = [outcome]
    del outcome
    return (yield from _close(forwarded, responses))


async def _later(forwarded: _Forwarded, outcome: Awaitable[Any]) -> Steps[EnvelopeResponse]:
    try:
        responses = [await outcome]
    except KafkaError as error:
        responses = [forwarded.refuse(error.code)]
    return _close(forwarded, responses)


def _open(
    routes: Mapping[int, Route],
    quotas: ClientQuotas,
    envelope: EnvelopeRequest,
    context: RequestContext,
) -> Steps[_Forwarded]:
    """Return the request of an envelope, with the context that its client would have here."""
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
    return _Forwarded(route, request, inside)


def _close(forwarded: _Forwarded, responses: list[Any]) -> Steps[EnvelopeResponse]:
    """Return the only response in its envelope; the list is empty then."""
    route, context = forwarded.route, forwarded.context
    response = yield from _built(forwarded, responses.pop())
    if context.charge is not None:
        # The broker that the client asked charges the time, and keeps the client waiting.
        context.charge.resume()
        response.throttle_time_ms = context.charge.settle()
    header = encode_response_header(route.api.key, context.api_version, context.correlation_id)
    encode = encoder(route.api.response, context.api_version, Form.SLICED)
    data = b"".join([header, *(yield from encode(response))])
    messages = [response, forwarded.request]
    del response
    forwarded.request = None
    yield from freed(messages)
    return EnvelopeResponse(response_data=data)


def _built(forwarded: _Forwarded, outcome: Any) -> Steps[Any]:
    """Return a response, which may be built in steps."""
    try:
        while type(outcome) is GeneratorType:
            outcome = yield from outcome
    except KafkaError as error:
        outcome = forwarded.refuse(error.code)
        while type(outcome) is GeneratorType:
            outcome = yield from outcome
    return outcome


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
