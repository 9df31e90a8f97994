"""A metadata store in memory, with what every broker finds there."""

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.metadata.cluster import prepare_cluster
from barnabas.broker.metadata.embedded import EmbeddedStore, open_store
from barnabas.broker.offload import InlineOffload
from barnabas.storage.mem_files import MemFiles


@pytest.fixture
async def store() -> AsyncIterator[EmbeddedStore]:
    store = await open_store(MemFiles(), "/metadata", InlineOffload())
    await prepare_cluster(store.session(), "cluster")
    yield store
    await store.close()
