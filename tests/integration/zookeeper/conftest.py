"""A chroot of its own for each test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.metadata.zookeeper.settings import Settings
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore, open_zookeeper
from tests.zookeeper import ZooKeeperServer, chroot_of, shared_server

Open = Callable[..., Any]


@pytest.fixture
def server() -> ZooKeeperServer:
    """The one that this process shares: not to be stopped or paused."""
    return shared_server()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server to be killed, paused and restarted."""
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


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


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    stores = Stores()
    yield stores
    await stores.close()


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    return chroot_of(request.node.name)
