"""A chroot for each test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.store.metadata_store import NodeExists, StoreUnavailable
from barnabas.broker.store.zookeeper.settings import Settings
from barnabas.broker.store.zookeeper.store import ZooKeeperStore, open_zookeeper
from tests.support.waiting import IN_TIME_S
from tests.support.zookeeper import ZooKeeperServer, chroot_of, shared_server

Open = Callable[..., Any]


@pytest.fixture
def server() -> ZooKeeperServer:
    """The server that this process shares; a test must not stop or pause it."""
    return shared_server()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server that the test may kill, pause and restart."""
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        yield server


class Stores:
    """Opens stores, and closes them."""

    def __init__(self) -> None:
        self._open: list[ZooKeeperStore] = []

    async def open(self, server: ZooKeeperServer, chroot: str, **settings: Any) -> ZooKeeperStore:
        options = {"session_timeout": 20.0, "connection_timeout": 20.0} | settings
        store = await open_zookeeper(Settings((server.connect,), chroot, **options))
        self._open.append(store)
        return store

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self._open))


async def until_answered(ask: Callable[[], Awaitable[object]]) -> None:
    """Wait for a server that comes back: it may take longer than a request waits for it."""
    async with asyncio.timeout(IN_TIME_S):
        while True:
            try:
                await ask()
                return
            except NodeExists:
                return
            except StoreUnavailable:
                await asyncio.sleep(0.02)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    stores = Stores()
    yield stores
    await stores.close()


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    return chroot_of(request.node.name)
