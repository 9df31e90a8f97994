"""A real broker whose coordinators have one partition each, and a transactional producer on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.broker.app import Broker
from tests.support.data_path import Client, connected, running
from tests.unit.broker.transactions.transactor import ONE_PARTITION, Transactor


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, **ONE_PARTITION) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    async with connected(broker) as client:
        await client.create("t", 3)
        yield client


@pytest.fixture
async def producer(client: Client) -> Transactor:
    return await Transactor(client).init()
