"""Java's consumers change the protocol of their group one after the other, there and back."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import Broker
from tests.referee.releases import referee
from tests.support.client_program import Program
from tests.support.kafka.jars import require
from tests.support.kafka.node import java
from tests.support.waiting import until

CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
TOPIC, GROUP, PARTITIONS = "records", "members", 6
QUICK = {
    "group.consumer.assignment.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}

pytestmark = [
    pytest.mark.xdist_group("referee-tools"),
    pytest.mark.skipif(referee() < (4, 4), reason="older clients have another consumer protocol"),
]


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker(QUICK) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        yield broker.bootstrap_servers


def events(member: Program, name: str) -> list[dict[str, Any]]:
    told = [json.loads(line) for line in member.told() if line.startswith("{")]
    return [each for each in told if each["name"] == name]


def read(members: list[Program]) -> list[str]:
    return [each["value"] for member in members for each in events(member, "record_data")]


@pytest.mark.timeout(240)
def test_members_of_both_protocols_read_every_record_once(servers: str, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    producer = Producer({"bootstrap.servers": servers})
    members: list[Program] = []
    total = 0

    def start(protocol: str) -> Program:
        command = [*java(require()), CONSUMER, "--bootstrap-server", servers, "--topic", TOPIC]
        command += ["--group-id", GROUP, "--group-protocol", protocol]
        command += ["--reset-policy", "earliest", "--verbose"]
        members.append(ends.enter_context(Program(command, tmp_path / str(len(members)))))
        return members[-1]

    def check(protocol: str) -> None:
        nonlocal total
        (group,) = admin.list_consumer_groups().result(30).valid
        assert group.type.name == protocol
        for number in range(total, total + 60):
            producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
        producer.flush(30)
        total += 60
        until(lambda: len(set(read(members))) == total)

    def joined(member: Program) -> bool:
        return any(each["partitions"] for each in events(member, "partitions_assigned"))

    with ExitStack() as ends:
        one = start("classic")
        until(lambda: joined(one))
        check("CLASSIC")
        two = start("consumer")
        until(lambda: joined(two))
        check("CONSUMER")
        one.stop()
        check("CONSUMER")
        three = start("classic")
        until(lambda: joined(three))
        check("CONSUMER")
        two.stop()
        until(lambda: admin.list_consumer_groups().result(30).valid[0].type.name == "CLASSIC")
        check("CLASSIC")
        time.sleep(1)
        # No member is killed: what it gives up it has committed.
        assert len(read(members)) == total
