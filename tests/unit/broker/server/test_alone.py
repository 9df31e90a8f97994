"""A request that has come alone and repeats an earlier one goes straight to its answer, unless
anything else is to be done."""

import asyncio
import math
import struct
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.broker.loop.pause_guard import NoPauseGuard
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.server.connection import Connection
from barnabas.protocol.frame import LARGEST_IDLE_BUFFER, FrameReader
from barnabas.protocol.messages import heartbeat
from tests.support.mutants import cases, finds, hunt
from tests.unit.broker.server.wire import (
    Handler,
    Peer,
    StillClock,
    frame,
    heartbeat_request,
    send_produce,
    turn,
)

ASKS = Connection.buffer_updated
KEY = heartbeat.API.key << 16 | 4


class Guard(NoPauseGuard):
    until = math.inf

    def __init__(self) -> None:
        self.held: list[Any] = []

    def hold(self, held: Any) -> None:
        self.held.append(held)


class Rig:
    """A connection on which every Heartbeat repeats, except those that are `uncertain`."""

    def __init__(self) -> None:
        self.handler, self.guard = Handler(), Guard()
        self.slicer = Slicer(StillClock().monotonic)
        self.peer = Peer(self.handler, guard=self.guard, slicer=self.slicer)
        self.connection = self.peer.connection
        self.connection.repeats = {KEY: self}  # type: ignore[dict-item]
        self.asked: list[int] = []
        self.uncertain = False
        self.number = 100

    def serve(self, data: memoryview, *_arrival: Any) -> Any:
        (number,) = struct.unpack_from(">4xi", data)
        self.asked.append(number)
        return None if self.uncertain else [struct.pack(">ii", 4, number)]

    def beat(self, behind: int = 0) -> int:
        """Deliver a Heartbeat, whether the broker reads or not; return its number."""
        self.number += 1
        data = frame(heartbeat.API, 4, self.number, heartbeat_request())[4:] + bytes(behind)
        self.deliver(struct.pack(">i", len(data)) + data)
        return self.number

    def deliver(self, data: bytes) -> None:
        while data:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]


def on_a_loop(test: Callable[[Rig], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a plain function of a test, which runs again without each check."""

    async def play() -> None:
        await test(Rig())

    def run() -> None:
        asyncio.run(play())

    run.__name__ = test.__name__
    return run


@on_a_loop
async def test_repeated_request_is_answered_at_once(there: Rig) -> None:
    numbers = [there.beat(), there.beat()]
    assert (there.peer.answered(), there.asked) == (numbers, numbers)
    assert there.handler.begun == []


@finds(ASKS, "tried = True", "pass")
@finds(ASKS, "self._reader.put_back(frame)", "pass")
@on_a_loop
async def test_uncertain_request_is_asked_for_once_and_goes_to_its_handler(there: Rig) -> None:
    there.uncertain = True
    number = there.beat()
    assert (there.asked, there.handler.begun) == ([number], [number])
    assert there.peer.answered() == [number]


@finds(ASKS, "self._exchanges or ")
@on_a_loop
async def test_request_behind_one_that_waits_is_answered_after_it(there: Rig) -> None:
    first = send_produce(there.peer)
    second = there.beat()
    assert there.peer.answered() == []
    there.handler.answer(first)
    await turn()
    assert there.peer.answered() == [first, second]


@finds(FrameReader.wrote, "if announced != size:", "if False:")
@on_a_loop
async def test_requests_of_one_read_are_all_answered(there: Rig) -> None:
    there.deliver(
        b"".join(frame(heartbeat.API, 4, number, heartbeat_request()) for number in (1, 2))
    )
    assert there.peer.answered() == [1, 2]


def crowd(there: Rig) -> None:
    there.slicer.crowded = True
    asyncio.get_running_loop().call_soon(setattr, there.slicer, "crowded", False)


@cases(
    "change, is_answered",
    (lambda there: there.connection._end_turn(), True, (ASKS, "or self._turn_over")),
    (lambda there: there.connection.abort(), False, (ASKS, "or self._closing")),
    (lambda there: there.connection.pause_writing(), False, (ASKS, "or self._out.blocked")),
    (crowd, True, (Connection.buffer_updated, "or self._slicer.crowded")),
)
def test_request_waits_where_something_else_is_to_be_done(
    change: Callable[[Rig], None], is_answered: bool
) -> None:
    async def play() -> None:
        there = Rig()
        change(there)
        number = there.beat()
        assert there.asked == []
        await turn()
        assert there.peer.answered() == [number] * is_answered

    asyncio.run(play())


@finds(ASKS, "or self._borrowed")
@on_a_loop
async def test_memory_of_a_large_request_is_given_back(there: Rig) -> None:
    number = there.beat(3 * LARGEST_IDLE_BUFFER)
    assert there.peer.answered() == [number]
    assert there.connection._borrowed == 0


@finds(ASKS, "or self._stalled is not None")
@on_a_loop
async def test_request_that_was_taken_before_is_served_first(there: Rig) -> None:
    first = frame(heartbeat.API, 4, 1, heartbeat_request())[4:]
    there.connection._stalled = memoryview(first)
    second = there.beat()
    assert there.peer.answered() == [1, second]


@finds(ASKS, " and started < self.repeats_until")
@on_a_loop
async def test_request_after_the_end_of_the_session_goes_to_its_handler(there: Rig) -> None:
    there.connection.repeats_until = -1
    number = there.beat()
    assert (there.asked, there.handler.begun) == ([], [number])


@finds(Connection._serve, " and now < self.repeats_until")
@on_a_loop
async def test_requests_after_the_end_of_the_session_go_to_their_handler(there: Rig) -> None:
    there.connection.repeats_until = -1
    there.deliver(
        b"".join(frame(heartbeat.API, 4, number, heartbeat_request()) for number in (1, 2))
    )
    assert (there.asked, there.handler.begun) == ([], [1, 2])


@finds(ASKS, "started <= self._guard.until", "True")
@on_a_loop
async def test_request_after_a_pause_of_the_process_is_held(there: Rig) -> None:
    there.guard.until = -1
    there.beat()
    assert (there.asked, there.guard.held) == ([], [there.connection])


@finds(FrameReader.wrote, "not 4 <= size <= self.max_size", "not 4 <= size")
@on_a_loop
async def test_request_above_the_limit_closes_the_connection(there: Rig) -> None:
    there.connection.limit_requests(10, stranger=False)
    there.beat()
    assert (there.asked, there.peer.transport.closed) == ([], True)


@finds(FrameReader.wrote, "not 4 <= size <= self.max_size", "not 0 <= size <= self.max_size")
@on_a_loop
async def test_request_of_no_bytes_at_the_end_of_the_buffer_closes_the_connection(
    there: Rig,
) -> None:
    room = len(there.connection.get_buffer(-1))
    beat = frame(heartbeat.API, 4, 1, heartbeat_request())[4:]
    first = struct.pack(">i", room - 8) + beat + bytes(room - 8 - len(beat))
    there.deliver(first + bytes(2))
    assert there.peer.answered() == [1]
    there.deliver(bytes(2))
    assert there.peer.transport.closed


test_missing_check_is_found = hunt(globals())
