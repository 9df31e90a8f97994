"""Producer ids are unique in the cluster, whoever hands them out."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.metadata.embedded import EmbeddedStore, open_store
from barnabas.broker.metadata.producer_ids import BLOCK_SIZE, ProducerIdBlocks
from barnabas.broker.offload import InlineOffload
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.mem_files import Fault, MemFiles


@pytest.fixture
def files() -> MemFiles:
    return MemFiles()


@pytest.fixture
async def store(files: MemFiles) -> AsyncIterator[EmbeddedStore]:
    store = await open_store(files, "/metadata", InlineOffload())
    yield store
    files.faults.clear()


async def test_brokers_that_compete_never_share_an_id(store: EmbeddedStore) -> None:
    several = [ProducerIdBlocks(store.session(), broker) for broker in range(3)]
    ids = await asyncio.gather(
        *(blocks.next_id() for blocks in several for _ in range(BLOCK_SIZE + 200))
    )
    assert len(set(ids)) == len(ids)
    assert min(ids) == 0


async def test_a_restart_goes_on_behind_the_last_block(store: EmbeddedStore) -> None:
    first = await ProducerIdBlocks(store.session(), 1).next_id()
    second = await ProducerIdBlocks(store.session(), 1).next_id()
    assert (first, second) == (0, BLOCK_SIZE)


async def test_a_spare_block_bridges_the_loss_of_the_store(
    store: EmbeddedStore, files: MemFiles
) -> None:
    blocks = ProducerIdBlocks(store.session(), 1)
    for _ in range(BLOCK_SIZE - 50):
        await blocks.next_id()
    files.faults.append(Fault("append", from_then_on=True))
    for _ in range(50 + BLOCK_SIZE):
        await blocks.next_id()
    with pytest.raises(KafkaError) as caught:
        await blocks.next_id()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_who_goes_away_does_not_take_the_next_block_along(store: EmbeddedStore) -> None:
    """The block that is fetched ahead is everybody's."""
    blocks = ProducerIdBlocks(store.session(), 1)
    await blocks.next_id()
    while blocks._soon is None:
        blocks.take()
    gone, stays = (asyncio.ensure_future(blocks.next_id()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert len(blocks._spare) == BLOCK_SIZE
