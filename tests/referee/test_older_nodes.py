"""Kafka 3.9 and Barnabas read each other's nodes of quotas and delegation tokens in ZooKeeper.

The tools of Kafka 3.9 write rules and users to ZooKeeper (`test_acl_tools.py`). Quotas and tokens
they send to a broker: kafka-configs.sh refuses them with --zookeeper, and
kafka-delegation-tokens.sh has no such option. So here a broker of Kafka 3.9 writes them. It has a
tree of its own, since two kinds of controllers cannot share one: the nodes that one broker has
written, and its announcements, are given to the other.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.broker.cluster import znodes
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.testing.broker import Broker
from tests.referee.given import Topic, batch, produce
from tests.support.kafka import tools as kafka
from tests.support.kafka.tools import Tools
from tests.support.kafka.zookeeper_node import ZooKeeperKafka
from tests.support.raw import Connection
from tests.support.waiting import until
from tests.support.zookeeper import chroot_of, every_path, shared_server

pytestmark = pytest.mark.xdist_group("referee-tools")

MODULES = "org.apache.kafka.common.security"
LISTENER = "listener.name.sasl_plaintext"
KEYS = {
    "broker.id": "1",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{LISTENER}.plain.sasl.jaas.config": (
        f"{MODULES}.plain.PlainLoginModule required "
        'username="alice" password="alice" user_alice="alice";'
    ),
    f"{LISTENER}.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "delegation.token.secret.key": "a secret of all brokers",
    "offsets.topic.replication.factor": "1",
}
NODES = ("/config/users", "/config/clients", "/config/ips", znodes.DELEGATION_TOKENS)
CHANGES = (znodes.CONFIG_CHANGE, znodes.TOKEN_CHANGE)
TOPIC = Topic("limited", bytes(16))
SLOW = 100
"""A byte rate that makes every producer of these tests wait."""


class Site(NamedTuple):
    """A broker and its tree, and the tools for it, which log in as alice."""

    servers: str
    chroot: str
    tools: Tools
    directory: Path

    def run(self, main: str, *arguments: str, jaas: str = "") -> str:
        module, account = "plain.PlainLoginModule", 'username="alice" password="alice"'
        mechanism = "PLAIN"
        if jaas:
            mechanism, module, account = "SCRAM-SHA-256", "scram.ScramLoginModule", jaas
        file = self.directory / "client.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={MODULES}.{module} required {account};\n"
        )
        return self.tools.at(self.servers)(main, "--command-config", str(file), *arguments)

    def limit(self, *arguments: str) -> None:
        self.run(kafka.CONFIGS, "--alter", *arguments[:-1], "--add-config", arguments[-1])

    def quotas(self) -> set[str]:
        kinds = (("users",), ("clients",), ("users", "clients"), ("ips",))
        return {
            line
            for each in kinds
            for line in self.run(
                kafka.CONFIGS, "--describe", *(w for kind in each for w in ("--entity-type", kind))
            ).splitlines()
        }

    def new_token(self) -> tuple[str, str]:
        """Create a token, and return its id and its HMAC."""
        made = self.run(kafka.DELEGATION_TOKENS, "--create", "--max-life-time-period", "-1")
        found = re.search(r"^(\S{22})\s+(\S{88})\s+User:alice", made, re.MULTILINE)
        assert found is not None, made
        return found[1], found[2]

    def described_token(self, token: str) -> str:
        """Return the line about a token: its HMAC, its principals and its times."""
        owner = ("--owner-principal", "User:alice")
        described = self.run(kafka.DELEGATION_TOKENS, "--describe", *owner)
        return next((line for line in described.splitlines() if line.startswith(token)), "")

    def throttle_ms(self, client_id: str) -> int:
        """Return the time that alice is told to wait after records of 20 KB."""
        host, _, port = self.servers.rpartition(":")
        with Connection(host, int(port), client_id, timeout_s=20) as connection:
            connection.post(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            connection.take()
            connection.post(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice"), 2)
            assert connection.take().error_code == 0
            connection.post(produce(TOPIC, batch(bytes(20_000))), 9)
            answer = connection.take()
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
        return int(answer.throttle_time_ms)


@pytest.fixture(scope="module")
def sites(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    """Return both brokers, each with the topic of the tests."""
    ours = chroot_of("barnabas")
    with shared_server().looking() as client:
        client.create(ours)
    keys = KEYS | {
        "zookeeper.connect": shared_server().connect + ours,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    directory = tmp_path_factory.mktemp("sites")
    theirs = ZooKeeperKafka(directory / "kafka", KEYS, "SASL_PLAINTEXT")
    with theirs as node, Broker(keys) as broker:
        sites = {
            "kafka": Site(node.bootstrap_servers, node.chroot, tools, directory),
            "barnabas": Site(broker.bootstrap_servers, ours, tools, directory),
        }
        for site in sites.values():
            site.run(kafka.TOPICS, "--create", "--topic", TOPIC.name)
        yield sites


def give(source: str, target: str) -> None:
    """Write what a tree has into the other, then the announcements of all changes."""
    with shared_server().looking() as client:
        for root in NODES:
            for path in every_path(client, source + root):
                data, _ = client.get(path)
                if client.exists(other := target + path.removeprefix(source)):
                    client.set(other, data)
                else:
                    client.create(other, data, makepath=True)
        for prefix in CHANGES:
            parent = prefix.rpartition("/")[0]
            for child in sorted(client.get_children(source + parent)):
                change, _ = client.get(f"{source}{parent}/{child}")
                client.create(target + prefix, change, sequence=True)


@pytest.mark.parametrize(("writer", "reader"), [("kafka", "barnabas"), ("barnabas", "kafka")])
def test_broker_follows_quotas_and_tokens_of_the_other(
    sites: dict[str, Site], writer: str, reader: str
) -> None:
    source, target = sites[writer], sites[reader]
    client = f"from {writer} /*"
    source.limit("--user", f"user of {writer} \u00e4", "request_percentage=12.5")
    source.limit("--user", "alice", "--client", client, f"producer_byte_rate={SLOW}")
    source.limit("--user-defaults", "--client-defaults", "consumer_byte_rate=30000000")
    source.limit("--client-defaults", "controller_mutation_rate=4")
    source.limit("--ip", "10.0.0.1", "connection_creation_rate=5")
    source.limit("--ip-defaults", "connection_creation_rate=600")
    token, hmac = source.new_token()
    until(lambda: source.throttle_ms(client) > 0)
    assert target.throttle_ms(client) == 0

    give(source.chroot, target.chroot)
    until(lambda: target.throttle_ms(client) > 0)
    assert target.throttle_ms("other") == 0
    assert len(expected := source.quotas()) >= 6
    assert target.quotas() == expected
    assert until(lambda: target.described_token(token)) == source.described_token(token)
    account = f'username="{token}" password="{hmac}" tokenauth="true"'
    assert TOPIC.name in target.run(kafka.TOPICS, "--list", jaas=account)
