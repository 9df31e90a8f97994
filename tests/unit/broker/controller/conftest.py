"""Fixtures with clusters, shared by several test files."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.controller.harness import open_cluster
from tests.unit.broker.controller.trio import Trio


@pytest.fixture
async def trio() -> AsyncIterator[Trio]:
    trio = Trio((await open_cluster()).store)
    await trio.begin()
    yield trio
    await trio.close()
    assert not trio.fatal
