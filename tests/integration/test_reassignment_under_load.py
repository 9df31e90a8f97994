"""Partitions move under load: every acknowledged record is there exactly once."""

from collections.abc import AsyncIterator, Iterator

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster as Client
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.client.reassignment_plan import Plan
from barnabas.testing import Cluster
from tests.integration.loaded_topic import DEADLINE, PARTITIONS, Writer, arrival, move, read_all

ROUND = (1, 2), (2, 3), (3, 1), (1, 2, 3), (2,)
"""The successive replicas of all partitions: each has two, three and one of them in turn."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(configs={"min.insync.replicas": "1"}) as brokers:
        yield brokers


@pytest.fixture
async def client(brokers: Cluster) -> AsyncIterator[Client]:
    async with Client(brokers.bootstrap_servers, timeout=DEADLINE) as client:
        yield client


@pytest.mark.parametrize("throttle", [None, 20_000_000])
async def test_reassignment_under_load_loses_no_record(
    client: Client, throttle: int | None
) -> None:
    topic = f"loaded-{throttle}"
    await Admin(client).create_topic(topic, partitions=PARTITIONS, replication_factor=2)
    writer = Writer(client, topic)
    for replicas in ROUND:
        turned = {
            (topic, index): (*replicas[index % len(replicas) :], *replicas[: index % len(replicas)])
            for index in range(PARTITIONS)
        }
        await move(client, turned, throttle)
    await writer.written(1)
    await writer.stop()
    assert await read_all(client, topic) == writer.acknowledged


async def test_a_move_outlives_the_controller_and_a_broker_that_restarts(
    brokers: Cluster, client: Client
) -> None:
    await Admin(client).create_topic("tough", partitions=PARTITIONS, replication_factor=2)
    start: Plan = {("tough", index): (1, 2) for index in range(PARTITIONS)}
    await move(client, start)
    writer = Writer(client, "tough")
    there: Plan = {("tough", index): (3, 1) for index in range(PARTITIONS)}
    await PartitionAdmin(client).reassign(there)
    controller = await brokers.aio.controller
    await brokers.aio.stop_broker(controller)
    await brokers.aio.start_broker(controller)
    await arrival(client, there)
    await writer.stop()
    assert await read_all(client, "tough") == writer.acknowledged
