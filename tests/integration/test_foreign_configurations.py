"""Files of other projects: a broker starts from them, or refuses them for the right reason.

The files in `foreign/` are written in the manner of well-known projects. As in Compose, a service's
own name is a name of this host, and `$$` is a dollar. Each port becomes a free one.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from confluent_kafka import KafkaError, Producer

from tests.support.command_line import Served, run
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.support.zookeeper import chroot_of, shared_server

FILES = Path(__file__).parent / "foreign"
KRAFT = "controller.listener.names, controller.quorum.voters, process.roles"
_PORT = re.compile(r"(?<=:)[0-9]{4,5}\b")


class Ports:
    """Free ports in place of those in a file, each always the same one."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}

    def __getitem__(self, port: str | int) -> int:
        return self._free.setdefault(str(port), free_port())

    def moved(self, text: str) -> str:
        return _PORT.sub(lambda found: str(self[found[0]]), text)


class File(NamedTuple):
    """The variables of each service in a Compose file."""

    name: str
    ports: Ports

    @property
    def services(self) -> dict[str, dict[str, str]]:
        read = yaml.safe_load((FILES / self.name).read_text())["services"]
        return {
            service: {
                name: self.ports.moved(str(value).replace("$$", "$")).replace(
                    f"//{service}:", "//localhost:"
                )
                for name, value in described["environment"].items()
            }
            for service, described in read.items()
        }


@pytest.fixture
def ports() -> Ports:
    return Ports()


@contextmanager
def served(directory: Path, *words: str, **variables: str) -> Iterator[list[str]]:
    """Run a broker; yield the warnings about its configuration, which are there at its end."""
    broker = Served(*words, "--data", str(directory), "--log-format", "json", **variables)
    found: list[str] = []
    try:
        yield found
    finally:
        code, _, errors = broker.stop()
    assert code == 0
    found += re.findall(r"configuration keys have no effect here: ([^\"]*)\"", errors)


def produce(port: int, **login: str) -> dict[str, int]:
    """Produce a record to the listener at a port; return the addresses that it advertises."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", **_keys(login)})
    failed: list[object] = []
    producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0
    assert failed == [None]
    brokers = producer.list_topics(timeout=20).brokers.values()
    return {each.host: each.port for each in brokers}


def _keys(login: Mapping[str, str]) -> dict[str, str]:
    if not login:
        return {}
    (user, password) = next(iter(login.items()))
    keys = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    return keys | {"sasl.username": user, "sasl.password": password}


def require_refused_login(port: int, **login: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "error_cb": errors.append,
            **_keys(login),
        }
    )

    def refused() -> bool:
        producer.poll(0.05)
        return any(each.code() == KafkaError._AUTHENTICATION for each in errors)

    until(refused, lambda: errors)


@pytest.mark.parametrize(
    ("name", "listeners", "warned"),
    [
        (
            "combined-node.yml",
            [9092],
            f"{KRAFT}, share.coordinator.state.topic.replication.factor",
        ),
        (
            "platform.yml",
            [9092, 29092],
            "controller.listener.names, controller.quorum.voters, metric.reporters, "
            "process.roles, vendor.license.topic.replication.factor",
        ),
        ("advertised-only.yml", [9092, 29092], None),
        ("prefixed.yml", [9092, 9094], KRAFT),
        ("for-tests.yml", [9092, 9093], KRAFT),
        (
            "self-hosted.yml",
            [9092, 9093, 29092],
            "controller.listener.names, controller.quorum.voters, max.request.size, process.roles",
        ),
    ],
)
def test_broker_serves_all_listeners_of_a_file(
    name: str, listeners: list[int], warned: str | None, ports: Ports, tmp_path: Path
) -> None:
    ((_, variables),) = File(name, ports).services.items()
    with served(tmp_path, **variables) as warnings:
        for port in listeners:
            (advertised,) = produce(ports[port]).items()
            assert advertised in (("localhost", ports[port]), ("127.0.0.1", ports[port]))
    assert warnings == ([] if warned is None else [warned])
    wanted = variables.get("CLUSTER_ID", variables.get("KAFKA_KRAFT_CLUSTER_ID", ""))
    assert f"cluster.id={wanted}" in (tmp_path / "meta.properties").read_text()


def test_broker_on_zookeeper_serves_both_sides_of_the_network(ports: Ports, tmp_path: Path) -> None:
    ((_, variables),) = File("zookeeper.yml", ports).services.items()
    variables["KAFKA_ZOOKEEPER_CONNECT"] = shared_server().connect + chroot_of("foreign")
    with served(tmp_path, **variables) as warnings:
        for port in (9092, 29092):
            assert produce(ports[port]) == {"localhost": ports[port]}
    assert warnings == []


def test_users_over_several_lines_of_a_variable_log_in(ports: Ports, tmp_path: Path) -> None:
    ((_, variables),) = File("jaas.yml", ports).services.items()
    with served(tmp_path, **variables):
        produce(ports[9092], admin="admin-secret")
        produce(ports[9092], alice="her\\own")
        produce(ports[29092])


def test_users_of_config_providers_log_in_and_references_do_not(
    ports: Ports, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "bob").write_text("bob's secret\n")
    text = (FILES / "operator.properties").read_text().replace("/opt/kafka", str(tmp_path))
    file = tmp_path / "server.properties"
    file.write_text(ports.moved(text))
    words, variables = ("--config", str(file)), {"OPERATOR_ALICE": "alice's secret"}
    with served(tmp_path / "data", *words, **variables) as warnings:
        produce(ports[9092], alice="alice's secret")
        produce(ports[9092], bob="bob's secret")
        require_refused_login(ports[9092], alice="${operatorenv:OPERATOR_ALICE}")
    (warning,) = warnings
    assert "config.providers" not in warning
    assert "did you mean" not in warning
    shown = run("serve", *words, "--print-config", **variables)
    assert shown.returncode == 0
    assert b"alice's secret" not in shown.stdout
    assert b"bob's secret" not in shown.stdout
    assert b"#listener.name.plain-9092.plain.sasl.jaas.config=[hidden]" in shown.stdout
    refused = run("serve", *words)
    assert refused.returncode == 1
    assert b"${operatorenv:OPERATOR_ALICE} has no value: set the environment" in refused.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("prefixed-users.yml", r"client\.(users|passwords) is no key of Kafka, but a variable of"),
        ("three-nodes.yml", "controller.quorum.voters names other nodes, and this broker would be"),
        (
            "separate-roles.yml",
            "process.roles=controller: Barnabas has no KRaft"
            "|controller.quorum.bootstrap.servers names other nodes",
        ),
        (
            "host-name.yml",
            "advertised.host.name has no effect here: Kafka 3.0 has removed it. Set "
            "advertised.listeners, such as PLAINTEXT://192.168.99.100:9094",
        ),
        ("host-command.yml", r"OUTSIDE://_\{HOSTNAME_COMMAND\}:\d+ for .*: It is a template"),
        ("host-ip.yml", r"LISTENER_DOCKER://\$\{HOST_IP\}:\d+ for .*: It is a template"),
        (
            "jaas-file.yml",
            "Listener SASL_PLAINTEXT offers PLAIN and knows no user. Set "
            "listener.name.sasl_plaintext.plain.sasl.jaas.config to",
        ),
    ],
)
def test_file_that_cannot_mean_what_it_says_here_is_refused(
    name: str, reason: str, ports: Ports, tmp_path: Path
) -> None:
    for variables in File(name, ports).services.values():
        done = run("serve", "--data", str(tmp_path), **variables)
        line = done.stderr.decode().splitlines()[-1]
        assert re.search(reason, line), line
        assert done.returncode == 1
        assert "hunter2" not in line


def test_example_of_kafka_on_zookeeper_is_refused_with_the_way_to_run_one_broker(
    tmp_path: Path,
) -> None:
    file = str(FILES / "zookeeper-example.properties")
    words = ("serve", "--config", file, "--data", str(tmp_path), "--listen", "127.0.0.1:0")
    refused = run(*words)
    assert refused.returncode == 1
    assert b"Brokers of a cluster need a listener of their own" in refused.stderr
    assert b"A single broker needs no zookeeper.connect" in refused.stderr
    with served(tmp_path, "--config", file, "--set", "zookeeper.connect=", *words[5:]) as warnings:
        pass
    assert warnings == ["num.io.threads, num.network.threads, num.recovery.threads.per.data.dir"]


def test_every_file_is_tried() -> None:
    text = Path(__file__).read_text()
    names = [path.name for path in FILES.iterdir()]
    assert len(names) >= 14
    assert [name for name in names if f'"{name}"' not in text] == []
