"""A scripted socket and a small dispatch table for tests of connections."""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.loop.pause_guard import NO_PAUSE_GUARD, NoPauseGuard
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.server.connection import Connection, SharedResources
from barnabas.broker.server.context import Acknowledgement, RequestContext
from barnabas.broker.server.dispatch import Dispatcher, Route
from barnabas.broker.server.limits.budget import RequestMemory
from barnabas.coordinator.ports import Clock
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.codec import encode
from barnabas.protocol.frame import SpareBuffers
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages import api_versions, end_txn, heartbeat, produce
from barnabas.protocol.schema import Api
from barnabas.protocol.steps import Steps

MAX_REQUEST = 4 << 20


class ScriptedTransport:
    """A transport that keeps written bytes, and reports when the peer's window is full."""

    def __init__(self, behind: socket.socket | None = None) -> None:
        """`behind` is the socket that the transport reports."""
        self.extra: dict[str, Any] = {"peername": ("10.0.0.1", 4000), "socket": behind}
        self.written = bytearray()
        self.writes = 0
        self.held = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self.window: int | None = None
        self.protocol: Connection | None = None

    def get_extra_info(self, name: str) -> Any:
        return self.extra.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.held

    def write(self, data: bytes | memoryview) -> None:
        self.written += data
        self.writes += 1
        if self.window is not None and len(self.written) > self.window and self.protocol:
            self.protocol.pause_writing()

    def writelines(self, parts: list[bytes | memoryview]) -> None:
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class StillClock:
    """A clock that stands still: no turn ends because this machine is slow."""

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0


class Owner:
    """A listener that lists its open connections."""

    name = "PLAINTEXT"

    def __init__(self) -> None:
        self.open: list[Connection] = []
        self.invalid = 0

    def opened(self, connection: Connection) -> None:
        self.open.append(connection)

    def closed(self, connection: Connection) -> None:
        self.open.remove(connection)

    def invalid_request(self, _connection: Connection, _reason: str) -> None:
        self.invalid += 1


class Peer:
    """A client whose requests go to `handle`: Produce, Heartbeat and ApiVersions are routed."""

    def __init__(
        self,
        handle: Callable[[Any, RequestContext], Any],
        *,
        memory: RequestMemory | None = None,
        apis: Iterable[Api] = (),
        clock: Clock | None = None,
        slicer: Slicer | None = None,
        guard: NoPauseGuard = NO_PAUSE_GUARD,
    ) -> None:
        routes = {
            each.key: Route(each, each.versions, handle, _refuse)
            for each in (produce.API, heartbeat.API, api_versions.API, *apis)
        }
        self.spares = SpareBuffers()
        self.metrics = BrokerMetrics(Registry()).requests
        self.memory = memory or RequestMemory(1 << 30)
        shared = SharedResources(
            dispatcher=Dispatcher(
                routes,
                clock=clock or StillClock(),
                slicer=slicer or Slicer(StillClock().monotonic),
                metrics=self.metrics,
            ),
            offload=InlineOffload(),
            memory=self.memory,
            max_request_bytes=MAX_REQUEST,
            spares=self.spares,
            guard=guard,
        )
        self.owner = Owner()
        self.transport = ScriptedTransport()
        self.connection = Connection(shared, self.owner, 1)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self._numbers = count(1)

    def send(self, api: Any, version: int, request: Any) -> int:
        """Send one request; return its correlation id."""
        number = next(self._numbers)
        self.send_bytes(frame(api, version, number, request))
        return number

    def send_bytes(self, data: bytes) -> None:
        """Deliver bytes while the broker reads."""
        while data and self.transport.reading and not self.transport.closed:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]
        self.unread = data

    def answered(self) -> list[int]:
        """Return the correlation ids of the answers so far."""
        numbers, data = [], bytes(self.transport.written)
        while data:
            size, number = struct.unpack_from(">ii", data)
            numbers.append(number)
            data = data[4 + size :]
        return numbers

    def lose(self) -> None:
        """Close the connection from the peer's side."""
        self.transport.closed = True
        self.connection.connection_lost(None)


class Handler:
    """A handler that answers Heartbeat at once, and Produce when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.parked: dict[int, asyncio.Future[Any]] = {}
        self.park_all = False
        self.parking: type[asyncio.Future[Any]] = Acknowledgement

    def __call__(self, request: Any, context: RequestContext) -> Any:
        self.begun.append(context.correlation_id)
        if not isinstance(request, heartbeat.HeartbeatRequest) or self.park_all:
            future = self.parking()
            self.parked[context.correlation_id] = future
            return future
        return heartbeat.HeartbeatResponse()

    def answer(self, number: int) -> None:
        self.parked[number].set_result(produce.ProduceResponse(responses=[]))

    def end(self, number: int) -> None:
        self.parked[number].set_result(end_txn.EndTxnResponse())


def send_produce(peer: Peer) -> int:
    return peer.send(produce.API, 9, produce_request())


def frame(api: Any, version: int, number: int, request: Any) -> bytes:
    """Return an encoded request."""
    body = encode_request_header(api.key, version, number, "test") + encode(request, version)
    return struct.pack(">i", len(body)) + body


def produce_request(payload: bytes = b"", acks: int = -1) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(index=0, records=payload)
    topic = produce.TopicProduceData(name="t", partition_data=[data])
    return produce.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def heartbeat_request() -> heartbeat.HeartbeatRequest:
    return heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


async def turn() -> None:
    """Let the loop run what is ready."""
    for _ in range(3):
        await asyncio.sleep(0)


def _refuse(request: Any, code: int, _version: int) -> Steps[Any]:
    yield None
    if isinstance(request, produce.ProduceRequest):
        return produce.ProduceResponse(responses=[], throttle_time_ms=int(code))
    if isinstance(request, heartbeat.HeartbeatRequest):
        return heartbeat.HeartbeatResponse(error_code=int(code))
    return api_versions.ApiVersionsResponse(error_code=int(code), api_keys=[])
