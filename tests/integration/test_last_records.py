"""The last records of partitions: markers, aborted records and gaps do not count."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.last_records import find_last
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.command_line import Cli
from tests.support.lag_histories import BROKER, DEADLINE, Histories

COUNTS = (0, 1, 2, 3, 5, 8, 13, 1000)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BROKER) as broker:
        yield broker


async def expected(
    cluster: Cluster, place: TopicPartition, settings: FetchSettings, count: int
) -> int:
    """Return what `find_last` must find, from all records that a consumer is given."""
    first = (await find_offsets(cluster, {place: EARLIEST}))[place].offset
    last = await find_offsets(cluster, {place: LATEST}, read_committed=settings.read_committed)
    consumer = Consumer(cluster, settings)
    consumer.assign({place: first})
    given: list[int] = []
    while consumer.positions[place] < last[place].offset:
        given += [each.offset for each in await consumer.poll()]
    if not count:
        return last[place].offset
    return given[-count] if len(given) >= count else first


async def compare(
    cluster: Cluster, places: list[TopicPartition], count: int, settings: FetchSettings
) -> None:
    before, after = None, await find_last(cluster, places, count, settings)
    # Compaction removes records meanwhile.
    while before != after:
        before = after
        wanted = {each: await expected(cluster, each, settings, count) for each in places}
        after = await find_last(cluster, places, count, settings)
    assert after == wanted, count


@pytest.mark.parametrize("read_committed", [True, False])
async def test_last_records_are_found_in_random_histories(
    broker: Broker, read_committed: bool
) -> None:
    settings = FetchSettings(max_wait=0.1, read_committed=read_committed)
    async with (
        Cluster(broker.bootstrap_servers) as cluster,
        Histories(broker.bootstrap_servers, cluster, Random(7), 10) as histories,
    ):
        await histories.write(2)
        for count in COUNTS:
            async with asyncio.timeout(DEADLINE):
                await compare(cluster, histories.places, count, settings)


async def test_last_records_are_found_before_very_many_markers(
    cluster: Cluster, topic: str
) -> None:
    async with TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        for value in (b"a", b"b", b"c"):
            async with producer.transaction():
                await producer.send(topic, value, partition=0)
        for _ in range(20):
            await producer.begin_transaction()
            await (await producer.send(topic, b"never", partition=0))
            await producer.abort_transaction()
    consumer = Consumer(cluster, FetchSettings(max_wait=0.1))
    await consumer.seek_back([TopicPartition(topic, 0)], 2)
    assert [each.value for each in await consumer.poll()] == [b"b", b"c"]


def test_consume_prints_the_last_records_where_markers_stand_last(cli: Cli) -> None:
    cli("topics", "create", "tails")
    asyncio.run(write_transactions(cli.servers, "tails"))
    assert cli("consume", "tails", "-o", "-1", "-e") == b"c\n"
    assert cli("consume", "tails", "-o", "beginning:-1") == b"a\nb\n"
    assert cli("consume", "tails", "-o", "-2", "-e", "--read-uncommitted") == b"c\nnever\n"


async def write_transactions(servers: str, topic: str) -> None:
    async with Cluster(servers) as cluster, TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        for value in (b"a", b"b", b"c"):
            async with producer.transaction():
                await producer.send(topic, value)
        await producer.begin_transaction()
        await (await producer.send(topic, b"never"))
        await producer.abort_transaction()
