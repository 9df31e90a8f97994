"""Consumer groups (KIP-848) with librdkafka: members come, are killed and leave."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker import Broker
from tests.support.waiting import until

TOPIC = "records"
PARTITIONS = 6


@pytest.fixture
def broker() -> Iterator[Broker]:
    quick = {
        "group.consumer.assignment.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.heartbeat.interval.ms": "200",
    }
    with Broker(quick) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            made.result(30)
        yield running


class Member:
    """A consumer in a thread, with the partitions and the records that it has."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "group",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                **options,
            }
        )
        self.records: list[bytes] = []
        self.partitions: set[int] = set()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self, *topics: str) -> "Member":
        self.consumer.subscribe(list(topics or (TOPIC,)))
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._ends.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and not message.error():
                self.records.append(message.value())
            self.partitions = {each.partition for each in self.consumer.assignment()}

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()
        self.consumer.close()


@contextmanager
def members(broker: Broker, count: int) -> Iterator[list[Member]]:
    found = [Member(broker).start() for _ in range(count)]
    try:
        yield found
    finally:
        for each in found:
            each.stop()


def produce(broker: Broker, count: int) -> set[bytes]:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    values = [b"%d-%d" % (time.time_ns(), number) for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
    producer.flush(30)
    return set(values)


def shares(found: list[Member]) -> list[int]:
    return sorted(len(each.partitions) for each in found)


def all_partitions(found: list[Member]) -> set[int]:
    return set().union(*(each.partitions for each in found))


@pytest.mark.timeout(120)
def test_members_share_the_partitions_and_read_every_record(broker: Broker) -> None:
    written = produce(broker, 60)
    with members(broker, 3) as found:
        until(lambda: shares(found) == [2, 2, 2], within_s=60)
        assert all_partitions(found) == set(range(PARTITIONS))
        written |= produce(broker, 60)
        until(lambda: {v for each in found for v in each.records} == written, within_s=30)
        found.pop().stop()
        until(lambda: shares(found) == [3, 3], within_s=60)
        assert all_partitions(found) == set(range(PARTITIONS))


@pytest.mark.timeout(120)
def test_expression_finds_a_topic_that_is_created_later(broker: Broker) -> None:
    member = Member(broker).start("^rec.*")
    try:
        until(lambda: len(member.partitions) == PARTITIONS, within_s=60)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic("recorded", PARTITIONS + 1, 1)]).values():
            made.result(30)
        # Expressions are resolved again at the earliest after 10 s.
        until(lambda: len(member.partitions) == PARTITIONS + 1, within_s=60)
    finally:
        member.stop()


CONSUMER: dict[str, Any] = {}
CLASSIC: dict[str, Any] = {"group.protocol": "classic", "heartbeat.interval.ms": 100}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_change_the_protocol_one_by_one_there_and_back(
    broker: Broker, strategy: str
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    written = produce(broker, 60)
    # The user data of librdkafka's sticky assignor would be lost: such a group is not upgraded.
    back = CLASSIC | {"partition.assignment.strategy": strategy}
    with members(broker, 0) as found:
        everyone = [Member(broker, **CLASSIC).start() for _ in range(2)]
        found += everyone
        until(lambda: shares(found) == [3, 3])
        assert _type(admin) == "CLASSIC"
        for options, then in ((CONSUMER, "CONSUMER"), (back, "CLASSIC")):
            for count in range(2):
                member = Member(broker, **options).start()
                found.append(member)
                everyone.append(member)
                until(lambda: shares(found) == [2, 2, 2])
                assert _type(admin) == "CONSUMER"
                found.pop(0).stop()
                until(lambda: shares(found) == [3, 3])
                assert all_partitions(found) == set(range(PARTITIONS))
                assert _type(admin) == ("CONSUMER" if count == 0 else then)
                written |= produce(broker, 60)
                until(lambda: _read(everyone) == written)  # noqa: B023


def _read(found: list[Member]) -> set[bytes]:
    return {value for each in found for value in each.records}


def _type(admin: AdminClient) -> str:
    (group,) = admin.list_consumer_groups().result(30).valid
    return str(group.type.name)
