"""Other brokers, whose answers a test gives."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.broker.cluster.cache import BrokerNode, PartitionMetadata
from barnabas.broker.cluster.peers import Then
from barnabas.client.connection import Decode
from barnabas.protocol import codec
from barnabas.protocol.messages import expect_producers
from barnabas.protocol.schema import Api
from barnabas.protocol.topic_partition import TopicPartition


class FakePeer:
    """A peer that keeps each request until the test answers it."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.sent: list[tuple[Api, int | None]] = []
        self.closed = False
        self.aborted = 0
        self.announced = {expect_producers.API.key}
        self._waiting: list[Then] = []

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
        if type(request) is bytes:
            request = codec.decode(api.request, version, request)
        if decode is not None:
            then = partial(_decoded, decode, version, then)
        self._waiting.append(then)
        if self.closed:
            self.break_()
            return
        assert timeout <= 10, "a request to a stopped broker must end"
        self.requests.append(request)
        self.sent.append((api, version))

    def tells(self, api: Api) -> bool:
        return not self.closed and api.key in self.announced

    def tell(self, api: Api, request: object, *, version: int) -> None:
        self.requests.append(codec.decode(api.request, version, codec.encode(request, version)))
        self.sent.append((api, version))

    def abort(self) -> None:
        self.aborted += 1
        self.break_()

    async def close(self) -> None:
        self.closed = True
        self.break_()

    # -- what the test does ----------------------------------------------------------------------

    @property
    def under_way(self) -> int:
        return len(self._waiting)

    def answer(self, response: Any) -> None:
        """Answer the oldest request that has no answer."""
        self._waiting.pop(0)(response)

    def break_(self) -> None:
        """Break the connection: all requests in flight are lost."""
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            asyncio.get_running_loop().call_soon(then, None)


def _decoded(decode: Decode, version: int, then: Then, response: Any) -> None:
    """Pass on what the connection would make of an answer."""
    then(None if response is None else decode(codec.encode(response, version), 0))


class FakeCluster:
    """A metadata cache that a test writes, and the connections to its brokers."""

    def __init__(self, *brokers: int) -> None:
        self.brokers = {each: BrokerNode(each, None, {}) for each in brokers}
        self.leaders: dict[TopicPartition, int] = {}
        self.peers: dict[int, FakePeer] = {}
        self._listeners: list[Callable[[], None]] = []

    def connect(self, broker_id: int) -> FakePeer:
        assert broker_id not in self.peers, "one line is enough"
        self.peers[broker_id] = FakePeer()
        return self.peers[broker_id]

    def partition(self, topic: str, index: int) -> PartitionMetadata | None:
        leader = self.leaders.get((topic, index))
        if leader is None:
            return None
        return PartitionMetadata(index, leader, 0, (leader,), (leader,), (), 0)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def changed(self) -> None:
        for listener in self._listeners:
            listener()

    def dies(self, broker_id: int) -> None:
        del self.brokers[broker_id]
        self.changed()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
