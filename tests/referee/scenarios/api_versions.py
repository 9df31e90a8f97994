"""ApiVersions: the only API that answers a version it does not know."""

from barnabas.protocol.codec import encode
from barnabas.protocol.messages.api_versions import API, ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def hello(software: str = "referee", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=software, client_software_version=version)


@scenario
def first_request_of_a_connection(s: Peer) -> None:
    s.ask(hello())


@scenario
def asked_again_between_other_requests(s: Peer) -> None:
    s.ask(hello())
    to = given.topic(s)
    s.ask(given.produce(to, given.batch(b"a")))
    s.ask(hello("another", "2"))
    s.ask(given.fetch(to))


@scenario
def a_newer_version_is_answered_in_version_0(s: Peer) -> None:
    s.ask_bytes(encode(hello(), s.version), 99, answer_version=0)
    s.ask(hello())
    s.ask(MetadataRequest(topics=[]))


@scenario(since=3)
def software_name_without_characters(s: Peer) -> None:
    s.ask(hello(software=""))


@scenario(since=3)
def software_name_with_a_space(s: Peer) -> None:
    s.ask(hello(software="my client"))
    s.ask(hello())


@scenario(since=3)
def software_version_that_ends_in_a_dash(s: Peer) -> None:
    s.ask(hello(version="1.0-"))


@scenario(since=3)
def software_name_with_dots_and_dashes(s: Peer) -> None:
    s.ask(hello("apache-kafka-java", "4.3.1-SNAPSHOT"))


@scenario(since=3)
def unknown_tagged_fields_are_ignored(s: Peer) -> None:
    s.ask_bytes(encode(hello(), s.version)[:-1] + b"\x01\x63\x02hi", s.version)


@scenario(since=3)
def a_truncated_body(s: Peer) -> None:
    s.ask_bytes(encode(hello(), s.version)[:-1], s.version)
    s.ask(hello())
