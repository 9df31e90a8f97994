"""Connections: answers in order, reading paused by limits, failures close one connection only."""

import asyncio
import gc
import struct
import time
import weakref
from itertools import count
from typing import Any

import pytest

from barnabas.broker.loop.slices import Slicer
from barnabas.broker.server.connection import FRAMES_PER_TURN, MAX_OVERLAPPING
from barnabas.broker.server.context import Acknowledgement, CloseConnection, RequestContext
from barnabas.broker.server.dispatch import freed
from barnabas.broker.server.limits.budget import RequestMemory
from barnabas.coordinator.soon import in_task, settle
from barnabas.protocol.codec import decode
from barnabas.protocol.compile import STRIDE
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    api_versions,
    end_txn,
    heartbeat,
    init_producer_id,
    metadata,
    produce,
)
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.waiting import eventually
from tests.unit.broker.server.wire import (
    Handler,
    Peer,
    StillClock,
    frame,
    heartbeat_request,
    produce_request,
    send_produce,
    turn,
)


def transactional_peer(handler: Handler) -> Peer:
    return Peer(handler, apis=[end_txn.API, init_producer_id.API, add_partitions_to_txn.API])


def send_end(peer: Peer, transactional_id: str, version: int = 5) -> int:
    request = end_txn.EndTxnRequest(
        transactional_id=transactional_id, producer_id=1, producer_epoch=0, committed=True
    )
    return peer.send(end_txn.API, version, request)


def send_init(peer: Peer, transactional_id: str | None, version: int = 6) -> int:
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1000
    )
    return peer.send(init_producer_id.API, version, request)


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


async def test_no_request_overtakes_produce_before_its_append() -> None:
    handler = Handler()
    handler.parking = asyncio.Future
    peer = Peer(handler)
    first, second = send_produce(peer), send_produce(peer)
    assert handler.begun == [first]
    assert not peer.transport.reading
    handler.answer(first)
    await turn()
    assert handler.begun == [first, second]


@pytest.mark.parametrize("version", [0, 2, 5], ids=["fixed", "fixed too", "flexible"])
async def test_requests_about_several_transactional_ids_overlap(version: int) -> None:
    handler = Handler()
    peer = transactional_peer(handler)
    first, second = send_end(peer, "a", version), send_end(peer, "b" * 300, version)
    assert handler.begun == [first, second]
    handler.end(second)
    await turn()
    assert peer.answered() == []
    handler.end(first)
    await turn()
    assert peer.answered() == [first, second]


async def test_answers_of_one_loop_iteration_leave_in_one_write() -> None:
    handler = Handler()
    peer = transactional_peer(handler)
    numbers = [send_end(peer, each) for each in "abc"]
    for each in numbers:
        handler.end(each)
    await turn()
    assert peer.answered() == numbers
    assert peer.transport.writes == 1


async def test_requests_about_one_transactional_id_keep_their_order() -> None:
    handler = Handler()
    peer = transactional_peer(handler)
    first, other, again = send_init(peer, "a"), send_end(peer, "b"), send_end(peer, "a")
    assert handler.begun == [first, other]
    handler.parked[first].set_result(init_producer_id.InitProducerIdResponse(producer_epoch=0))
    await turn()
    assert handler.begun == [first, other, again]
    handler.end(other)
    handler.end(again)
    await turn()
    assert peer.answered() == [first, other, again]


async def test_requests_of_another_kind_do_not_overlap_transactional_ones() -> None:
    for send in (send_produce, send_heartbeat, lambda peer: send_init(peer, None)):
        handler = Handler()
        peer = transactional_peer(handler)
        first, second = send_end(peer, "a"), send(peer)
        assert handler.begun == [first]
        handler.end(first)
        await turn()
        assert handler.begun == [first, second]
        third = send_end(peer, "b")
        await turn()
        assert (third in handler.begun) == (second not in handler.parked)


async def test_brokers_request_about_many_transactions_does_not_overlap() -> None:
    handler = Handler()
    peer = transactional_peer(handler)
    first = send_end(peer, "a")
    peer.send(add_partitions_to_txn.API, 5, add_partitions_to_txn.AddPartitionsToTxnRequest())
    assert handler.begun == [first]


@pytest.mark.parametrize("size", [0, 1, 3, 10, 11, 12])
async def test_cut_off_request_after_a_transactional_one_closes_the_connection(size: int) -> None:
    handler = Handler()
    peer = transactional_peer(handler)
    first = send_end(peer, "a")
    body = (struct.pack(">hhihx", end_txn.API.key, 5, 99, -1) + b"\xff")[:size]
    peer.send_bytes(struct.pack(">i", len(body)) + body)
    handler.end(first)
    await turn()
    assert peer.answered() == [first]
    assert peer.transport.closed


async def test_other_request_waits_for_earlier_answers() -> None:
    handler = Handler()
    peer = Peer(handler)
    first, second = send_produce(peer), send_heartbeat(peer)
    assert handler.begun == [first]
    assert not peer.transport.reading
    handler.answer(first)
    await turn()
    assert peer.answered() == [first, second]
    assert peer.transport.reading


async def test_number_of_overlapping_produces_is_limited() -> None:
    handler = Handler()
    peer = Peer(handler)
    for _ in range(MAX_OVERLAPPING + 1):
        peer.send_bytes(frame(produce.API, 9, 0, produce_request()))
        await turn()
    assert len(handler.begun) == MAX_OVERLAPPING
    assert not peer.transport.reading


async def test_loop_iteration_serves_limited_frames_per_connection() -> None:
    handler = Handler()
    peer = Peer(handler)
    one = frame(heartbeat.API, 4, 1, heartbeat_request())
    peer.send_bytes(one * (FRAMES_PER_TURN + 5))
    assert len(handler.begun) == FRAMES_PER_TURN
    await turn()
    assert len(handler.begun) == FRAMES_PER_TURN + 5
    assert peer.transport.reading


async def test_reading_pauses_while_peer_does_not_read_answers() -> None:
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


async def test_kafka_error_is_answered_and_connection_stays_open() -> None:
    def handle(_request: Any, _context: RequestContext) -> Any:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    peer = Peer(handle)
    send_heartbeat(peer)
    answer = decode(heartbeat.HeartbeatResponse, 4, bytes(peer.transport.written)[9:])
    assert answer.error_code == ErrorCode.ILLEGAL_GENERATION
    assert not peer.transport.closed


async def test_exception_in_a_task_is_unknown_server_error() -> None:
    async def work() -> Any:
        raise AssertionError("a bug")

    peer = Peer(lambda _request, _context: in_task(work()))
    send_heartbeat(peer)
    await turn()
    answer = decode(heartbeat.HeartbeatResponse, 4, bytes(peer.transport.written)[9:])
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_close_connection_follows_earlier_answers() -> None:
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


async def test_no_answer_is_sent_for_acks_zero() -> None:
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
async def test_invalid_bytes_close_their_connection(data: bytes) -> None:
    handler = Handler()
    peer = Peer(handler)
    peer.send_bytes(data)
    assert peer.transport.closed
    assert handler.begun == []


async def test_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    peer = Peer(Handler())
    header = struct.pack(">hhihx", api_versions.API.key, 99, 7, -1)
    peer.send_bytes(struct.pack(">i", len(header)) + header)
    answer = decode(api_versions.ApiVersionsResponse, 0, bytes(peer.transport.written)[8:])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert peer.transport.reading


async def test_waiting_answer_is_cancelled_when_peer_disconnects() -> None:
    handler = Handler()
    peer = Peer(handler)
    first = send_produce(peer)
    peer.lose()
    await turn()
    assert handler.parked[first].cancelled()
    assert peer.owner.open == []


async def test_large_requests_share_the_memory_limit() -> None:
    memory = RequestMemory(1 << 20)
    large = frame(produce.API, 9, 1, produce_request(bytes(900_000)))
    handlers = Handler(), Handler()
    one, other = (Peer(handler, memory=memory) for handler in handlers)
    one.send_bytes(large[:500_000])
    other.send_bytes(large)
    assert not other.transport.reading
    assert 500_000 <= memory.used <= 1 << 20
    one.send_bytes(large[500_000:])
    assert one.transport.reading != other.transport.reading, "one may end what it has begun"
    for peer, handler in sorted(zip((other, one), handlers[::-1], strict=True), key=_begun):
        peer.send_bytes(peer.unread)
        assert peer.transport.reading
        handler.answer(1)
        await turn()
    assert memory.used == 0


def _begun(each: tuple[Peer, Handler]) -> bool:
    return not each[1].begun


async def test_requests_that_wait_for_answers_keep_their_bytes_in_the_memory_limit() -> None:
    """Records that wait for acknowledgements are in memory: 256 of 100 MB were free of charge."""
    memory, handler = RequestMemory(3 << 20), Handler()
    peer, quick = Peer(handler, memory=memory), Peer(Handler(), memory=memory)
    sent = b"".join(
        frame(produce.API, 9, number, produce_request(bytes(500_000))) for number in range(1, 20)
    )
    peer.send_bytes(sent)
    assert not peer.transport.reading
    assert len(handler.begun) < 8
    assert memory.used <= 3 << 20
    quick.send(heartbeat.API, 4, heartbeat_request())
    assert quick.answered() == [1]
    while peer.unread:
        handler.answer(handler.begun[len(peer.answered())])
        await turn()
        peer.send_bytes(peer.unread)
    for number in handler.begun[len(peer.answered()) :]:
        handler.answer(number)
    await turn()
    assert peer.answered() == list(range(1, 20))
    assert memory.used == 0


async def test_memory_is_released_when_peer_disconnects_during_request() -> None:
    memory = RequestMemory(1 << 20)
    large = frame(produce.API, 9, 1, produce_request(bytes(900_000)))
    one, other = Peer(Handler(), memory=memory), Peer(Handler(), memory=memory)
    one.send_bytes(large[:500_000])
    other.send_bytes(large)
    one.lose()
    assert other.transport.reading
    other.lose()
    assert memory.used == 0


async def test_closed_connection_keeps_no_buffer() -> None:
    """It waits for the garbage collector, and 1,000 of them kept 40 MB until then."""
    peer = Peer(Handler())
    peer.send_bytes(frame(produce.API, 9, 1, produce_request(bytes(900_000)))[:500_000])
    assert peer.connection._reader.capacity >= 500_000
    peer.lose()
    assert peer.connection._reader.capacity == 0


async def test_finish_answers_begun_requests_and_begins_no_more() -> None:
    handler = Handler()
    peer = Peer(handler)
    first = send_produce(peer)
    peer.connection.finish()
    assert not peer.transport.closed
    handler.answer(first)
    await turn()
    assert peer.answered() == [first]
    assert peer.transport.closed


async def test_half_closed_peer_gets_its_answers() -> None:
    handler = Handler()
    peer = Peer(handler)
    first = send_produce(peer)
    assert peer.connection.eof_received()
    handler.answer(first)
    await turn()
    assert peer.answered() == [first]
    assert peer.transport.closed


class SlicedHandler:
    """A generator handler of Produce, which counts its steps and what the records were."""

    def __init__(self, steps: int, result: Any = None) -> None:
        self.time = 0.0
        self.begun: list[int] = []
        self.closed: list[int] = []
        self.records: list[bytes] = []
        self._steps = steps
        self._result = result

    def __call__(self, request: Any, context: RequestContext) -> Any:
        number = context.correlation_id
        self.begun.append(number)
        try:
            for _ in range(self._steps):
                self.time += 0.0003
                yield None
        except GeneratorExit:
            self.closed.append(number)
            raise
        self.records.append(bytes(request.topic_data[0].partition_data[0].records))
        if isinstance(self._result, Exception):
            raise self._result
        return (yield self._result()) if self._result else produce.ProduceResponse(responses=[])

    def peer(self) -> Peer:
        return Peer(self, slicer=Slicer(lambda: self.time))


async def test_short_generator_handler_is_answered_at_once() -> None:
    peer = SlicedHandler(2).peer()
    number = send_produce(peer)
    assert peer.answered() == [number]


async def test_long_generator_handler_keeps_order_and_receive_buffer() -> None:
    handler = SlicedHandler(100)
    peer = handler.peer()
    size = 300_000
    first = peer.send(produce.API, 9, produce_request(b"a" * size))
    peer.connection.trim()
    spare = peer.spares.take(size)
    spare[:] = bytes(len(spare))
    assert not peer.transport.reading
    await eventually(lambda: len(peer.answered()) == 1)
    second = peer.send(produce.API, 9, produce_request(b"c" * size))
    await eventually(lambda: len(peer.answered()) == 2)
    assert peer.answered() == [first, second]
    assert handler.records == [b"a" * size, b"c" * size]


async def test_next_produce_begins_once_a_generator_handler_waits_for_acknowledgements() -> None:
    parked: list[asyncio.Future[Any]] = []

    def park() -> asyncio.Future[Any]:
        parked.append(Acknowledgement())
        return parked[-1]

    handler = SlicedHandler(100, park)
    peer = handler.peer()
    one, other = (frame(produce.API, 9, n, produce_request()) for n in (1, 2))
    peer.send_bytes(one + other)
    assert handler.begun == [1]
    await eventually(lambda: len(parked) == 2)
    assert peer.transport.reading
    parked[1].set_result(produce.ProduceResponse(responses=[]))
    parked[0].set_result(produce.ProduceResponse(responses=[]))
    await eventually(lambda: peer.answered() == [1, 2])


async def test_lost_connection_closes_the_generator_of_its_request() -> None:
    handler = SlicedHandler(100)
    peer = handler.peer()
    number = send_produce(peer)
    peer.lose()
    assert handler.closed == [number]


async def test_lost_connection_cancels_the_future_of_a_generator_handler() -> None:
    parked: list[asyncio.Future[Any]] = []

    def park() -> asyncio.Future[Any]:
        parked.append(Acknowledgement())
        return parked[-1]

    handler = SlicedHandler(1, park)
    peer = handler.peer()
    send_produce(peer)
    peer.lose()
    assert parked[0].cancelled()


async def test_lost_connection_does_not_cancel_the_task_of_a_generator_handler() -> None:
    stored = asyncio.Event()

    async def store() -> None:
        await asyncio.sleep(0)
        stored.set()

    peer = SlicedHandler(1, lambda: in_task(store())).peer()
    send_produce(peer)
    peer.lose()
    async with asyncio.timeout(5):
        await stored.wait()


@pytest.mark.parametrize("steps", [0, 100])
async def test_kafka_error_in_generator_handler_is_answered(steps: int) -> None:
    peer = SlicedHandler(steps, KafkaError(ErrorCode.INVALID_REQUEST)).peer()
    send_produce(peer)
    await eventually(lambda: peer.answered() != [])
    answer = decode(produce.ProduceResponse, 9, bytes(peer.transport.written)[9:])
    assert answer.throttle_time_ms == ErrorCode.INVALID_REQUEST
    assert not peer.transport.closed


async def test_close_connection_in_generator_handler_closes() -> None:
    peer = SlicedHandler(100, CloseConnection()).peer()
    send_produce(peer)
    await eventually(lambda: peer.transport.closed)
    assert peer.answered() == []


class SlowHandler(StillClock):
    """A handler that takes a time of its clock for each request."""

    def __init__(self, seconds: float) -> None:
        self.time = 0.0
        self.begun: list[int] = []
        self.slicer = Slicer(self.monotonic)
        self._seconds = seconds

    def __call__(self, _request: Any, context: RequestContext) -> Any:
        self.begun.append(context.correlation_id)
        self.time += self._seconds
        return heartbeat.HeartbeatResponse()

    def monotonic(self) -> float:
        return self.time

    def peer(self) -> Peer:
        return Peer(self, clock=self, slicer=self.slicer)


async def test_slow_requests_of_one_connection_leave_the_iteration_to_others() -> None:
    handler = SlowHandler(0.002)
    peer = handler.peer()
    peer.send_bytes(frame(heartbeat.API, 4, 1, heartbeat_request()) * 20)
    assert len(handler.begun) == 3
    await asyncio.sleep(0)
    assert len(handler.begun) == 6
    await eventually(lambda: len(peer.answered()) == 20)


async def test_connections_share_the_time_of_an_iteration() -> None:
    handler = SlowHandler(0.004)
    peers = [handler.peer() for _ in range(20)]
    for peer in peers:
        send_heartbeat(peer)
    assert len(handler.begun) == 4
    await asyncio.sleep(0)
    assert len(handler.begun) == 8
    await eventually(lambda: all(peer.answered() for peer in peers))
    assert all(peer.transport.reading for peer in peers)


@pytest.mark.parametrize("version", [8, 12])
async def test_request_of_too_many_elements_is_refused_after_earlier_answers(version: int) -> None:
    names = b"\0\0" if version == 8 else bytes(16) + b"\1\0"
    count = (100_001).to_bytes(4) if version == 8 else b"\xa2\x8d\x06"
    handler = Handler()
    peer = Peer(handler, apis=[metadata.API])
    first = send_heartbeat(peer)
    header = encode_request_header(metadata.API.key, version, 2, "test")
    body = header + count + names * 100_001 + b"\1\0\0\0"
    peer.send_bytes(struct.pack(">i", len(body)) + body)
    assert peer.answered() == [first]
    assert peer.transport.closed
    assert peer.owner.invalid == 1
    assert handler.begun == [first]


async def test_long_request_with_bad_bytes_at_its_end_is_refused_in_a_later_slice() -> None:
    ticks = count()
    handler = Handler()
    peer = Peer(handler, apis=[metadata.API], slicer=Slicer(lambda: next(ticks) / 1000))
    header = encode_request_header(metadata.API.key, 8, 1, "test")
    body = header + (20_000).to_bytes(4) + b"\0\0" * 19_999 + b"\xff\xff"
    peer.send_bytes(struct.pack(">i", len(body)) + body)
    assert not peer.transport.closed
    await eventually(lambda: peer.transport.closed)
    assert (peer.owner.invalid, handler.begun) == (1, [])


async def test_answer_of_many_elements_is_sent_in_slices_and_counts_its_errors() -> None:
    ticks = count()

    def handle(request: Any, _context: RequestContext) -> Any:
        topics = [
            metadata.MetadataResponseTopic(error_code=3, name=topic.name, partitions=[])
            for topic in request.topics
        ]
        return metadata.MetadataResponse(brokers=[], topics=topics)

    peer = Peer(handle, apis=[metadata.API], slicer=Slicer(lambda: next(ticks) / 1000))
    topics = [metadata.MetadataRequestTopic(name=f"topic-{number}") for number in range(5000)]
    peer.send(metadata.API, 8, metadata.MetadataRequest(topics=topics))
    assert peer.answered() == []
    await eventually(lambda: peer.answered() == [1])
    answer = decode(metadata.MetadataResponse, 8, bytes(peer.transport.written)[8:])
    assert [topic.name for topic in answer.topics] == [topic.name for topic in topics]
    name = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    assert peer.metrics.errors.cell("Metadata", name).value == 5000


async def test_lost_connection_stops_the_decoding_of_its_request() -> None:
    ticks = count()
    handler = Handler()
    slicer = Slicer(lambda: next(ticks) / 1000)
    peer = Peer(handler, apis=[metadata.API], slicer=slicer)
    topics = [metadata.MetadataRequestTopic(name="t")] * 20_000
    peer.send(metadata.API, 8, metadata.MetadataRequest(topics=topics))
    peer.lose()
    await slicer.run(iter_once())
    await turn()
    assert handler.begun == []


def iter_once() -> Any:
    yield None


class Elements:
    """The elements of a request."""


@pytest.mark.parametrize("in_steps", [False, True])
async def test_refused_request_is_freed_without_the_collector(in_steps: bool) -> None:
    """The collector would walk over all elements, in one go."""
    left: list[weakref.ref[Elements]] = []

    async def refuse(elements: Elements) -> Any:
        left.append(weakref.ref(elements))
        await asyncio.sleep(0)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    def handle(_request: Any, _context: RequestContext) -> Any:
        refused = in_task(refuse(Elements()))
        return settle(refused) if in_steps else refused

    peer = Peer(handle)
    gc.disable()
    try:
        send_produce(peer)
        await eventually(lambda: peer.answered() == [1])
        await turn()
        assert left[0]() is None
    finally:
        gc.enable()


def protocols(count: int) -> list[Any]:
    return [JoinGroupRequestProtocol(name=f"p{n}", metadata=b"") for n in range(count)]


def joining(count: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="",
        protocol_type="t",
        protocols=protocols(count),
    )


def test_elements_of_a_request_are_freed_in_steps() -> None:
    requests = [joining(10_000)]
    last: Any = requests[0].protocols[-1]
    last.metadata = Elements()
    left = weakref.ref(last.metadata)
    del last
    steps = sum(1 for _ in freed(requests))
    assert left() is None
    assert 10_000 / STRIDE <= steps < 10_000


def test_elements_that_are_used_elsewhere_are_not_taken_away() -> None:
    request, other = joining(1_000), joining(1_000)
    used = other.protocols
    requests = [request, other]
    del other
    for _ in freed(requests):
        pass
    assert len(request.protocols) == len(used) == 1_000
    assert not requests


async def test_work_that_has_waited_is_freed_without_the_collector() -> None:
    left: list[weakref.ref[Any]] = []

    def wait(_request: Any, _context: RequestContext) -> Any:
        waiting = in_task(asyncio.sleep(0))
        yield waiting
        return produce.ProduceResponse(responses=[])

    class Watching(Slicer):
        def run(self, *arguments: Any) -> Any:
            work = super().run(*arguments)
            left.append(weakref.ref(work))
            return work

    peer = Peer(wait, slicer=Watching(time.monotonic))
    gc.disable()
    try:
        send_produce(peer)
        await eventually(lambda: peer.answered() == [1])
        await turn()
        assert [each() for each in left] == [None]
    finally:
        gc.enable()


async def test_closed_connection_is_freed_without_the_collector() -> None:
    """Ten thousand connections that come and go were 170 MB of garbage."""
    gc.disable()
    try:
        peer = Peer(lambda _request, _context: None)
        left = weakref.ref(peer.connection)
        peer.connection.connection_lost(None)
        peer.transport.protocol = None
        del peer
        await turn()
        assert left() is None
    finally:
        gc.enable()
