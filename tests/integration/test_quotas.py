"""Clients over their quotas: what they are told, for how long their connections wait, and that
others do not (KIP-13, KIP-124, KIP-219, KIP-599, KIP-612)."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.broker.app import Broker
from barnabas.client.connection import Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    metadata,
    produce,
)
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from tests.support.data_path import Client, batch, running
from tests.support.quotas import change, entity
from tests.support.raw import APIS
from tests.support.waiting import eventually

WINDOWS = {"quota.window.num": "2", "controller.quota.window.num": "2"}
"""Short windows: the span of a rate is one second at first."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, WINDOWS) as broker:
        yield broker


async def opened(broker: Broker, client_id: str) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, client_id=client_id, timeout=20)


async def send(connection: Connection, request: Any, *, version: int | None = None) -> Any:
    return await connection.request(APIS[type(request)], request, version=version)


async def limit(broker: Broker, **limits: float | None) -> None:
    """Set limits of the client id `app`."""
    await altered(broker, change(entity(client_id="app"), *limits.items()))


async def altered(broker: Broker, request: AlterClientQuotasRequest) -> None:
    admin = await opened(broker, "admin")
    answer = await send(admin, request)
    assert [each.error_code for each in answer.entries] == [0]
    await admin.close()


def records(topic: str, size: int) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(index=0, records=batch(b"x" * size))
    return produce.ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
    )


async def took(connection: Connection, request: Any) -> float:
    """Return the seconds until the answer."""
    begun = time.monotonic()
    await send(connection, request)
    return time.monotonic() - begun


ASK = api_versions.ApiVersionsRequest(client_software_name="test", client_software_version="1")


async def test_producer_is_told_at_once_and_its_next_request_waits(broker: Broker) -> None:
    app = await opened(broker, "app")
    await Client(app).create("t")
    await limit(broker, producer_byte_rate=10_000)
    begun = time.monotonic()
    answer = await send(app, records("t", 15_000), version=9)
    told = answer.throttle_time_ms
    assert 400 <= told <= 700
    assert time.monotonic() - begun < told / 1000
    waited = await took(app, ASK)
    assert time.monotonic() - begun >= told / 1000 - 0.02, waited


async def test_others_do_not_wait(broker: Broker) -> None:
    app, other = await opened(broker, "app"), await opened(broker, "other")
    await Client(app).create("t")
    await limit(broker, producer_byte_rate=10_000)
    answer = await send(app, records("t", 20_000), version=9)
    assert answer.throttle_time_ms > 800
    assert await took(other, ASK) < answer.throttle_time_ms / 1000
    same = await opened(broker, "app")
    assert (await send(same, records("t", 10), version=9)).throttle_time_ms > 0


async def test_fetch_over_the_quota_is_empty_and_loses_nothing(broker: Broker) -> None:
    app = await opened(broker, "app")
    client = Client(app)
    await client.create("t")
    for _ in range(3):
        await send(app, records("t", 6_000), version=9)
    await limit(broker, consumer_byte_rate=10_000)
    wanted = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            fetch.FetchTopic(
                topic="t",
                partitions=[
                    fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=7_000)
                ],
            )
        ],
    )
    first = await send(app, wanted, version=12)
    assert first.responses[0].partitions[0].records
    second = await send(app, wanted, version=12)
    assert second.throttle_time_ms > 0
    assert second.responses == []

    async def served() -> Any:
        answer = await send(app, wanted, version=12)
        return answer.responses and answer.responses[0].partitions[0].records

    assert await eventually(served) == first.responses[0].partitions[0].records


async def test_time_of_the_loop_is_limited(broker: Broker) -> None:
    app = await opened(broker, "app")
    await limit(broker, request_percentage=0.001)
    everything = metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = await send(app, everything)
    assert 0 < answer.throttle_time_ms <= 1000
    await limit(broker, request_percentage=None)
    await send(app, everything)
    assert (await send(app, everything)).throttle_time_ms == 0


def topics(*names: str, partitions: int) -> create_topics.CreateTopicsRequest:
    return create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for name in names
        ],
        timeout_ms=5000,
        validate_only=False,
    )


async def test_mutations_beyond_the_tokens_are_refused(broker: Broker) -> None:
    app = await opened(broker, "app")
    await limit(broker, controller_mutation_rate=2)
    answer = await send(app, topics("a", "b", "c", partitions=3))
    codes = {each.name: each.error_code for each in answer.topics}
    assert codes == {"a": 0, "b": 0, "c": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert 0 < answer.throttle_time_ms <= 1000
    delete = delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name="a")], topic_names=[], timeout_ms=5000
    )

    async def deleted() -> bool:
        (result,) = (await send(app, delete)).responses
        return bool(result.error_code == 0)

    assert await eventually(deleted)


async def test_clients_without_the_error_wait_instead(broker: Broker) -> None:
    app = await opened(broker, "app")
    await limit(broker, controller_mutation_rate=2)
    answer = await send(app, topics("a", "b", partitions=3), version=5)
    assert [each.error_code for each in answer.topics] == [0, 0]
    assert 500 <= answer.throttle_time_ms <= 1100


async def test_address_with_too_many_new_connections(broker: Broker) -> None:
    await altered(broker, change(entity(ip="127.0.0.1"), ("connection_creation_rate", 2)))

    async def admitted() -> bool:
        try:
            connection = await opened(broker, "app")
            await send(connection, ASK)
        except (OSError, EOFError):
            return False
        await connection.close()
        return True

    # At once: one after the other, a slow machine may not reach the rate.
    assert (await asyncio.gather(*(admitted() for _ in range(20)))).count(False) >= 2
    assert await eventually(admitted)


@pytest.mark.parametrize(
    "key",
    ["max_connection_creation_rate", "listener_name_plaintext_max_connection_creation_rate"],
)
async def test_new_connections_beyond_the_rate_wait_and_close_no_others(
    tmp_path: Path, key: str
) -> None:
    async with running(tmp_path, {**WINDOWS, "max.connections": "50"}, **{key: 5}) as broker:
        begun = time.monotonic()
        clients = [await opened(broker, "app") for _ in range(12)]
        for each in clients:
            await send(each, ASK)
        # Five in the first second, and one window more.
        assert 0.9 < time.monotonic() - begun < 8
        assert broker.connections == 12
        for each in clients:
            await each.close()


async def test_rate_of_new_connections_of_one_listener_does_not_apply_to_others(
    tmp_path: Path,
) -> None:
    keys = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SLOW://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,SLOW:PLAINTEXT",
        "listener_name_slow_max_connection_creation_rate": 1,
    }
    async with running(tmp_path, **keys) as broker:
        for _ in range(30):
            connection = await opened(broker, "app")
            await send(connection, ASK)
            await connection.close()


async def leave_throttled(broker: Broker, count: int) -> None:
    """Close connections that the broker has just throttled for a while."""
    app = await opened(broker, "app")
    await Client(app).create("t")
    await app.close()
    await limit(broker, producer_byte_rate=1)
    for _ in range(count):
        app = await opened(broker, "app")
        assert (await send(app, records("t", 5_000), version=9)).throttle_time_ms > 4_000
        await app.close()


async def test_throttled_connection_is_idle_when_its_client_is_gone(tmp_path: Path) -> None:
    keys = {**WINDOWS, "connections.max.idle.ms": "500"}
    async with running(tmp_path, keys) as broker:
        await leave_throttled(broker, 3)
        await eventually(lambda: broker.connections == 0)


async def test_throttled_connections_make_way_for_others(tmp_path: Path) -> None:
    async with running(tmp_path, {**WINDOWS, "max.connections": "3"}) as broker:
        await leave_throttled(broker, 3)
        other = await opened(broker, "other")
        await send(other, ASK)
        await other.close()


async def test_infinite_limit_is_refused(broker: Broker) -> None:
    admin = await opened(broker, "admin")
    for limit in (math.inf, math.nan):
        asked = change(entity(user="alice"), ("request_percentage", limit))
        (entry,) = (await send(admin, asked)).entries
        assert entry.error_code == ErrorCode.INVALID_REQUEST


async def test_limit_that_is_removed_holds_no_more(broker: Broker) -> None:
    app = await opened(broker, "app")
    await Client(app).create("t")
    await limit(broker, producer_byte_rate=1)
    await limit(broker, producer_byte_rate=None)
    assert (await send(app, records("t", 5_000), version=9)).throttle_time_ms == 0


def test_librdkafka_keeps_to_its_rates(tmp_path: Path) -> None:
    """Produce and consume 60 KB at 20 KB/s each: 3 s, less the burst of one second."""

    async def run() -> None:
        async with running(tmp_path, WINDOWS) as broker:
            await limit(broker, producer_byte_rate=20_000, consumer_byte_rate=20_000)
            await asyncio.to_thread(_produce_and_consume, f"127.0.0.1:{broker.port}")

    asyncio.run(run())


def _produce_and_consume(servers: str) -> None:
    throttled: list[float] = []
    settings = {
        "bootstrap.servers": servers,
        "client.id": "app",
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    }
    producer = Producer({**settings, "batch.size": 4_000, "linger.ms": 0})
    begun = time.monotonic()
    for number in range(60):
        producer.produce("t", str(number).encode() + b"x" * 1_000)
        producer.poll(0)
    assert producer.flush(30) == 0
    produced_s = time.monotonic() - begun
    assert 1.0 <= produced_s <= 10, produced_s
    assert throttled
    consumer = Consumer({**settings, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    seen: list[int] = []
    while len(seen) < 60:
        for message in consumer.consume(100, 0.1):
            assert message.error() is None
            seen.append(int(message.value().rstrip(b"x")))
        assert time.monotonic() - begun < 60
    assert seen == list(range(60))
    assert time.monotonic() - begun >= produced_s + 1.0
    consumer.close()
