"""An open cluster becomes a secure one by the steps of docs/SECURITY.md, with clients running."""

import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from barnabas.client.settings import ClientSettings
from barnabas.config.properties import parse_properties
from barnabas.security.authority import Authority
from tests.support import zookeeper
from tests.support.brokers.cluster import BROKER_IDS, ProcessCluster
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(not zookeeper.installed(), reason="needs a ZooKeeper server"),
]
WITHIN_S: Final = 60.0
PAGE: Final = (Path(__file__).parents[2] / "docs" / "SECURITY.md").read_text()
SECTION: Final = PAGE.split("## From an open cluster to a secure one\n")[1].split("\n## ")[0]
BLOCKS: Final = re.findall(r"```properties\n(.*?)```", SECTION, re.DOTALL)
ROLLS: Final = [parse_properties(block) for block in BLOCKS]
"""The properties of each roll, as the page has them."""
FAST: Final = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "100",
    "auto.create.topics.enable": "false",
}


class Migrating(ProcessCluster):
    """Three brokers that take over the properties of one roll after the other."""

    def __init__(self, directory: Path, server: ZooKeeperServer) -> None:
        super().__init__(directory, server, FAST)
        self._ports_of: dict[tuple[int, str], int] = {}
        self._rolled: dict[str, str] = {}

    def roll(self, keys: Mapping[str, str]) -> None:
        """Restart one broker after the other with further properties."""
        self._rolled |= keys
        for broker, process in self.brokers.items():
            assert process.terminate() == 0, process.errors()[-2000:]
            process.launch(**self._at_home(broker))
            process.wait_until_serving()
            self.wait_until_full(WITHIN_S)

    def _at_home(self, broker: int) -> dict[str, str]:
        """Return the properties with files and ports of this machine."""
        found = {
            key: text.replace("/etc/barnabas", str(self.directory))
            for key, text in self._rolled.items()
        }
        found["listeners"] = ",".join(
            f"{each.partition(':')[0]}://127.0.0.1:{self.port(broker, each.partition(':')[0])}"
            for each in found["listeners"].split(",")
        )
        return found

    def port(self, broker: int, listener: str) -> int:
        if listener in ("CLIENTS", "BROKERS"):
            return self.ports[broker][listener == "BROKERS"]
        return self._ports_of.setdefault((broker, listener), free_port())

    def servers(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{self.port(broker, listener)}" for broker in BROKER_IDS)


class Writer:
    """A producer that runs until it is told to stop, and what was acknowledged to it."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self._next = 0
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.errors: list[Any] = []

    def start(self, settings: Mapping[str, Any]) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(dict(settings),))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def wait_for_more(self) -> None:
        before, deadline = len(self.acknowledged), time.monotonic() + WITHIN_S
        while len(self.acknowledged) < before + 20:
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.01)

    def _run(self, settings: dict[str, Any]) -> None:
        producer = confluent_kafka.Producer(
            settings | {"enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        while not self._stop.is_set():
            number, self._next = self._next, self._next + 1
            producer.produce("orders", str(number), on_delivery=self._told)
            producer.poll(0.01)
        assert producer.flush(WITHIN_S) == 0

    def _told(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))
        else:
            self.errors.append(error)


def read_all(settings: Mapping[str, Any], count: int) -> list[int]:
    """Return the first records, in the order of the log, as a member of a group."""
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": "billing", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe(["orders"])
    found: list[int] = []
    deadline = time.monotonic() + WITHIN_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        messages = consumer.consume(500, 0.5)
        assert not [each.error() for each in messages if each.error()]
        found += [int(each.value() or b"") for each in messages]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Migrating]:
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    authority = Authority.new("ca")
    home = tmp_path / "cluster"
    home.mkdir()
    (home / "ca.pem").write_bytes(authority.pem)
    (home / "broker.pem").write_bytes(authority.issue("barnabas-broker", ("127.0.0.1",)))
    try:
        with Migrating(home, server) as cluster:
            yield cluster
    finally:
        server.kill()


def test_an_open_cluster_becomes_secure_with_clients_running(cluster: Migrating) -> None:
    assert len(ROLLS) == 3
    open_settings = {"bootstrap.servers": cluster.bootstrap_servers}
    admin = AdminClient(open_settings)
    _all_done(admin.create_topics([NewTopic("orders", 1, 3)]))
    writer = Writer()
    writer.start(open_settings)
    try:
        for roll in ROLLS[:2]:
            cluster.roll(roll)
            writer.wait_for_more()
        secure = _add_users_and_rules(admin, cluster)
        _has_no_rule(secure["eve"].librdkafka())
        # One client goes over while another one still is where it was.
        seen = read_all(open_settings, 10)
        writer.stop()
        writer.start(secure["alice"].librdkafka())
        writer.wait_for_more()
        cluster.roll(ROLLS[2])
        writer.wait_for_more()
    finally:
        writer.stop()
    assert writer.errors == []
    # The same group goes on under another name, where it was.
    seen += read_all(secure["bob"].librdkafka(), len(writer.acknowledged) - len(seen))
    assert seen == writer.acknowledged == list(range(len(seen)))
    _is_closed(cluster)


def _add_users_and_rules(admin: AdminClient, cluster: Migrating) -> dict[str, ClientSettings]:
    users = {
        name: ClientSettings(
            cluster.servers("SECURE"),
            str(cluster.directory / "ca.pem"),
            user=name,
            password=f"secret of {name}",
        )
        for name in ("admin", "alice", "bob", "eve")
    }
    for name, settings in users.items():
        mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, mechanism, settings.password.encode())
        _all_done(admin.alter_user_scram_credentials([change]))
    rules = [
        ("alice", ResourceType.TOPIC, "orders", AclOperation.WRITE),
        ("bob", ResourceType.TOPIC, "orders", AclOperation.READ),
        ("bob", ResourceType.GROUP, "billing", AclOperation.READ),
    ]
    for name, kind, resource, operation in rules:
        _all_done(
            admin.create_acls(
                [
                    AclBinding(
                        *(kind, resource, ResourcePatternType.LITERAL, f"User:{name}", "*"),
                        *(operation, AclPermissionType.ALLOW),
                    )
                ]
            )
        )
    return users


def _all_done(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(WITHIN_S)


def _has_no_rule(settings: dict[str, Any]) -> None:
    told: list[Any] = []
    producer = confluent_kafka.Producer(settings | {"log_level": 0})
    producer.produce("orders", b"-1", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(WITHIN_S) == 0
    assert told[0].name() == "TOPIC_AUTHORIZATION_FAILED"


def _is_closed(cluster: Migrating) -> None:
    """Require that strangers are served nowhere."""
    for listener in ("CLIENTS", "BROKERS", "SECURE", "PEERS"):
        stranger = AdminClient({"bootstrap.servers": cluster.servers(listener), "log_level": 0})
        with pytest.raises(confluent_kafka.KafkaException):
            stranger.list_topics(timeout=1)
