"""Groups of real clients: members come, go, crash, come back as themselves, and share fairly."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as NativeRange
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange

from barnabas.testing import Broker

DEADLINE = 20.0
PARTITIONS = 4
MANY = 40
"""Messages in every topic, ten to a partition."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"group.min.session.timeout.ms": "500"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    """A topic of its own, with messages in every partition."""
    return fill(servers, request.node.name.replace("[", ".").replace("]", ""))


def fill(servers: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(DEADLINE)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(MANY):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(DEADLINE) == 0
    return name


class Member:
    """A consumer that is polled by hand, and notes what it is given and what is taken from it."""

    def __init__(self, servers: str, group: str, topic: str, **options: Any) -> None:
        self.revocations = 0
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
        self.consumer.subscribe([topic], on_revoke=self._revoked)

    def _revoked(self, _consumer: object, partitions: list[object]) -> None:
        self.revocations += len(partitions)

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.read.append(int(message.value()))

    def close(self) -> None:
        with suppress(RuntimeError):
            self.consumer.close()


@pytest.fixture
def join(servers: str, topic: str) -> Iterator[Callable[..., Member]]:
    """Starts members that are gone after the test."""
    members: list[Member] = []

    def start(group: str, **options: Any) -> Member:
        members.append(Member(servers, group, topic, **options))
        return members[-1]

    yield start
    for each in members:
        each.close()


def until(true: Callable[[], bool], *members: Member) -> None:
    """Poll the members until something holds."""
    deadline = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < deadline, [each.owned for each in members]
        for each in members:
            each.poll()


def shared(*members: Member) -> bool:
    """Whether all partitions are owned, each once, and nobody has none."""
    owned = [partition for each in members for partition in each.owned]
    return sorted(owned) == list(range(PARTITIONS)) and all(each.owned for each in members)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go_and_nothing_is_read_twice(
    join: Callable[..., Member], strategy: str
) -> None:
    group = f"come-and-go-{strategy}"
    options = {"partition.assignment.strategy": strategy}
    first = join(group, **options)
    until(lambda: len(first.read) == MANY, first)
    first.consumer.commit(asynchronous=False)
    second = join(group, **options)
    until(lambda: shared(first, second), first, second)
    assert len(first.owned) == 2
    second.close()
    until(lambda: len(first.owned) == PARTITIONS, first)
    assert sorted(first.read) == list(range(MANY))
    assert second.read == []


def test_cooperative_members_keep_what_they_need_not_give_up(
    join: Callable[..., Member],
) -> None:
    options = {"partition.assignment.strategy": "cooperative-sticky"}
    first = join("cooperative", **options)
    until(lambda: len(first.owned) == PARTITIONS, first)
    second = join("cooperative", **options)
    until(lambda: shared(first, second), first, second)
    assert first.revocations == 2


def test_a_static_member_that_comes_back_disturbs_nobody(join: Callable[..., Member]) -> None:
    one = join("static", **{"group.instance.id": "one"})
    two = join("static", **{"group.instance.id": "two"})
    until(lambda: shared(one, two), one, two)
    mine, before = two.owned, one.revocations
    two.close()
    again = join("static", **{"group.instance.id": "two"})
    until(lambda: again.owned == mine, one, again)
    assert one.revocations == before


CRASHING = """
import sys, confluent_kafka
servers, group, topic = sys.argv[1:]
consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group,
    "session.timeout.ms": 1000, "heartbeat.interval.ms": 100})
consumer.subscribe([topic])
told = False
while True:
    consumer.poll(0.05)
    if consumer.assignment() and not told:
        print("mine", flush=True)
        told = True
"""


def test_a_crashed_members_partitions_go_to_the_others(
    servers: str, topic: str, join: Callable[..., Member]
) -> None:
    crashing = subprocess.Popen(
        [sys.executable, "-c", CRASHING, servers, "crash", topic], stdout=subprocess.PIPE
    )
    try:
        assert crashing.stdout is not None
        assert crashing.stdout.readline() == b"mine\n"
        survivor = join("crash")
        until(lambda: len(survivor.owned) == 2, survivor)
        crashing.send_signal(signal.SIGKILL)
        until(lambda: len(survivor.owned) == PARTITIONS, survivor)
    finally:
        crashing.kill()
        crashing.communicate()


async def test_clients_of_three_kinds_share_a_group(
    servers: str, topic: str, join: Callable[..., Member]
) -> None:
    rdkafka = join("mixed", **{"partition.assignment.strategy": "range"})
    until(lambda: len(rdkafka.owned) == PARTITIONS, rdkafka)
    common = {"bootstrap_servers": servers, "group_id": "mixed"}
    python = kafka.KafkaConsumer(topic, partition_assignment_strategy=[PythonRange], **common)
    native = aiokafka.AIOKafkaConsumer(topic, partition_assignment_strategy=[NativeRange], **common)
    # It starts as a member of the group, for which the others have to be polled.
    starting = asyncio.create_task(native.start())

    def owned() -> list[set[int]]:
        others = [{each.partition for each in one.assignment()} for one in (native, python)]
        return [rdkafka.owned, *others]

    try:
        deadline = time.monotonic() + DEADLINE
        while sorted(map(len, owned())) != [1, 1, 2]:
            assert time.monotonic() < deadline, owned()
            rdkafka.poll()
            await asyncio.to_thread(python.poll, timeout_ms=50)
            await asyncio.sleep(0.01)
        assert set.union(*owned()) == set(range(PARTITIONS))
    finally:
        python.close(autocommit=False)
        await starting
        await native.stop()


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
        # confluent-kafka sends the NUL that ends a string in C along with it.
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


def test_groups_outlive_the_broker(tmp_path: Path) -> None:
    def offset(servers: str, name: str) -> int:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "stays"})
        try:
            place = confluent_kafka.TopicPartition(name, 0)
            return int(consumer.committed([place], timeout=DEADLINE)[0].offset)
        finally:
            consumer.close()

    with Broker(data_dir=tmp_path) as broker:
        name = fill(broker.bootstrap_servers, "lasting")
        member = Member(broker.bootstrap_servers, "stays", name)
        until(lambda: len(member.read) == MANY, member)
        member.consumer.commit(asynchronous=False)
        member.close()
        assert offset(broker.bootstrap_servers, name) == MANY // PARTITIONS
    with Broker(data_dir=tmp_path) as broker:
        assert offset(broker.bootstrap_servers, name) == MANY // PARTITIONS
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        listed = admin.list_consumer_groups(request_timeout=DEADLINE).result()
        assert [each.group_id for each in listed.valid] == ["stays"]


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
