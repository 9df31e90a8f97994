"""Committed offsets on a running broker: removed when their retention ends, and not before."""

import asyncio
from dataclasses import replace
from pathlib import Path

from barnabas.broker.app import Broker
from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.platform import system_platform
from barnabas.config.broker import BrokerConfig
from barnabas.protocol.messages import describe_groups, find_coordinator
from tests.integration.group_client import GROUP, GroupClient
from tests.support.data_path import connected

MINUTE_MS = 60_000


class ShiftedClock(SystemClock):
    """The machine's clock, shifted forward by the test."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def test_expired_offsets_and_then_their_group_are_removed(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(
        {
            "log.dirs": str(tmp_path),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "offsets.retention.minutes": "10",
            "offsets.retention.check.interval.ms": "10",
        }
    )
    clock = ShiftedClock()
    broker = Broker(config, platform=replace(system_platform(config), clock=clock))
    await broker.start()
    try:
        async with connected(broker) as client:
            groups = GroupClient(client, await client.create(partitions=2))
            request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP])
            await groups.ask(find_coordinator, request, 4)
            assert await groups.commit(7, 42) == 0
            clock.ahead_ms = 9 * MINUTE_MS
            await asyncio.sleep(0.05)
            assert await groups.fetch(7) == [42, -1]
            clock.ahead_ms = 11 * MINUTE_MS
            async with asyncio.timeout(5):
                while await groups.fetch(7) != [-1, -1]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            request = describe_groups.DescribeGroupsRequest(groups=[GROUP])
            answer = await groups.ask(describe_groups, request, 5)
            assert answer.groups[0].group_state == "Dead"
    finally:
        await broker.stop()
