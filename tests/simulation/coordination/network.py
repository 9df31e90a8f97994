"""Links between brokers that lose requests, lose responses, and deliver requests after their
timeout."""

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.broker.cluster.peers import PeerUnreachable, Then
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import wait
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.schema import Api
from barnabas.security.principal import Principal
from tests.support.steps import all_taken

if TYPE_CHECKING:
    from tests.simulation.coordination.world import World

LONGEST_STALL_S = 15.0


class Line:
    """The part of `Peer` that coordination uses. Requests and responses go through the codec."""

    def __init__(self, world: "World", source: int, target: int) -> None:
        self._world = world
        self._source = source
        self._target = target
        self._closed = False
        self._connection: int | None = None
        self._pending: dict[asyncio.Future[Any], None] = {}

    def submit(
        self, api: Api, request: object, then: Then, *, version: int, timeout: float
    ) -> None:
        self._world.spawn(self._submit(api, request, then, version, timeout))

    async def _submit(
        self, api: Api, request: object, then: Then, version: int, timeout: float
    ) -> None:
        try:
            answer = await self.request(api, request, version=version, timeout=timeout)
        except PeerUnreachable:
            answer = None
        then(answer)

    async def request(
        self, api: Api, request: object, *, version: int | None = None, timeout: float = 30.0
    ) -> Any:
        if self._closed or not self._world.reaches(self._source, self._target):
            raise PeerUnreachable("closed")
        assert version is not None
        world, future = self._world, asyncio.get_running_loop().create_future()
        world.counted[f"{api.name} between brokers"] += 1
        self._pending[future] = None
        if self._connection is None:
            self._connection = world.connect()
        context = RequestContext(
            api_key=api.key,
            api_version=version,
            correlation_id=0,
            client_id=f"broker-{self._source}",
            principal=Principal.parse("User:broker"),
            listener="BROKERS",
            client_host="sim",
            connection_id=self._connection,
            received_ms=world.now_ms(),
            inter_broker=True,
        )
        world.spawn(self._deliver(api, encode(request, version), context, future))
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            self._connection = None
            raise PeerUnreachable("timeout") from None
        except PeerUnreachable:
            self._connection = None
            raise
        finally:
            self._pending.pop(future, None)

    async def _deliver(
        self, api: Api, frame: Any, context: RequestContext, future: "asyncio.Future[Any]"
    ) -> None:
        world = self._world
        await asyncio.sleep(world.latency())
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
        version = context.api_version
        body = decode(api.request, version, bytes(b"".join(_parts(frame))))
        answer = await wait(all_taken(node.handlers[api.key](body, context)))
        encoded = bytes(b"".join(_parts(encode(answer, version))))
        await asyncio.sleep(world.latency())
        if fate == "unanswered" or not node.alive:
            _fail(future)
        elif not future.done():
            future.set_result(decode(api.response, version, encoded))

    def abort(self) -> None:
        for each in list(self._pending):
            _fail(each)

    async def close(self) -> None:
        self._closed = True
        self.abort()


def _fail(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.set_exception(PeerUnreachable("the connection broke"))


def _parts(encoded: Any) -> list[Any]:
    return list(encoded) if isinstance(encoded, list) else [encoded]
