"""The data of the previous release under this one, and clusters of both (docs/upgrade.md)."""

import asyncio
import json
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kazoo.exceptions import NoNodeError

from barnabas.client.connection import Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics
from tests.support.brokers.cluster import BROKER_IDS, ProcessCluster
from tests.support.brokers.process import ROOT, BrokerProcess
from tests.support.checker import Checker
from tests.support.data_path import creation
from tests.support.waiting import IN_TIME_S, until
from tests.support.zookeeper import ZooKeeperServer

PREVIOUS: Final = "c0e65115596cca495c1485435ee9083c8b855b31"
"""The commit of 0.2.0: a clone without tags has the commit."""
COUNT: Final = 300


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the previous release."""
    packed = subprocess.run(
        ["git", "archive", PREVIOUS], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip(f"this clone has no commit {PREVIOUS}: {packed.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("previous")
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    return folder


class Written:
    """Clients of a broker, and the values of the records that they committed and read."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers})
        topics = [
            NewTopic("orders", 3, 1, config={"retention.ms": "123456789"}),
            NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
        ]
        for created in self.admin.create_topics(topics).values():
            created.result(30)
        self.committed: list[bytes | None] = []
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            self.produce(f"plain-{codec}", **{"compression.type": codec})
        self.transaction("done", commit=True)
        self.transaction("dropped", commit=False)
        self.open = self.begun("open")
        self.lost = self.begun("lost")
        self.read = self.consume(COUNT)

    def produce(self, prefix: str, **settings: str) -> None:
        """Write COUNT records that consumers are to read."""
        values = [f"{prefix}-{i}".encode() for i in range(COUNT)]
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.servers, "enable.idempotence": True, **settings}
        )
        for each in values:
            producer.produce("orders", each, key=each)
            producer.produce("compacted", each, key=b"%d" % (len(each) % 7))
        assert producer.flush(30) == 0
        self.committed += values

    def begun(self, name: str) -> confluent_kafka.Producer:
        """Return a producer with an open transaction of COUNT records."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.servers, "transactional.id": name}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for i in range(COUNT):
            producer.produce("orders", f"{name}-{i}", key=str(i))
        assert producer.flush(30) == 0
        return producer

    def transaction(self, name: str, *, commit: bool) -> None:
        producer = self.begun(name)
        if commit:
            producer.commit_transaction(30)
            self.committed += [f"{name}-{i}".encode() for i in range(COUNT)]
        else:
            producer.abort_transaction(30)

    def consume(self, count: int) -> list[bytes | None]:
        """Read the next records of the group, commit, and return their values."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe(["orders"])
        values: list[bytes | None] = []
        while len(values) < count:
            found = consumer.consume(count - len(values), 30)
            assert found, f"{len(values)} of {count} records"
            values += [each.value() for each in found]
        consumer.commit(asynchronous=False)
        consumer.close()
        return values

    def ends(self) -> list[tuple[int, int]]:
        """Return start and end of each partition."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": "-"})
        partitions = [
            *(TopicPartition("orders", i) for i in range(3)),
            TopicPartition("compacted", 0),
        ]
        found = [consumer.get_watermark_offsets(each, 30) for each in partitions]
        consumer.close()
        return found

    def retention(self) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
        [found] = self.admin.describe_configs([resource]).values()
        return str(found.result(30)["retention.ms"].value)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_data_of_the_previous_release_lives_on(
    stop: signal.Signals, previous: Path, tmp_path: Path
) -> None:
    """Producers with an open transaction do not notice; offsets, configuration and ids stay."""
    older = BrokerProcess(tmp_path / "data", root=previous)
    with older:
        written = Written(older.bootstrap_servers)
        before = written.ends()
        older.signal(stop)
        older.wait_until_ended()
    with BrokerProcess(tmp_path / "data", listeners=f"PLAINTEXT://{older.bootstrap_servers}"):
        assert written.ends() == before
        assert written.retention() == "123456789"
        written.open.commit_transaction(30)
        written.committed += [f"open-{i}".encode() for i in range(COUNT)]
        written.begun("lost").abort_transaction(30)
        with pytest.raises(confluent_kafka.KafkaException, match=r"(?i)fenced"):
            written.lost.commit_transaction(30)
        written.produce("newer")
        left = len(written.committed) - len(written.read)
        assert sorted(written.read + written.consume(left)) == sorted(written.committed)


class Rolled(ProcessCluster):
    """Three brokers, each of the previous release until it is upgraded."""

    def upgrade(self, broker: int) -> None:
        """Stop a broker, start this release in its place, and wait until all are in sync."""
        self.brokers[broker].terminate()
        self.root = ROOT
        self.brokers[broker] = self.make_broker(broker)
        self.brokers[broker].start()
        self.wait_until_full()

    def elect(self, broker: int) -> None:
        """Make a broker the controller: repeat the election until it wins."""
        deadline = time.monotonic() + IN_TIME_S
        while self.wait_for_controller() != broker:
            assert time.monotonic() < deadline, f"broker {broker} wins no election"
            with self.zookeeper.looking() as client, suppress(NoNodeError):
                client.delete("/controller")


@pytest.mark.parametrize(("controller", "workload"), [("first", "pipeline"), ("last", "queue")])
def test_cluster_of_two_releases_delivers_exactly_once(
    controller: str, workload: str, previous: Path, tmp_path: Path
) -> None:
    """The brokers are upgraded one after the other while transactions flow.

    The controller is of the newer release from the first step on, or of the older to the last.
    """
    keys = {
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "100",
    }
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        Rolled(tmp_path / "cluster", zookeeper, keys, root=previous) as cluster,
    ):
        cluster.wait_until_full()
        words = ["--workload", workload, "--replication-factor", "3", "--churn"]
        with Checker(cluster, tmp_path / "load", *words) as load:
            begun = cluster.wait_for_controller()
            others = [each for each in BROKER_IDS if each != begun]
            order = [begun, *others] if controller == "first" else [*others, begun]
            for step, broker in enumerate(order, 1):
                cluster.upgrade(broker)
                if controller == "first":
                    cluster.elect(begun)
                newer = cluster.wait_for_controller() in order[:step]
                assert newer == (controller == "first") or step == len(order)
                done = load.ended()
                cluster.until(lambda done=done: load.ended() > done + 20, 60, cluster.errors)
            verdict = load.judge()
    assert verdict["verdict"] == "clean", json.dumps(verdict, indent=2)
    assert verdict["figures"]["transactions"] > 20 * len(order)


def test_request_is_not_forwarded_to_a_controller_of_the_previous_release(
    previous: Path, tmp_path: Path
) -> None:
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        Rolled(tmp_path / "cluster", zookeeper, {}, root=previous) as cluster,
    ):
        cluster.wait_until_full()
        controller = cluster.wait_for_controller()
        newer = next(each for each in BROKER_IDS if each != controller)
        cluster.upgrade(newer)
        assert cluster.wait_for_controller() == controller
        assert asyncio.run(created(cluster.address_of(newer), "early")) == ErrorCode.NOT_CONTROLLER
        # Clients that ask the controller do not notice.
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("direct", 3, 1)])["direct"].result(30)
        del admin
        cluster.upgrade(controller)
        cluster.elect(controller)
        # The broker learns of the new controller a moment later.
        until(lambda: asyncio.run(created(cluster.address_of(newer), "late")) == ErrorCode.NONE)


async def created(address: str, topic: str) -> int:
    """Ask one broker for a topic of three partitions; return the error code."""
    host, _, port = address.rpartition(":")
    connection = await Connection.open(host, int(port))
    answer = await connection.request(create_topics.API, creation(topic, 3, {}))
    await connection.close()
    code: int = answer.topics[0].error_code
    return code
