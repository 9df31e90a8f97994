"""The writes of the controller: guarded, and in transactions that ZooKeeper accepts."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.registration import prepare_cluster, register_broker
from barnabas.broker.cluster.znodes import BrokerEndpoint, BrokerInfo
from barnabas.broker.controller.cluster_store import (
    MAX_OPS,
    ClusterStore,
    ControllerMovedError,
    StaleStateError,
)
from barnabas.broker.controller.controller_election import Term
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.store.embedded import EmbeddedSession, open_store
from barnabas.broker.store.metadata_store import (
    BadVersion,
    Check,
    Create,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    Stat,
    StoreError,
)
from tests.support.mem_files import MemFiles

MEGABYTE = 1 << 20


class RecordingStore:
    """A store that records its transactions; `error` is the failure of the next one."""

    session_timeout = math.inf

    def __init__(self) -> None:
        self.transactions: list[Sequence[Op]] = []
        self.error: StoreError | None = None

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        if self.error is not None:
            raise self.error
        self.transactions.append(ops)
        first = sum(map(len, self.transactions))
        return [Stat(first + index, 0, 0, 0, 0) for index, _ in enumerate(ops)]


def register(store: Any) -> ClusterStore:
    return ClusterStore(store, Term(3, 17), Slicer(lambda: 0.0))


@pytest.mark.parametrize("data", [b"", b"x" * 300, b"x" * 200_000])
async def test_every_transaction_is_guarded_and_bounded(data: bytes) -> None:
    store = RecordingStore()
    groups = [[Create(f"/{n}"), Create(f"/{n}/state", data)] for n in range(2500)]
    results = await register(store).commit(groups)
    assert len(results) == len(set(results)) == len(groups)
    for ops in store.transactions:
        assert ops[0] == Check(znodes.CONTROLLER_EPOCH, 17)
        assert len(ops) <= MAX_OPS
        assert sum(len(each.path) + len(getattr(each, "data", b"")) for each in ops) < MEGABYTE
        # A state is never written without its parent.
        assert len(ops) % 2 == 1
    written = [op for ops in store.transactions for op in ops[1:]]
    assert written == [op for group in groups for op in group]


async def test_empty_commit_writes_nothing() -> None:
    store = RecordingStore()
    assert await register(store).commit([]) == []
    assert store.transactions == []


@pytest.mark.parametrize("error", [BadVersion, NoNode, NodeExists, NotEmpty])
async def test_only_another_epoch_means_another_controller(error: type[StoreError]) -> None:
    store = RecordingStore()
    store.error = error("/brokers/topics/t")
    with pytest.raises(StaleStateError):
        await register(store).commit([[Create("/a")]])
    store.error = error(znodes.CONTROLLER_EPOCH)
    with pytest.raises(ControllerMovedError):
        await register(store).commit([[Create("/a")]])


class RacingStore:
    """A store in which brokers register between two reads."""

    session_timeout = math.inf

    def __init__(self, session: EmbeddedSession, register: Callable[[], Awaitable[None]]) -> None:
        self._session = session
        self._register = [register]

    async def children(self, path: str) -> list[str]:
        names = await self._session.children(path)
        if self._register:
            await self._register.pop()()
        return names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


async def test_snapshot_includes_every_broker_that_registered_before_another() -> None:
    """A decision that knew the later one would seem to have known the earlier one as well."""
    store = await open_store(MemFiles(), "/metadata", InlineOffload())
    session, first, second = store.session(), store.session(), store.session()
    await prepare_cluster(session, "cluster")
    endpoints = (BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092),)
    await register_broker(first, BrokerInfo(1, endpoints), 0)

    async def both() -> None:
        await register_broker(second, BrokerInfo(2, endpoints), 0)
        await store.end(first.session_id)
        await first.renew()
        await register_broker(first, BrokerInfo(1, endpoints), 0)

    found = await register(RacingStore(session, both)).live_brokers()
    assert sorted(found) == [1, 2]
    assert found[2].epoch < found[1].epoch
    await store.close()
