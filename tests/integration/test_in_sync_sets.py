"""The ISR of real brokers: a killed follower leaves at once; consumers use the nearest replica."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.broker.app import Broker
from barnabas.config.replication_keys import RACK_AWARE_SELECTOR
from barnabas.testing import Cluster
from tests.integration.assigned_topic import create
from tests.support.in_cluster import member, shared_metadata

SESSION_MS = 20_000
PROMPTLY = 10.0
"""Seconds: well before the session of a killed broker expires."""


def send(servers: str, topic: str, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(20) == 0


def test_killed_follower_leaves_the_isr_before_its_session_expires() -> None:
    """Otherwise every acks=all would wait for the controller to notice, or for the lag time."""
    configs = {
        "metadata.session.timeout.ms": str(SESSION_MS),
        "controlled.shutdown.enable": "false",
    }
    with Cluster(configs, processes=True) as cluster:
        controller = cluster.controller
        victim, other = (each for each in cluster.running if each != controller)
        create(cluster.bootstrap_servers, "t", controller, victim, other)
        send(cluster.bootstrap_servers, "t")
        cluster.cut_store(victim)
        began = time.monotonic()
        cluster.kill(victim)
        send(cluster.bootstrap_servers, "t")
        assert time.monotonic() - began < PROMPTLY
        assert sorted(cluster.in_sync_of("t")) == sorted([controller, other])


@pytest.fixture
async def racks(tmp_path: Path) -> AsyncIterator[list[Broker]]:
    """Two brokers, the first in rack a, the second in rack b."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        yield [
            await stack.enter_async_context(
                member(
                    store,
                    tmp_path,
                    broker_id,
                    broker_rack=rack,
                    replica_selector_class=RACK_AWARE_SELECTOR,
                    offsets_topic_replication_factor=1,
                )
            )
            for broker_id, rack in enumerate("ab")
        ]


@pytest.mark.parametrize("rack", ["a", "b"])
async def test_a_consumer_reads_from_the_replica_in_its_rack(
    racks: list[Broker], rack: str
) -> None:
    servers = racks[0].bootstrap_servers

    def read() -> list[bytes | None]:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "client.rack": rack,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        try:
            found: list[bytes | None] = []
            deadline = time.monotonic() + 20
            while len(found) < 100 and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found.append(message.value())
            return found
        finally:
            consumer.close()

    await asyncio.to_thread(create, servers, "t", 0, 1)
    await asyncio.to_thread(send, servers, "t", 100)
    values = await asyncio.to_thread(read)
    assert values == [str(number).encode() for number in range(100)]
    sent = [broker._metrics.topics.bytes_out.cell("t").value for broker in racks]
    near = "ab".index(rack)
    assert sent[near] > 0
    assert sent[1 - near] == 0
