"""The floor of the benchmarks answers as a broker does: the same sizes, the stored bytes."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.protocol.codec import decode
from barnabas.protocol.header import decode_response_header
from barnabas.protocol.messages import fetch
from benchmarks import floors, raw
from benchmarks.raw import accepted, added, batch_of, ended, successors
from benchmarks.systems import Barnabas, System

TOPIC = "a-topic"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with Barnabas(tmp_path_factory.mktemp("broker")) as running:
        raw.connect(running.port).close()
        yield running


@pytest.fixture
def floor(tmp_path: Path) -> floors.Floor:
    if reason := floors.why_not():
        pytest.skip(reason)
    return floors.Floor(tmp_path)


def answers(at: System) -> list[bytes]:
    """Return the answers to the requests of a transaction with a large batch, and to a Fetch."""
    producer = at.producer("an-id")
    batch = batch_of(TOPIC, producer, records=15, record_bytes=1024)
    known = [floors.produced(TOPIC, batch), floors.fetched(TOPIC, batch.size)]
    with (
        at.serving(TOPIC, [*known, *floors.transacted(TOPIC)]),
        at.coordinator("an-id") as coordinator,
        at.leader(TOPIC) as leader,
    ):
        add, end = added(TOPIC, producer), ended(producer)
        accepted(coordinator, add)
        accepted(leader, batch.frame)
        following = next(successors(batch, producer, 1))
        found = [coordinator.exchange(add), leader.exchange(following), coordinator.exchange(end)]
        request = raw.fetch_request(TOPIC, offset=0, max_bytes=16 * 1024)
        return [*found, leader.exchange(request)]


def test_answers_have_the_size_of_those_of_a_broker(broker: System, floor: floors.Floor) -> None:
    assert list(map(len, answers(floor))) == list(map(len, answers(broker)))


def test_stored_batch_is_behind_the_answer_to_a_fetch(broker: System, floor: floors.Floor) -> None:
    of_broker = answers(broker)[-1]
    _, body = decode_response_header(fetch.API.key, raw.FETCH, of_broker)
    stored = decode(fetch.API.response, raw.FETCH, of_broker, body).responses[0].partitions[0]
    # The base offset, the epoch of the leader and the producer's id and time are the broker's.
    assert answers(floor)[-1][-15 * 1024 :] == bytes(stored.records)[-15 * 1024 :]


def test_frames_that_arrive_in_pieces_and_together_are_answered(floor: floors.Floor) -> None:
    producer = floor.producer(None)
    batch = batch_of(TOPIC, producer, records=15, record_bytes=1024)
    with (
        floor.serving(TOPIC, [floors.produced(TOPIC, batch)]),
        floor.leader(TOPIC) as client,
    ):
        accepted(client, batch.frame)
        several = b"".join(map(bytes, successors(batch, producer, 3)))
        client.send(several[:20_000])
        client.receive()
        client.send(several[20_000:])
        ids = [int.from_bytes(client.receive()[:4], "big") for _ in range(2)]
    assert ids == [3, 4]


def test_floor_ends_with_its_topic(floor: floors.Floor) -> None:
    with floor.serving(TOPIC, []), floor.leader(TOPIC) as client:
        port = client.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
