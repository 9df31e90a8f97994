"""Links between brokers that lose requests, lose responses, and deliver requests after their
timeout."""

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.broker.cluster.peers import PeerUnreachable, Then
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import Repeats
from barnabas.client.connection import Decode
from barnabas.coordinator.soon import wait
from barnabas.metrics.registry import Cell, HistogramCell
from barnabas.protocol import codec
from barnabas.protocol.codec import encode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.schema import Api
from barnabas.security.principal import Principal
from tests.support.steps import all_taken

if TYPE_CHECKING:
    from tests.simulation.coordination.node import Node
    from tests.simulation.coordination.world import World

_ANSWER_HEADER = 9
"""The bytes of an answer before its body: length, correlation id and tags."""
LONGEST_STALL_S = 15.0


class Line:
    """The part of `Peer` that coordination uses. Requests and responses go through the codec."""

    def __init__(self, world: "World", source: int, target: int) -> None:
        self._world = world
        self._source = source
        self._target = target
        self._closed = False
        self._connection: int | None = None
        self._repeats: dict[tuple[Node, int, int], Repeats] = {}
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._told = asyncio.Event()
        """Set when all that was told has arrived, or never will: later requests come behind it."""
        self._told.set()

    def tells(self, _api: Api) -> bool:
        return self._connection is not None and self._world.reaches(self._source, self._target)

    def tell(self, api: Api, request: object, *, version: int) -> None:
        """Send a request without a response. One that is not delivered breaks the connection, and
        may still arrive late."""
        world, fate = self._world, self._world.fate()
        world.counted[f"{api.name} between brokers"] += 1
        world.note(f"{self._source}>{self._target} {api.name} is {fate}")
        if self._connection is None or fate == "lost":
            self._connection = None
            return
        context = self._context(api, version)
        late = fate == "stalled"
        if late:
            self._connection = None
        else:
            self._told.clear()
        world.spawn(self._deliver_told(api, encode(request, version), context, late))

    async def _deliver_told(
        self, api: Api, body: bytes, context: RequestContext, late: bool
    ) -> None:
        world = self._world
        await asyncio.sleep(world.rng.uniform(0, LONGEST_STALL_S) if late else world.latency())
        node = world.nodes[self._target]
        if world.reaches(self._source, self._target):
            world.counted[f"{api.name} {'late' if late else 'in time'}"] += 1
            node.handlers[api.key](codec.decode(api.request, context.api_version, body), context)
        if not late:
            self._told.set()

    def submit(
        self,
        api: Api,
        request: object,
        then: Then,
        *,
        version: int,
        timeout: float,
        decode: Decode | None = None,
    ) -> None:
        self._world.spawn(self._submit(api, request, then, version, timeout, decode))

    async def _submit(
        self,
        api: Api,
        request: object,
        then: Then,
        version: int,
        timeout: float,
        decode: Decode | None,
    ) -> None:
        try:
            answer = await self.request(
                api, request, version=version, timeout=timeout, decode=decode
            )
        except PeerUnreachable:
            answer = None
        then(answer)

    async def request(
        self,
        api: Api,
        request: object,
        *,
        version: int,
        timeout: float = 30.0,
        decode: Decode | None = None,
    ) -> Any:
        if self._closed or not self._world.reaches(self._source, self._target):
            raise PeerUnreachable("closed")
        world, future = self._world, asyncio.get_running_loop().create_future()
        world.counted[f"{api.name} between brokers"] += 1
        self._pending[future] = None
        if self._connection is None:
            self._connection = world.connect()
            self._repeats.clear()
        context = self._context(api, version)
        frame = request if isinstance(request, bytes) else encode(request, version)
        world.spawn(self._deliver(api, frame, context, future))
        try:
            async with asyncio.timeout(timeout):
                encoded = await future
            if decode is not None:
                return decode(encoded, 0)
            return codec.decode(api.response, version, encoded)
        except TimeoutError:
            self._connection = None
            raise PeerUnreachable("timeout") from None
        except PeerUnreachable:
            self._connection = None
            raise
        finally:
            self._pending.pop(future, None)

    def _context(self, api: Api, version: int) -> RequestContext:
        assert self._connection is not None
        return RequestContext(
            api_key=api.key,
            api_version=version,
            correlation_id=0,
            client_id=f"broker-{self._source}",
            principal=Principal.parse("User:broker"),
            listener="BROKERS",
            client_host="sim",
            connection_id=self._connection,
            received_ms=self._world.now_ms(),
            inter_broker=True,
        )

    async def _deliver(
        self, api: Api, frame: Any, context: RequestContext, future: "asyncio.Future[Any]"
    ) -> None:
        world = self._world
        await asyncio.sleep(world.latency())
        await self._told.wait()
        fate = world.fate()
        world.note(f"{self._source}>{self._target} {api.name} is {fate}")
        if fate in ("lost", "stalled"):
            _fail(future)
            if fate == "lost":
                return
            await asyncio.sleep(world.rng.uniform(0, LONGEST_STALL_S))
        if not world.reaches(self._source, self._target):
            _fail(future)
            return
        node = world.nodes[self._target]
        encoded = await self._answer(node, api, frame, context)
        await asyncio.sleep(world.latency())
        if fate == "unanswered" or not node.alive:
            _fail(future)
        elif not future.done():
            future.set_result(encoded)

    async def _answer(self, node: "Node", api: Api, body: bytes, context: RequestContext) -> bytes:
        """Have the broker answer, from the memory of the connection if the request repeats."""
        version = context.api_version
        again = node.again.get(api.key)
        repeats = self._repeats.get((node, api.key, context.connection_id))
        header = encode_request_header(api.key, version, 0, context.client_id)
        request = memoryview(header + body)
        if repeats is not None:
            parts = repeats.serve(request, context.received_ms, 0.0)
            if parts is not None:
                (part,) = parts
                return bytes(part)[_ANSWER_HEADER:]
        decoded = codec.decode(api.request, version, body)
        outcome = all_taken(node.handlers[api.key](decoded, context))
        answer = await wait(outcome)
        if again is not None and not isinstance(outcome, asyncio.Future):
            if repeats is None:
                cells = {"bytes_in": Cell(), "requests": Cell(), "time_ms": HistogramCell(())}
                route = SimpleNamespace(api=api)
                served = SimpleNamespace(route=route, version=version, again=again, **cells)
                repeats = Repeats(served, {}, lambda: 0.0)
            self._repeats[node, api.key, context.connection_id] = repeats
            repeats.learn(request, decoded, context, answer)
        return encode(answer, version)

    def abort(self) -> None:
        for each in list(self._pending):
            _fail(each)

    async def close(self) -> None:
        self._closed = True
        self.abort()


def _fail(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.set_exception(PeerUnreachable("the connection broke"))
