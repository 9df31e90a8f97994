"""The state machine that every metadata store must pass, on a real ZooKeeper."""

import asyncio

from hypothesis import settings

from barnabas.broker.store.metadata_store import MetadataStore
from barnabas.broker.store.zookeeper.settings import Settings
from barnabas.broker.store.zookeeper.store import ZooKeeperStore, open_zookeeper
from tests.support.store_machine import Harness, StoreMachine
from tests.support.zookeeper import ZooKeeperServer, chroot_of, shared_server


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
            if session.has_session:
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
TestZooKeeperStore.settings = settings(max_examples=12, stateful_step_count=25)
