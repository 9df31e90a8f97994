"""Producer ids are unique in the cluster."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from barnabas.broker.cluster import producer_ids
from barnabas.broker.cluster.producer_ids import BLOCK_SIZE, ProducerIdBlocks
from barnabas.broker.cluster.znodes import ZnodeError
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import EmbeddedStore, open_store
from barnabas.broker.store.metadata_store import MetadataStore, Stat, StoreUnavailable
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.mem_files import MemFiles
from tests.support.waiting import IN_TIME_S, eventually


@pytest.fixture
async def store() -> EmbeddedStore:
    return await open_store(MemFiles(), "/metadata", InlineOffload())


async def test_competing_brokers_never_share_an_id(store: EmbeddedStore) -> None:
    several = [ProducerIdBlocks(store.session(), broker) for broker in range(3)]
    ids = await asyncio.gather(
        *(blocks.next_id() for blocks in several for _ in range(BLOCK_SIZE + 200))
    )
    assert len(set(ids)) == len(ids)
    assert min(ids) == 0


async def test_restart_continues_after_the_last_block(store: EmbeddedStore) -> None:
    first = await ProducerIdBlocks(store.session(), 1).next_id()
    second = await ProducerIdBlocks(store.session(), 1).next_id()
    assert (first, second) == (0, BLOCK_SIZE)


class FaultySession:
    """A session of the store that can be unavailable or silent."""

    def __init__(self, session: MetadataStore) -> None:
        self._session = session
        self.fails: Exception | None = None
        self.silent = False
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def get(self, path: str) -> tuple[bytes, Stat]:
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails
        return await self._session.get(path)


@pytest.fixture
async def faulty(store: EmbeddedStore) -> FaultySession:
    return FaultySession(store.session())


@pytest.fixture
async def blocks(faulty: FaultySession) -> AsyncIterator[ProducerIdBlocks]:
    blocks = ProducerIdBlocks(cast(MetadataStore, faulty), 1)
    yield blocks
    blocks.close()


async def until_the_spare_is_due(blocks: ProducerIdBlocks) -> None:
    """Wait until the spare block is requested, in the next iteration of the loop."""
    await blocks.next_id()
    while blocks._soon is None:
        blocks.take()


def idle(blocks: ProducerIdBlocks) -> bool:
    return blocks._soon is None


async def test_spare_block_bridges_the_loss_of_the_store(
    blocks: ProducerIdBlocks, faulty: FaultySession
) -> None:
    for _ in range(BLOCK_SIZE - 50):
        await blocks.next_id()
    await eventually(lambda: idle(blocks))
    faulty.fails = StoreUnavailable("away")
    for _ in range(50 + BLOCK_SIZE):
        await blocks.next_id()
    with pytest.raises(KafkaError) as caught:
        await blocks.next_id()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ZnodeError("damaged")])
async def test_failed_allocation_of_a_spare_block_is_repeated(
    blocks: ProducerIdBlocks,
    faulty: FaultySession,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    monkeypatch.setattr(producer_ids, "RETRY_S", 0.0)
    await until_the_spare_is_due(blocks)
    faulty.fails = error
    await eventually(lambda: idle(blocks))
    faulty.fails = None
    await blocks.next_id()
    await eventually(lambda: blocks._spare)


async def test_unavailable_store_is_not_asked_for_every_id(
    blocks: ProducerIdBlocks, faulty: FaultySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_ids, "RETRY_S", 3600.0)
    await until_the_spare_is_due(blocks)
    faulty.fails = StoreUnavailable("away")
    before = faulty.asked
    while blocks._current:
        await blocks.next_id()
        await asyncio.sleep(0)
    assert faulty.asked == before + 1


async def test_first_id_is_available_while_the_store_is_unavailable(
    blocks: ProducerIdBlocks, faulty: FaultySession
) -> None:
    blocks.have_spare()
    await eventually(lambda: idle(blocks))
    faulty.fails = StoreUnavailable("away")
    assert await blocks.next_id() == 0


async def test_ids_are_available_while_the_store_is_silent(
    blocks: ProducerIdBlocks, faulty: FaultySession
) -> None:
    await until_the_spare_is_due(blocks)
    faulty.silent = True
    async with asyncio.timeout(IN_TIME_S):
        given = [await blocks.next_id() for _ in range(len(blocks._current))]
    assert given[-1] == BLOCK_SIZE - 1


async def test_cancelled_caller_does_not_cancel_the_next_block(blocks: ProducerIdBlocks) -> None:
    """The spare block is for all callers."""
    await until_the_spare_is_due(blocks)
    while blocks._current:
        blocks.take()
    gone, stays = (asyncio.ensure_future(blocks.next_id()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == BLOCK_SIZE
    assert gone.cancelled()
