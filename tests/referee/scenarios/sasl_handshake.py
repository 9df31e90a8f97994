"""SaslHandshake on a listener without SASL."""

from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import API, SaslHandshakeRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def choice(mechanism: str = "PLAIN") -> SaslHandshakeRequest:
    return SaslHandshakeRequest(mechanism=mechanism)


@scenario
def first_request_of_a_connection(s: Peer) -> None:
    s.ask(choice())


@scenario
def mechanism_that_does_not_exist(s: Peer) -> None:
    s.ask(choice("SCRAM-MD5"))
    s.ask(choice(""))


@scenario
def asked_again(s: Peer) -> None:
    s.ask(choice())
    s.ask(choice("GSSAPI"))


@scenario
def message_after_it(s: Peer) -> None:
    s.ask(choice())
    s.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))


@scenario
def between_requests_that_are_served(s: Peer) -> None:
    to = given.topic(s)
    s.ask(given.produce(to, given.batch(b"a")))
    s.ask(choice())
    s.ask(given.produce(to, given.batch(b"b")))
    s.ask(given.fetch(to))
