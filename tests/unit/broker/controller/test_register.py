"""What the controller writes: guarded, and in transactions that ZooKeeper takes."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from barnabas.broker.controller.office import Term
from barnabas.broker.controller.register import MAX_OPS, Fenced, Outdated, Register
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.cluster import prepare_cluster, register_broker
from barnabas.broker.metadata.embedded import EmbeddedSession, open_store
from barnabas.broker.metadata.store import (
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
from barnabas.broker.metadata.znodes import BrokerEndpoint, BrokerInfo
from barnabas.broker.offload import InlineOffload
from barnabas.storage.mem_files import MemFiles

MEGABYTE = 1 << 20


class Written:
    """A store that remembers its transactions; `error` is what the next one fails with."""

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


def register(store: Any) -> Register:
    return Register(store, Term(3, 17))


@pytest.mark.parametrize("data", [b"", b"x" * 300, b"x" * 200_000])
async def test_every_transaction_is_guarded_and_bounded(data: bytes) -> None:
    store = Written()
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


async def test_nothing_to_write_is_nothing_written() -> None:
    store = Written()
    assert await register(store).commit([]) == []
    assert store.transactions == []


@pytest.mark.parametrize("error", [BadVersion, NoNode, NodeExists, NotEmpty])
async def test_only_another_epoch_means_another_controller(error: type[StoreError]) -> None:
    store = Written()
    store.error = error("/brokers/topics/t")
    with pytest.raises(Outdated):
        await register(store).commit([[Create("/a")]])
    store.error = error(znodes.CONTROLLER_EPOCH)
    with pytest.raises(Fenced):
        await register(store).commit([[Create("/a")]])


class Hurried:
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


async def test_no_broker_is_left_out_that_registered_before_another_one() -> None:
    """A decision that knew of the other would seem to have known of it as well."""
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

    found = await register(Hurried(session, both)).live_brokers()
    assert sorted(found) == [1, 2]
    assert found[2].epoch < found[1].epoch
    await store.close()
