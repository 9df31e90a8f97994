"""A broker that follows, and the leader that it follows."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.replication.following import FollowingBroker, Leader


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
async def broker(leader: Leader) -> AsyncIterator[FollowingBroker]:
    broker = FollowingBroker(leader)
    yield broker
    await broker.stop()
    assert leader.lines == 0
