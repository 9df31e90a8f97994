"""Malformed frames sent to a running broker: it stays up, and other clients are not disturbed."""

import socket
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.apis import api
from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.header import decode_response_header
from tests.integration.adversary.loads import PARTITIONS, Sender, read_all
from tests.integration.adversary.vectors import batches, bodies, frames
from tests.integration.adversary.vectors.vector import (
    CLOSES,
    WAITS,
    Reaction,
    Vector,
    error_in,
    frame,
    request,
)
from tests.support.brokers.memory import resident_mb
from tests.support.brokers.process import BrokerProcess
from tests.support.fuzz_targets import REQUESTS

VECTORS = list(chain(frames.vectors(), bodies.vectors(), batches.vectors()))
CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
PATIENCE_S = 10.0
SILENCE_S = 0.05
MAX_GROWTH_MB = 300
LASTING_GROWTH_MB = 80
"""Memory of codecs that were loaded, and memory that the allocator keeps."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        topics = [
            NewTopic("plain", 1),
            NewTopic("keyed", 1, config={"cleanup.policy": "compact"}),
            NewTopic("neighbour", PARTITIONS),
        ]
        for created in admin.create_topics(topics).values():
            created.result(PATIENCE_S)
        yield process


@pytest.fixture(scope="module")
def neighbour(broker: BrokerProcess) -> Iterator[Sender]:
    """A producer that works during the whole test and must not be disturbed."""
    before = resident_mb(broker.pid)
    sender = Sender(broker.bootstrap_servers, "neighbour", idempotent=True)
    yield sender
    sender.finish()
    sender.check(read_all(broker.bootstrap_servers, "neighbour"))
    assert resident_mb(broker.pid, "VmHWM") < before + MAX_GROWTH_MB
    assert resident_mb(broker.pid) < before + LASTING_GROWTH_MB


def reaction(port: int, vector: Vector) -> Reaction | ErrorCode:
    """Send the bytes over a connection; return the broker's reaction."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as peer:
        peer.sendall(vector.data)
        if vector.expected is WAITS:
            peer.settimeout(SILENCE_S)
        try:
            head = peer.recv(4, socket.MSG_WAITALL)
            if not head:
                return CLOSES
            answer = peer.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
        except TimeoutError:
            return WAITS
        except ConnectionResetError:
            return CLOSES
    assert vector.api is not None, f"a response to a request that has none: {answer!r}"
    correlation, body = decode_response_header(vector.api.key, vector.version, answer)
    assert correlation == 7
    return error_in(decode(vector.api.response, vector.version, answer, body))


def test_vectors_are_at_least_two_hundred_and_distinct() -> None:
    assert len({vector.data for vector in VECTORS}) > 300
    assert len({vector.name for vector in VECTORS}) == len(VECTORS)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_broker_answers_malformed_frame_correctly_or_disconnects(
    broker: BrokerProcess, neighbour: Sender, vector: Vector
) -> None:
    assert reaction(broker.port, vector) == vector.expected
    assert not neighbour.refused


def as_sent(target: str, data: bytes) -> bytes:
    """Return an input of the fuzzer in the form in which a client would send it to a broker."""
    if target == "frame":
        return data[1:]
    if target == "header":
        return frame(data)
    if target == "request":
        key, version = REQUESTS[int.from_bytes(data[:2], "big") % len(REQUESTS)]
        return request(api(key), version, data[2:])
    return batches.request_with("keyed", data)


@pytest.mark.parametrize("target", ["frame", "header", "request", "batches"])
def test_broker_survives_the_corpus_of_the_fuzzer(
    broker: BrokerProcess, neighbour: Sender, target: str
) -> None:
    before = neighbour.promised
    for path in sorted((CORPUS / target).iterdir()):
        with socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S) as peer:
            peer.sendall(as_sent(target, path.read_bytes()))
            peer.settimeout(SILENCE_S)
            try:
                peer.recv(1)
            except (TimeoutError, ConnectionResetError):
                continue
    neighbour.wait_for_more(before)
    assert not neighbour.refused
