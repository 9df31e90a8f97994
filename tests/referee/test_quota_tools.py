"""Apache Kafka's kafka-configs.sh sets, lists and removes the quotas of Barnabas, and they hold.

In ZooKeeper they have the nodes of Kafka 3.9, which has no tool that writes quotas there:
`test_older_nodes.py` takes nodes from a broker of 3.9.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.testing.broker import Broker
from tests.referee.given import Topic, batch, produce
from tests.support.kafka import tools as kafka
from tests.support.kafka.tools import Finished, Tools
from tests.support.raw import Connection
from tests.support.waiting import until
from tests.support.zookeeper import chroot_of, shared_server

pytestmark = pytest.mark.xdist_group("referee-tools")

ALICE = ("--entity-type", "users", "--entity-name", "alice")
SLOW, FAST = 100, 1_000_000_000
"""Byte rates that make every client of these tests wait, and none."""
TOPIC = Topic("limited", bytes(16))
APP = ("--entity-type", "clients", "--entity-name", "app 1")


class Site(NamedTuple):
    """A broker, and the tool for it."""

    servers: str
    tools: Tools

    def run(self, *arguments: str) -> Finished:
        return self.tools.run(kafka.CONFIGS, "--bootstrap-server", self.servers, *arguments)

    def alter(self, *arguments: str) -> str:
        """Return the line that the tool prints for a change."""
        done = self.run(*arguments[:-2], "--alter", *arguments[-2:])
        assert (done.code, done.errors) == (0, ""), done
        return done.text.strip()

    def throttle_ms(self, client_id: str) -> int:
        """Return the time that a client is told to wait after records of 20 KB."""
        host, _, port = self.servers.rpartition(":")
        with Connection(host, int(port), client_id) as connection:
            connection.post(produce(TOPIC, batch(bytes(20_000))), 9)
            answer = connection.take()
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
        return int(answer.throttle_time_ms)

    def quotas(self, *arguments: str) -> dict[str, set[str]]:
        """Return the quotas that the tool prints, by entity."""
        done = self.run(*arguments, "--describe")
        assert (done.code, done.errors) == (0, ""), done
        found = re.findall(r"^Quota configs for (.+) are (.+)$", done.text, re.MULTILINE)
        assert len(found) == len(done.text.splitlines()), done
        return {entity: set(values.split(", ")) for entity, values in found}


@pytest.fixture
def site(tools: Tools) -> Iterator[Site]:
    with Broker() as broker:
        yield Site(broker.bootstrap_servers, tools)


def test_quotas_of_users_and_clients(site: Site) -> None:
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
    assert site.alter(*ALICE, "--add-config", rates) == "Completed updating config for user alice."
    site.alter(*ALICE, *APP, "--add-config", "request_percentage=12.5")
    site.alter("--user-defaults", "--client", "app 1", "--add-config", "producer_byte_rate=7")
    assert (
        site.alter("--client-defaults", "--add-config", "controller_mutation_rate=3")
        == "Completed updating default config for clients in the cluster."
    )
    alice = {"user-principal 'alice'": {"producer_byte_rate=1024.0", "consumer_byte_rate=2048.0"}}
    both = {"user-principal 'alice', client-id 'app 1'": {"request_percentage=12.5"}}
    others = {"the default user-principal, client-id 'app 1'": {"producer_byte_rate=7.0"}}
    clients = {"the default client-id": {"controller_mutation_rate=3.0"}}
    assert site.quotas("--entity-type", "users") == alice
    assert site.quotas("--entity-type", "clients") == clients
    assert site.quotas("--entity-type", "users", "--entity-type", "clients") == both | others
    assert site.quotas("--user", "alice", "--client", "app 1") == both
    site.alter(*ALICE, "--delete-config", "producer_byte_rate")
    assert site.quotas(*ALICE) == {"user-principal 'alice'": {"consumer_byte_rate=2048.0"}}
    done = site.run(*ALICE, "--alter", "--delete-config", "producer_byte_rate")
    assert (done.code, done.errors) == (1, "Invalid config(s): producer_byte_rate\n")
    site.alter(*ALICE, "--delete-config", "consumer_byte_rate")
    assert site.quotas("--entity-type", "users") == {}


def test_closest_entity_decides_how_long_a_client_waits(site: Site) -> None:
    done = site.tools.at(site.servers)(kafka.TOPICS, "--create", "--topic", TOPIC.name)
    assert "Created topic" in done
    user, client = ("--user", "ANONYMOUS"), ("--client", "app")
    assert site.throttle_ms("app") == 0
    site.alter("--client-defaults", "--add-config", f"producer_byte_rate={SLOW}")
    until(lambda: site.throttle_ms("app") > 0)
    site.alter(*client, "--add-config", f"producer_byte_rate={FAST}")
    until(lambda: site.throttle_ms("app") == 0)
    assert site.throttle_ms("other") > 0
    site.alter(*user, "--add-config", f"producer_byte_rate={SLOW}")
    until(lambda: site.throttle_ms("app") > 0)
    site.alter(*user, *client, "--add-config", f"producer_byte_rate={FAST}")
    until(lambda: site.throttle_ms("app") == 0)
    assert site.throttle_ms("other") > 0
    site.alter(*user, "--delete-config", "producer_byte_rate")
    site.alter("--client-defaults", "--delete-config", "producer_byte_rate")
    until(lambda: site.throttle_ms("other") == 0)


def test_quotas_of_addresses(site: Site) -> None:
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    said = site.alter(*address, "--add-config", "connection_creation_rate=5")
    assert said == "Completed updating config for ip 10.0.0.1."
    site.alter("--ip-defaults", "--add-config", "connection_creation_rate=6")
    default = {"the default ip": {"connection_creation_rate=6.0"}}
    one = {"ip '10.0.0.1'": {"connection_creation_rate=5.0"}}
    assert site.quotas("--entity-type", "ips") == one | default
    site.alter(*address, "--delete-config", "connection_creation_rate")
    assert site.quotas("--entity-type", "ips") == default


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("producer_byte_rate=1.5", "producer_byte_rate cannot be a fractional value."),
        ("producer_byte_rate=-1", "Quota producer_byte_rate must be greater than 0"),
        ("request_percentage=0", "Quota request_percentage must be greater than 0"),
    ],
)
def test_wrong_values_are_refused_in_kafkas_words(site: Site, value: str, line: str) -> None:
    done = site.run(*ALICE, "--alter", "--add-config", value)
    assert done.code == 1
    assert f"InvalidRequestException: {line}\n" in done.errors, done
    assert site.quotas("--entity-type", "users") == {}


# -- ZooKeeper ------------------------------------------------------------------------------------


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    chroot, server = chroot_of(request.node.name), shared_server()
    with server.looking() as client:
        client.create(chroot)
    return chroot


@pytest.fixture
def site_on_zookeeper(tools: Tools, chroot: str, tmp_path: Path) -> Iterator[Site]:
    keys = {
        "broker.id": "1",
        "zookeeper.connect": shared_server().connect + chroot,
        "listeners": "PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "offsets.topic.replication.factor": "1",
    }
    with Broker(keys, data_dir=tmp_path / "log") as broker:
        yield Site(broker.bootstrap_servers, tools)


def node(**values: str) -> bytes:
    """Return a node as Kafka 3.9 writes it."""
    return json.dumps({"version": 1, "config": values}, separators=(",", ":")).encode()


def test_quotas_are_in_kafkas_nodes(site_on_zookeeper: Site, chroot: str) -> None:
    site = site_on_zookeeper
    rates = "producer_byte_rate=1024,request_percentage=12.5"
    site.alter("--user", "a b/*", "--add-config", rates)
    site.alter("--user", "a b/*", "--client", "\u00e4", "--add-config", "consumer_byte_rate=2")
    site.alter("--user-defaults", "--client-defaults", "--add-config", "consumer_byte_rate=3")
    site.alter("--client-defaults", "--add-config", "consumer_byte_rate=4")
    site.alter("--ip", "10.0.0.1", "--add-config", "connection_creation_rate=5")
    site.alter("--ip-defaults", "--add-config", "connection_creation_rate=6")
    found: dict[str, dict[str, float]] = {}
    with shared_server().looking(chroot) as client:

        def collect(path: str) -> None:
            data, _ = client.get(path)
            if data:
                stored = json.loads(data)
                assert stored["version"] == 1
                assert all(isinstance(value, str) for value in stored["config"].values())
                if stored["config"]:
                    values = {key: float(value) for key, value in stored["config"].items()}
                    found[path.removeprefix("/config/")] = values
            for child in client.get_children(path):
                collect(f"{path}/{child}")

        for kind in ("users", "clients", "ips"):
            collect(f"/config/{kind}")
        changes = {
            json.loads(client.get(f"/config/changes/{each}")[0])["entity_path"]
            for each in client.get_children("/config/changes")
        }
    assert found == {
        "users/a%20b%2F%2A": {"producer_byte_rate": 1024, "request_percentage": 12.5},
        "users/a%20b%2F%2A/clients/%C3%A4": {"consumer_byte_rate": 2},
        "users/<default>/clients/<default>": {"consumer_byte_rate": 3},
        "clients/<default>": {"consumer_byte_rate": 4},
        "ips/10.0.0.1": {"connection_creation_rate": 5},
        "ips/<default>": {"connection_creation_rate": 6},
    }
    assert changes == set(found)


def test_nodes_that_kafka_writes_are_followed(site_on_zookeeper: Site, chroot: str) -> None:
    site = site_on_zookeeper
    site.tools.at(site.servers)(kafka.TOPICS, "--create", "--topic", TOPIC.name)
    assert site.throttle_ms("app 1") == 0
    path = "users/ANONYMOUS/clients/app%201"
    with shared_server().looking(chroot) as client:
        client.create(f"/config/{path}", node(producer_byte_rate=str(SLOW)), makepath=True)
        change = json.dumps({"version": 2, "entity_path": path}).encode()
        client.create("/config/changes/config_change_", change, sequence=True)
        until(lambda: site.throttle_ms("app 1") > 0)
        assert site.throttle_ms("other") == 0
        assert site.quotas("--entity-type", "users", "--entity-type", "clients") == {
            "user-principal 'ANONYMOUS', client-id 'app 1'": {f"producer_byte_rate={SLOW}.0"}
        }
        client.set(f"/config/{path}", node())
        client.create("/config/changes/config_change_", change, sequence=True)
        until(lambda: site.throttle_ms("app 1") == 0)
    assert site.quotas("--entity-type", "users", "--entity-type", "clients") == {}
