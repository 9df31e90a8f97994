"""A metadata store in memory, with the nodes of a new cluster."""

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.cluster.registration import prepare_cluster
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import EmbeddedStore, open_store
from tests.support.mem_files import MemFiles


@pytest.fixture
async def store() -> AsyncIterator[EmbeddedStore]:
    store = await open_store(MemFiles(), "/metadata", InlineOffload())
    await prepare_cluster(store.session(), "cluster")
    yield store
    await store.close()
