"""Fixtures: a follower broker and the fake leader that it replicates from."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.replication.follower_broker import FollowerBroker, Leader


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
async def broker(leader: Leader) -> AsyncIterator[FollowerBroker]:
    broker = FollowerBroker(leader)
    yield broker
    await broker.stop()
    assert leader.connections == 0
