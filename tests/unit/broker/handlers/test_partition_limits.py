"""The limit on partitions that one request may create."""

from collections.abc import AsyncIterator

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.unit.broker.handlers.control_plane import ControlPlane, control_plane


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        yield plane


async def create(plane: ControlPlane, **topics: int) -> list[int]:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
            )
            for name, count in topics.items()
        ]
    )
    return [result.error_code for result in (await plane.ask(request)).topics]


async def grow(plane: ControlPlane, **topics: int) -> list[int]:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in topics.items()
        ],
        timeout_ms=5000,
        validate_only=True,
    )
    return [result.error_code for result in (await plane.ask(request)).results]


async def test_create_topics_limits_partitions(plane: ControlPlane) -> None:
    refused = [ErrorCode.POLICY_VIOLATION] * 2
    assert await create(plane, huge=2**31 - 1, small=1) == refused
    assert await create(plane, a=6000, b=6000) == refused


async def test_create_partitions_limits_partitions(plane: ControlPlane) -> None:
    assert await create(plane, a=1, b=1) == [0, 0]
    assert await grow(plane, a=2**31 - 1, b=3) == [ErrorCode.POLICY_VIOLATION, 0]
    assert await grow(plane, a=6000, b=6000) == [0, ErrorCode.POLICY_VIOLATION]
