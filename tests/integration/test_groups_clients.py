"""Offsets committed by one client library and read by others, and groups seen by
confluent-kafka."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import Broker
from tests.support.topic_names import topic_name

DEADLINE = 20.0
PARTITIONS = 4
MANY = 40
"""Messages in every topic, ten in each partition."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"group.min.session.timeout.ms": "500"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    """Create a topic for this test, with messages in every partition."""
    return fill(servers, topic_name(request))


def fill(servers: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(DEADLINE)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(MANY):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(DEADLINE) == 0
    return name


class Member:
    """A consumer that the test polls, which keeps the messages it reads."""

    def __init__(self, servers: str, group: str, topic: str, **options: Any) -> None:
        self.read: list[int] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 100,
                "topic.metadata.refresh.interval.ms": 500,
                **{key.replace("_", "."): value for key, value in options.items()},
            }
        )
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.read.append(int(message.value()))

    def close(self) -> None:
        with suppress(RuntimeError):
            self.consumer.close()


@pytest.fixture
def join(servers: str, topic: str) -> Iterator[Callable[..., Member]]:
    """Return a function that starts members; they leave at the end of the test."""
    members: list[Member] = []

    def start(group: str, **options: Any) -> Member:
        members.append(Member(servers, group, topic, **options))
        return members[-1]

    yield start
    for each in members:
        each.close()


def until(true: Callable[[], bool], *members: Member) -> None:
    """Poll the members until the condition holds."""
    deadline = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < deadline, [each.read for each in members]
        for each in members:
            each.poll()


async def test_offsets_of_one_client_are_read_by_the_others(
    servers: str, topic: str, join: Callable[..., Member]
) -> None:
    writer = join("handed-on")
    until(lambda: len(writer.read) == MANY, writer)
    writer.consumer.commit(
        offsets=[confluent_kafka.TopicPartition(topic, 1, 7, metadata="note")], asynchronous=False
    )
    writer.close()
    python = kafka.KafkaConsumer(bootstrap_servers=servers, group_id="handed-on")
    try:
        place = kafka.TopicPartition(topic, 1)
        found = await asyncio.to_thread(python.committed, place, metadata=True)
        # confluent-kafka sends the NUL that terminates a string in C as part of it.
        assert (found.offset, found.metadata.rstrip("\0")) == (7, "note")
    finally:
        python.close(autocommit=False)
    native = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, group_id="handed-on")
    await native.start()
    try:
        assert await native.committed(aiokafka.TopicPartition(topic, 1)) == 7
        assert await native.committed(aiokafka.TopicPartition(topic, 2)) is None
    finally:
        await native.stop()


def test_administrators_see_and_delete_groups(servers: str, join: Callable[..., Member]) -> None:
    member = join("seen", **{"client.id": "watcher"})
    until(lambda: len(member.read) == MANY, member)
    member.consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_consumer_groups(["seen"])["seen"].result(DEADLINE)
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    assert [each.client_id for each in described.members] == ["watcher"]
    places = described.members[0].assignment.topic_partitions
    assert sorted(each.partition for each in places) == list(range(PARTITIONS))
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["seen"])["seen"].result(DEADLINE)
    member.close()
    admin.delete_consumer_groups(["seen"])["seen"].result(DEADLINE)
    python = kafka.KafkaAdminClient(bootstrap_servers=servers)
    try:
        assert "seen" not in {each["group_id"] for each in python.list_groups()}
    finally:
        python.close()
