"""The store on a real ZooKeeper does what every store must."""

import asyncio

from hypothesis import settings

from barnabas.broker.metadata.store import MetadataStore
from barnabas.broker.metadata.zookeeper.settings import Settings
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore, open_zookeeper
from tests.unit.broker.metadata.store_machine import Harness, StoreMachine
from tests.zookeeper import ZooKeeperServer, chroot_of, shared_server


class ZooKeeperHarness:
    """A chroot on the shared server, which other tests use too: it is not restarted here."""

    root = "/machine"

    def __init__(self, server: ZooKeeperServer) -> None:
        self.server = server
        self.settings = Settings((server.connect,), chroot_of("machine"), 30.0, 30.0)
        self.sessions: list[ZooKeeperStore] = []

    async def session(self) -> MetadataStore:
        store = await open_zookeeper(self.settings)
        self.sessions.append(store)
        return store

    async def expire(self, session: MetadataStore) -> None:
        assert isinstance(session, ZooKeeperStore)
        over = asyncio.Event()
        session.on_expired(over.set)
        assert session.key is not None
        await asyncio.to_thread(self.server.expire, *session.key)
        await asyncio.wait_for(over.wait(), 10)

    async def restart(self) -> bool:
        return False

    async def settle(self) -> None:
        for session in self.sessions:
            if session.living:
                await session.exists("/")
        await asyncio.sleep(0)

    async def close(self) -> None:
        for session in self.sessions:
            await session.close()


class ZooKeeperMachine(StoreMachine):
    async def start(self) -> Harness:
        harness = ZooKeeperHarness(shared_server())
        await (await harness.session()).create(harness.root)
        return harness


TestZooKeeperStore = ZooKeeperMachine.TestCase
TestZooKeeperStore.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
