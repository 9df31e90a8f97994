"""ApiVersions: the only API that answers requests of unknown versions."""

import struct

from barnabas.protocol.codec import encode
from barnabas.protocol.messages.api_versions import API, ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from tests.referee import given
from tests.referee.scenario import Peer, Play, Scenarios

scenario = Scenarios(API)


def hello(software: str = "referee", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=software, client_software_version=version)


def frame(key: int, version: int, client_id: bytes | None = b"referee") -> bytes:
    """Return a request that consists of its header, in the form without tagged fields."""
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 7, length) + (client_id or b"")


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


@scenario
def versions_far_outside(s: Peer) -> None:
    for version in (6, 2**15 - 1, -1, -(2**15)):
        s.ask_frame(frame(API.key, version))
    s.ask(hello())


@scenario
def unknown_apis(s: Peer) -> None:
    for key in (-1, 999, 2**15 - 1):
        s.ask_frame(frame(key, s.version))
    s.ask(hello())


@scenario
def removed_apis(s: Peer) -> None:
    for key in (4, 5, 6, 7):
        s.ask_frame(frame(key, s.version))
    s.ask(hello())


@scenario
def apis_of_controllers(s: Peer) -> None:
    for key in (52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82):
        s.ask_frame(frame(key, 0))
    s.ask(hello())


@scenario
def removed_versions_of_other_apis(s: Peer) -> None:
    for key, version in (
        (0, 2),
        (1, 3),
        (2, 0),
        (8, 1),
        (9, 0),
        (19, 1),
        (20, 0),
        (32, 0),
        (3, -1),
    ):
        s.ask_frame(frame(key, version) + bytes(20))
    s.ask(hello())


@scenario(until=2)
def a_client_without_a_name(s: Peer) -> None:
    s.ask_frame(frame(API.key, s.version, None), version=s.version)
    s.ask_frame(frame(API.key, s.version, b""), version=s.version)
    s.ask_frame(frame(API.key, s.version, "Boté".encode()), version=s.version)


@scenario(until=2)
def a_client_whose_name_is_no_text(s: Peer) -> None:
    s.ask_frame(frame(API.key, s.version, b"\xff\xfe"), version=s.version)
    s.ask(hello())


@scenario(until=2)
def bytes_after_the_end(s: Peer) -> None:
    s.ask_frame(frame(API.key, s.version) + b"more", version=s.version)
    s.ask(hello())


@scenario
def a_header_that_is_cut_off(s: Peer) -> None:
    for kept in (0, 2, 4, 7, 9, 12):
        s.ask_frame(frame(API.key, s.version)[:kept])
    s.ask(hello())


@scenario
def sizes_that_no_request_has(s: Peer) -> None:
    for size in (-1, -(2**31), 2**31 - 1, 104857601):
        s.ask_frame(frame(API.key, s.version), size=size)
    s.ask(hello())


@scenario(since=3)
def unknown_tagged_fields_of_the_header_are_ignored(s: Peer) -> None:
    tags = b"\x01\x63\x02hi"
    s.ask_frame(frame(API.key, s.version) + tags + encode(hello(), s.version), version=s.version)


@scenario(since=3)
def tagged_fields_of_the_header_that_are_cut_off(s: Peer) -> None:
    s.ask_frame(frame(API.key, s.version) + b"\x01\x63\x20hi", version=s.version)
    s.ask(hello())


IDS_SINCE = 5
RIGHT = "right"
CLUSTERS = {"no": None, "the": RIGHT, "another": "AnotherCluster00000000", "an_empty": ""}
NODES = {"no": -1, "the": 1, "another": 2, "a_negative": -2}


def _means(cluster: str | None, node: int) -> Play:
    """Return the scenario of a client that names a cluster and a broker."""

    def play(s: Peer) -> None:
        mine = s.do(MetadataRequest(topics=[])).cluster_id
        request = hello()
        request.cluster_id = mine if cluster == RIGHT else cluster
        request.node_id = node
        s.ask(request)
        s.ask(MetadataRequest(topics=[]))

    return play


for _cluster, _name in CLUSTERS.items():
    for _node, _number in NODES.items():
        _play = _means(_name, _number)
        _play.__name__ = f"{_cluster}_cluster_and_{_node}_broker"
        scenario(since=IDS_SINCE)(_play)


@scenario(since=IDS_SINCE)
def another_cluster_and_a_software_name_that_is_wrong(s: Peer) -> None:
    request = hello(software="my client")
    request.cluster_id, request.node_id = "AnotherCluster00000000", 1
    s.ask(request)


@scenario(since=IDS_SINCE)
def another_cluster_and_then_the_right_one(s: Peer) -> None:
    mine = s.do(MetadataRequest(topics=[])).cluster_id
    for cluster in ("AnotherCluster00000000", mine, mine.lower(), None):
        request = hello()
        request.cluster_id, request.node_id = cluster, 1
        s.ask(request)
