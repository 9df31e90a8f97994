"""Apache Kafka's kafka-acls.sh lists, adds and removes the rules of Barnabas, and they hold.

The tools of Kafka 3.9 and our brokers write rules and users to the same ZooKeeper.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing.broker import Broker
from tests.referee.rights.site import log_in
from tests.support.kafka import jvm
from tests.support.kafka import tools as kafka
from tests.support.kafka.jars import ZOOKEEPER_POM
from tests.support.kafka.tools import Tools
from tests.support.ports import free_port
from tests.support.raw import Connection
from tests.support.waiting import until
from tests.support.zookeeper import chroot_of, shared_server

pytestmark = pytest.mark.xdist_group("referee-tools")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ALICE = ("--allow-principal", "User:alice")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
KEYS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_alice="alice";',
}
Rule = tuple[str, ...]
"""Type, name and pattern of a resource; principal, host, operation and permission."""


class Site(NamedTuple):
    """A broker with an authorizer; the tool reaches it as a super user."""

    bootstrap: str
    tools: Tools
    port: int
    """The port where alice logs in."""

    def run(self, tool: str, *arguments: str) -> str:
        return self.tools.at(self.bootstrap)(tool, *arguments)

    def rules(self, *options: str) -> set[Rule]:
        return printed(self.run(kafka.ACLS, "--list", *options))

    def topic_for_alice(self, name: str) -> int:
        """Return the error that alice gets for a topic that does not exist."""
        topics = [MetadataRequestTopic(name=name)]
        with log_in("127.0.0.1", self.port, "alice") as connection:
            connection.post(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
            return int(connection.take().topics[0].error_code)


@pytest.fixture
def site(tools: Tools) -> Iterator[Site]:
    port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}"
    with Broker(KEYS | {"listeners": listeners}) as broker:
        yield Site(broker.bootstrap_servers, tools, port)


def printed(said: str) -> set[Rule]:
    found, resource = set(), Rule()
    for line in said.splitlines():
        named = re.search(r"resourceType=(\w+), name=(.+?), patternType=(\w+)\)", line)
        if named is not None:
            resource = named.groups()
        rule = re.search(r"principal=(.+), host=(.+), operation=(\w+), permissionType=(\w+)", line)
        if rule is not None:
            found.add((*resource, *rule.groups()))
    return found


def allowed(kind: str, name: str, *operations: str, pattern: str = "LITERAL") -> set[Rule]:
    return {(kind, name, pattern, "User:alice", "*", each, "ALLOW") for each in operations}


def test_rules_of_a_producer_and_a_consumer(site: Site) -> None:
    assert site.rules() == set()
    assert site.topic_for_alice("orders") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    produce = ("--producer", "--topic", "orders", "--transactional-id", "tx", "--idempotent")
    site.run(kafka.ACLS, "--add", *produce, *ALICE)
    assert site.topic_for_alice("orders") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    written = allowed("TOPIC", "orders", "WRITE", "DESCRIBE", "CREATE")
    written |= allowed("TRANSACTIONAL_ID", "tx", "WRITE", "DESCRIBE")
    written |= allowed("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE")
    assert site.rules() == written
    consume = ("--consumer", "--topic", "orders", "--group", "g-", "--resource-pattern-type")
    site.run(kafka.ACLS, "--add", *consume, "prefixed", *ALICE)
    read = allowed("TOPIC", "orders", "READ", "DESCRIBE", pattern="PREFIXED")
    read |= allowed("GROUP", "g-", "READ", pattern="PREFIXED")
    assert site.rules() == written | read
    assert site.rules("--group", "g-1", "--resource-pattern-type", "match") == {
        rule for rule in read if rule[0] == "GROUP"
    }
    site.run(kafka.ACLS, "--remove", "--force", *produce, *ALICE)
    assert site.rules() == read
    assert site.topic_for_alice("orders-2") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    every = ("--topic", "orders", "--resource-pattern-type", "any")
    site.run(kafka.ACLS, "--remove", "--force", *every)
    assert site.rules() == {rule for rule in read if rule[0] == "GROUP"}
    assert site.topic_for_alice("orders-2") == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_denied_hosts_and_users_as_resources(site: Site) -> None:
    allow = ("--allow-principal", "User:*", "--allow-host", "*")
    deny = ("--deny-principal", "User:alice", "--deny-host", "127.0.0.1")
    operations = ("--operation", "Read", "--operation", "Describe")
    site.run(kafka.ACLS, "--add", *allow, *deny, *operations, "--topic", "*")
    assert site.rules("--principal", "User:alice") == {
        ("TOPIC", "*", "LITERAL", "User:alice", "127.0.0.1", each, "DENY")
        for each in ("READ", "DESCRIBE")
    }
    assert site.topic_for_alice("orders") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    site.run(kafka.ACLS, "--remove", "--force", *deny, *operations, "--topic", "*")
    assert site.topic_for_alice("orders") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    tokens = ("--operation", "CreateTokens", "--user-principal", "User:bob")
    site.run(kafka.ACLS, "--add", *ALICE, *tokens)
    said = site.rules("--user-principal", "User:bob")
    assert said == allowed("USER", "User:bob", "CREATE_TOKENS")


def test_user_without_rights_is_told_so(site: Site, tmp_path: Path) -> None:
    settings = tmp_path / "alice.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="alice" password="alice";\n'
    )
    as_alice = ("--bootstrap-server", f"127.0.0.1:{site.port}", "--command-config", str(settings))
    done = site.tools.run(kafka.ACLS, *as_alice, "--list")
    assert done.code == 1
    assert "ClusterAuthorizationException" in done.text, done
    site.run(kafka.ACLS, "--add", "--cluster", "--operation", "Describe", *ALICE)
    done = site.tools.run(kafka.ACLS, *as_alice, "--list")
    assert printed(done.text) == allowed("CLUSTER", "kafka-cluster", "DESCRIBE"), done


# -- ZooKeeper ------------------------------------------------------------------------------------


class Older(NamedTuple):
    """The tools of Kafka 3.9, which know nothing but ZooKeeper."""

    tools: Tools
    zookeeper: str

    def acls(self, *arguments: str) -> str:
        place = f"zookeeper.connect={self.zookeeper}"
        return self._run("kafka.admin.AclCommand", "--authorizer-properties", place, *arguments)

    def users(self, *arguments: str) -> str:
        place = ("--zookeeper", self.zookeeper, "--entity-type", "users")
        return self._run("kafka.admin.ConfigCommand", *place, *arguments)

    def _run(self, main: str, *arguments: str) -> str:
        done = self.tools.run(main, *arguments)
        assert done.code == 0, done
        return done.text


@pytest.fixture(scope="module")
def older_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    errors = tmp_path_factory.mktemp("older") / "errors"
    with jvm.start(errors, ZOOKEEPER_POM) as process:
        yield Tools(process)


@pytest.fixture
def older(older_tools: Tools, request: pytest.FixtureRequest) -> Older:
    chroot, server = chroot_of(request.node.name), shared_server()
    with server.looking() as client:
        client.create(chroot)
    return Older(older_tools, server.connect + chroot)


@pytest.fixture
def site_on_zookeeper(tools: Tools, older: Older, tmp_path: Path) -> Iterator[Site]:
    port = free_port()
    keys = {
        "broker.id": "1",
        "zookeeper.connect": older.zookeeper,
        "listeners": (
            f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port},BROKERS://127.0.0.1:0"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,BROKERS:PLAINTEXT"
        ),
        "inter.broker.listener.name": "BROKERS",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": SCRAM,
    }
    with Broker(KEYS | keys, data_dir=tmp_path / "log") as broker:
        yield Site(broker.bootstrap_servers, tools, port)


def test_broker_follows_rules_and_users_of_older_tools(
    site_on_zookeeper: Site, older: Older
) -> None:
    site = site_on_zookeeper
    password = "SCRAM-SHA-256=[iterations=4096,password=alice]"
    older.users("--alter", "--entity-name", "alice", "--add-config", password)
    refused, missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    until(lambda: knows_alice(site))
    assert site.topic_for_alice("orders") == refused
    older.acls("--add", "--operation", "Describe", "--topic", "orders", *ALICE)
    prefixed = ("--topic", "p-", "--resource-pattern-type", "prefixed")
    older.acls("--add", "--operation", "Read", *prefixed, *ALICE)
    until(lambda: site.topic_for_alice("orders") == missing)
    until(lambda: site.topic_for_alice("p-1") == missing)
    written = allowed("TOPIC", "orders", "DESCRIBE")
    written |= allowed("TOPIC", "p-", "READ", pattern="PREFIXED")
    assert site.rules() == written
    older.acls("--remove", "--force", *prefixed)
    until(lambda: site.topic_for_alice("p-1") == refused)
    assert site.topic_for_alice("orders") == missing


def test_older_tools_read_and_remove_rules_and_users_of_a_broker(
    site_on_zookeeper: Site, older: Older
) -> None:
    site = site_on_zookeeper
    site.run(kafka.ACLS, "--add", "--operation", "Write", "--topic", "orders", *ALICE)
    prefixed = ("--group", "g-", "--resource-pattern-type", "prefixed")
    site.run(kafka.ACLS, "--add", "--operation", "Read", *prefixed, *ALICE)
    password = "SCRAM-SHA-512=[iterations=4096,password=alice]"
    entity = ("--entity-type", "users", "--entity-name", "alice")
    site.run(kafka.CONFIGS, *entity, "--alter", "--add-config", password)
    written = allowed("TOPIC", "orders", "WRITE")
    of_group = allowed("GROUP", "g-", "READ", pattern="PREFIXED")
    assert printed(older.acls("--list")) == written | of_group
    assert "SCRAM-SHA-512=salt=" in older.users("--describe", "--entity-name", "alice")
    older.acls("--remove", "--force", *prefixed)
    until(lambda: site.rules() == written)
    assert knows_alice(site)
    older.users("--alter", "--entity-name", "alice", "--delete-config", "SCRAM-SHA-512")
    until(lambda: not knows_alice(site))


def knows_alice(site: Site) -> bool:
    asked = DescribeUserScramCredentialsRequest(users=[UserName(name="alice")])
    host, _, port = site.bootstrap.rpartition(":")
    with Connection(host, int(port), "admin") as connection:
        connection.post(asked, 0)
        return connection.take().results[0].error_code == ErrorCode.NONE
