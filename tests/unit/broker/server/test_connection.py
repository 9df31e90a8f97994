"""Connections: answers in order, reading paused by budgets, failures end one connection only."""

import asyncio
import struct
from typing import Any

import pytest

from barnabas.broker.server.budget import RequestMemory
from barnabas.broker.server.connection import FRAMES_PER_TURN, MAX_OVERLAPPING
from barnabas.broker.server.context import Acknowledgement, CloseConnection, RequestContext
from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import api_versions, heartbeat, produce
from tests.unit.broker.server.wire import (
    Peer,
    frame,
    heartbeat_request,
    produce_request,
    turn,
)


class Handler:
    """Answers Heartbeat at once and Produce when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.parked: dict[int, asyncio.Future[Any]] = {}
        self.park_all = False
        self.parking: type[asyncio.Future[Any]] = Acknowledgement

    def __call__(self, request: Any, context: RequestContext) -> Any:
        self.begun.append(context.correlation_id)
        if isinstance(request, produce.ProduceRequest) or self.park_all:
            future = self.parking()
            self.parked[context.correlation_id] = future
            return future
        return heartbeat.HeartbeatResponse()

    def answer(self, number: int) -> None:
        self.parked[number].set_result(produce.ProduceResponse(responses=[]))


def send_produce(peer: Peer) -> int:
    return peer.send(produce.API, 9, produce_request())


def send_heartbeat(peer: Peer) -> int:
    return peer.send(heartbeat.API, 4, heartbeat_request())


async def test_overlapping_produces_are_answered_in_order() -> None:
    handler = Handler()
    peer = Peer(handler)
    first, second = send_produce(peer), send_produce(peer)
    handler.answer(second)
    await turn()
    assert peer.answered() == []
    handler.answer(first)
    await turn()
    assert peer.answered() == [first, second]


async def test_nothing_overtakes_a_produce_that_is_not_appended_yet() -> None:
    handler = Handler()
    handler.parking = asyncio.Future
    peer = Peer(handler)
    first, second = send_produce(peer), send_produce(peer)
    assert handler.begun == [first]
    assert not peer.transport.reading
    handler.answer(first)
    await turn()
    assert handler.begun == [first, second]


async def test_another_request_waits_for_the_answers_before_it() -> None:
    handler = Handler()
    peer = Peer(handler)
    first, second = send_produce(peer), send_heartbeat(peer)
    assert handler.begun == [first]
    assert not peer.transport.reading
    handler.answer(first)
    await turn()
    assert peer.answered() == [first, second]
    assert peer.transport.reading


async def test_overlapping_is_bounded() -> None:
    handler = Handler()
    peer = Peer(handler)
    for _ in range(MAX_OVERLAPPING + 1):
        peer.send_bytes(frame(produce.API, 9, 0, produce_request()))
        await turn()
    assert len(handler.begun) == MAX_OVERLAPPING
    assert not peer.transport.reading


async def test_a_turn_of_the_loop_serves_only_its_share() -> None:
    handler = Handler()
    peer = Peer(handler)
    one = frame(heartbeat.API, 4, 1, heartbeat_request())
    peer.send_bytes(one * (FRAMES_PER_TURN + 5))
    assert len(handler.begun) == FRAMES_PER_TURN
    await turn()
    assert len(handler.begun) == FRAMES_PER_TURN + 5
    assert peer.transport.reading


async def test_a_peer_that_does_not_read_its_answers_is_not_read_from() -> None:
    handler = Handler()
    peer = Peer(handler)
    peer.transport.window = 0
    send_heartbeat(peer)
    send_heartbeat(peer)
    assert len(handler.begun) == 1
    assert not peer.transport.reading
    peer.transport.window = None
    peer.connection.resume_writing()
    assert len(peer.answered()) == 2
    assert peer.transport.reading


async def test_a_kafka_error_is_answered_and_the_connection_goes_on() -> None:
    def handle(_request: Any, _context: RequestContext) -> Any:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    peer = Peer(handle)
    send_heartbeat(peer)
    answer = decode(heartbeat.HeartbeatResponse, 4, bytes(peer.transport.written)[9:])
    assert answer.error_code == ErrorCode.ILLEGAL_GENERATION
    assert not peer.transport.closed


async def test_a_bug_in_a_coroutine_is_an_unknown_server_error() -> None:
    async def handle(_request: Any, _context: RequestContext) -> Any:
        raise AssertionError("a bug")

    peer = Peer(handle)
    send_heartbeat(peer)
    await turn()
    answer = decode(heartbeat.HeartbeatResponse, 4, bytes(peer.transport.written)[9:])
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_an_answer_that_is_closing_closes_after_the_answers_before_it() -> None:
    parked: list[asyncio.Future[Any]] = []

    def handle(_request: Any, _context: RequestContext) -> Any:
        if parked:
            raise CloseConnection
        parked.append(asyncio.get_running_loop().create_future())
        return parked[0]

    peer = Peer(handle)
    first = send_produce(peer)
    send_produce(peer)
    assert not peer.transport.closed
    parked[0].set_result(produce.ProduceResponse(responses=[]))
    await turn()
    assert peer.answered() == [first]
    assert peer.transport.closed


async def test_no_answer_is_sent_where_the_protocol_wants_none() -> None:
    peer = Peer(lambda _request, _context: None)
    send_produce(peer)
    assert peer.answered() == []
    assert peer.transport.reading


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, heartbeat.API.key, 99, 1, -1),
        frame(heartbeat.API, 4, 1, heartbeat_request())[:-1] + b"\xff",
    ],
    ids=["negative", "too large", "short header", "unknown key", "unknown version", "garbage"],
)
async def test_bytes_that_are_no_request_close_their_connection(data: bytes) -> None:
    handler = Handler()
    peer = Peer(handler)
    peer.send_bytes(data)
    assert peer.transport.closed
    assert handler.begun == []


async def test_api_versions_of_an_unknown_version_is_answered_in_version_0() -> None:
    peer = Peer(Handler())
    header = struct.pack(">hhihx", api_versions.API.key, 99, 7, -1)
    peer.send_bytes(struct.pack(">i", len(header)) + header)
    answer = decode(api_versions.ApiVersionsResponse, 0, bytes(peer.transport.written)[8:])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert peer.transport.reading


async def test_a_parked_answer_is_cancelled_when_its_peer_leaves() -> None:
    handler = Handler()
    peer = Peer(handler)
    first = send_produce(peer)
    peer.lose()
    await turn()
    assert handler.parked[first].cancelled()
    assert peer.owner.open == []


async def test_large_requests_share_the_bound_on_memory() -> None:
    memory = RequestMemory(1 << 20)
    large = frame(produce.API, 9, 1, produce_request(bytes(900_000)))
    one, other = Peer(Handler(), memory=memory), Peer(Handler(), memory=memory)
    one.send_bytes(large[:500_000])
    other.send_bytes(large)
    assert not other.transport.reading
    assert 500_000 <= memory.used <= 1 << 20
    one.send_bytes(large[500_000:])
    assert one.transport.reading != other.transport.reading, "one may end what it has begun"
    for peer in (other, one):
        peer.send_bytes(peer.unread)
        assert peer.transport.reading
    assert memory.used == 0


async def test_memory_is_given_back_when_a_peer_leaves_in_the_middle() -> None:
    memory = RequestMemory(1 << 20)
    large = frame(produce.API, 9, 1, produce_request(bytes(900_000)))
    one, other = Peer(Handler(), memory=memory), Peer(Handler(), memory=memory)
    one.send_bytes(large[:500_000])
    other.send_bytes(large)
    one.lose()
    assert other.transport.reading
    other.lose()
    assert memory.used == 0


async def test_finishing_answers_what_was_begun_and_begins_nothing_more() -> None:
    handler = Handler()
    peer = Peer(handler)
    first = send_produce(peer)
    peer.connection.finish()
    assert not peer.transport.closed
    handler.answer(first)
    await turn()
    assert peer.answered() == [first]
    assert peer.transport.closed


async def test_a_half_closed_peer_still_gets_its_answers() -> None:
    handler = Handler()
    peer = Peer(handler)
    first = send_produce(peer)
    assert peer.connection.eof_received()
    handler.answer(first)
    await turn()
    assert peer.answered() == [first]
    assert peer.transport.closed
