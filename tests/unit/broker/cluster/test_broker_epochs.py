"""The broker epochs of the present registrations."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from inspect import isawaitable
from typing import Any

import pytest

from barnabas.broker.cluster import broker_epochs, znodes
from barnabas.broker.cluster.broker_epochs import BrokerEpochs
from barnabas.broker.store.embedded import EmbeddedStore
from barnabas.broker.store.metadata_store import MetadataStore, StoreUnavailable
from tests.support.waiting import eventually


class CountingStore:
    """A session that counts how often the registrations are read, and fails on demand."""

    def __init__(self, session: MetadataStore) -> None:
        self._session = session
        self.reads = 0
        self.fails = False

    async def children(self, path: str) -> list[str]:
        self.reads += 1
        if self.fails:
            raise StoreUnavailable(path)
        return await self._session.children(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class Following:
    def __init__(self, store: EmbeddedStore) -> None:
        self.store = CountingStore(store.session())
        self.brokers = store.session()
        self.tasks: set[asyncio.Task[None]] = set()
        self.epochs = BrokerEpochs(self.store, self.spawn)  # type: ignore[arg-type]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def register(self, broker_id: int) -> int:
        path = znodes.broker_path(broker_id)
        created = await self.brokers.create(path, b"{}", ephemeral=True)
        return created.stat.czxid

    async def is_present(self, broker_id: int, epoch: int) -> bool:
        found = self.epochs.is_present(broker_id, epoch)
        return await found if isawaitable(found) else bool(found)


@pytest.fixture
async def following(store: EmbeddedStore) -> AsyncIterator[Following]:
    following = Following(store)
    yield following
    following.epochs.stop()
    for task in following.tasks:
        task.cancel()


async def test_only_the_present_registration_of_a_broker_counts(following: Following) -> None:
    epoch = await following.register(1)
    assert await following.is_present(1, epoch)
    for broker_id, claimed in ((1, epoch - 1), (1, epoch + 1), (2, epoch), (2, 0)):
        assert not await following.is_present(broker_id, claimed)
    await following.brokers.delete(znodes.broker_path(1))
    later = await following.register(1)
    assert await following.is_present(1, later)
    assert not await following.is_present(1, epoch)


async def test_registrations_that_begin_and_end_are_followed(following: Following) -> None:
    following.epochs.start()
    epoch = await following.register(1)
    await eventually(lambda: following.epochs._known == {1: epoch})
    await following.brokers.delete(znodes.broker_path(1))
    await eventually(lambda: following.epochs._known == {})
    assert not await following.is_present(1, epoch)


async def test_known_epochs_are_judged_without_the_store(following: Following) -> None:
    epoch = await following.register(1)
    assert await following.is_present(1, epoch)
    following.store.fails = True
    assert following.epochs.is_present(1, epoch) is True
    assert following.epochs.is_present(1, epoch - 1) is False
    assert not await following.is_present(1, epoch + 1)


async def test_registrations_are_read_again_after_the_store_failed(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_epochs, "RETRY_S", 0)
    epoch = await following.register(1)
    following.store.fails = True
    following.epochs.start()
    await eventually(lambda: following.store.reads > 0)
    following.store.fails = False
    await eventually(lambda: following.epochs._known == {1: epoch})


async def test_requests_with_made_up_epochs_share_one_read(following: Following) -> None:
    claims = [following.is_present(each, 2**62 + each) for each in range(500)]
    assert not any(await asyncio.gather(*claims))
    assert following.store.reads == 1
    started = asyncio.get_running_loop().time()
    assert not await following.is_present(1, 2**62)
    assert not await following.is_present(2, 2**62)
    assert asyncio.get_running_loop().time() - started > broker_epochs.PAUSE_S
    assert following.store.reads == 3
