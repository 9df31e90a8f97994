"""SaslAuthenticate on a listener without SASL."""

from barnabas.protocol.messages.sasl_authenticate import API, SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def message(data: bytes = b"\0alice\0secret") -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=data)


@scenario
def first_request_of_a_connection(s: Peer) -> None:
    s.ask(message())


@scenario
def empty_message(s: Peer) -> None:
    s.ask(message(b""))


@scenario
def long_message(s: Peer) -> None:
    s.ask(message(bytes(100_000)))
    s.ask(message())


@scenario
def after_the_choice_of_a_mechanism(s: Peer) -> None:
    s.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    s.ask(message())


@scenario
def between_requests_that_are_served(s: Peer) -> None:
    to = given.topic(s)
    s.ask(given.produce(to, given.batch(b"a")))
    s.ask(message())
    s.ask(given.produce(to, given.batch(b"b")))
    s.ask(given.fetch(to))
