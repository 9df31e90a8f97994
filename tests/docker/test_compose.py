"""docker-compose.yml unchanged: three brokers by one command, and their failures."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import KafkaError, Producer

from barnabas.client.settings import ClientSettings
from tests.docker.clients import (
    brokers,
    create_topic,
    in_sync,
    leaders,
    produce,
    producer,
    read,
    transactional_producer,
    write,
)
from tests.docker.engine import Engine, wait_for
from tests.docker.files import ROOT, compose_config

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("docker"),
]

BROKERS = {1: "localhost:9092", 2: "localhost:9093", 3: "localhost:9094"}
ALL = ",".join(BROKERS.values())
BUILD_SECONDS = 1500
"""Enough for an engine that copies whole layers and builds the pipeline's image as well."""
GRACE_SECONDS = 60
HEALTHY_SECONDS = 120
IN_SYNC_SECONDS = 60
SESSION_SECONDS = 30
"""Enough for the end of a session and an election on a busy machine."""


class Compose:
    """The services, run by one of the two generations of Compose."""

    def __init__(self, engine: Engine, command: tuple[str, ...]) -> None:
        self.engine = engine
        self._command = command

    def of_profile(self, name: str) -> "Compose":
        """Return the same with the services of a profile."""
        return Compose(self.engine, (*self._command, "--profile", name))

    def __call__(self, *words: str, text: str = "", timeout: float = 600) -> str:
        return self.engine.run(*self._command, *words, text=text, timeout=timeout)

    def container(self, service: str) -> str:
        return self("ps", "--all", "--quiet", service).strip()

    def up(self) -> None:
        """Run the documented command; return when every broker is healthy."""
        self("up", "--detach", timeout=BUILD_SECONDS)
        self.wait_until_healthy(*BROKERS)

    def wait_until_healthy(self, *broker_ids: int) -> None:
        containers = [self.container(f"broker-{broker}") for broker in broker_ids]
        self.engine.wait_until_healthy(containers, HEALTHY_SECONDS)

    def barnabas(self, broker_id: int, *words: str, text: str = "") -> str:
        """Run the `barnabas` command in a broker's container."""
        return self("exec", "-T", f"broker-{broker_id}", "barnabas", *words, text=text)


@pytest.fixture(scope="module", params=["docker-compose", "docker compose"], ids=["v1", "v2"])
def compose(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Compose]:
    """Start the services from nothing: this builds the image."""
    command = tuple(request.param.split())
    if not engine.run(*command, "version", check=False):
        pytest.skip(f"{request.param} is not installed")
    if engine.has_image("barnabas"):
        engine.run("docker", "image", "rm", "--force", "--no-prune", "barnabas")
    compose = Compose(engine, (*command, "--file", str(ROOT / "docker-compose.yml")))
    try:
        compose.up()
        yield compose
    finally:
        compose.of_profile("secure")("down", "--volumes")


@pytest.fixture
def topic(compose: Compose, request: pytest.FixtureRequest) -> str:  # noqa: ARG001
    """Return the name of a topic of three partitions and three replicas, on the running cluster."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name)
    create_topic(ALL, name)
    return name


def values(prefix: str, count: int = 100) -> list[str]:
    return sorted(f"{prefix}-{number}" for number in range(count))


def wait_until_in_sync(topic: str) -> None:
    everyone = set(BROKERS)
    wait_for(
        f"all replicas of {topic} in sync",
        IN_SYNC_SECONDS,
        lambda: all(each == everyone for each in in_sync(ALL, topic)),
    )


@pytest.mark.parametrize("address", BROKERS.values())
def test_every_published_address_reaches_all_brokers(topic, address):
    assert brokers(address) == BROKERS
    produce(address, topic, values("host"))
    assert read(address, topic) == values("host")


def test_containers_reach_each_other_by_name(compose, topic):
    compose.barnabas(1, "produce", topic, "-b", "broker-2:9092", text="hello\n")
    read = ("barnabas", "consume", topic, "--from", "beginning", "--exit", "-b", "broker-3:9092")
    elsewhere = ("docker", "run", "--rm", "--network", "barnabas_default")
    assert compose.engine.run(*elsewhere, *read) == "hello\n"


def test_containers_with_clients_reach_neither_the_replication_listener_nor_zookeeper(compose):
    probe = (
        "import socket, sys\n"
        "for place in sys.argv[1:]:\n"
        "    host, port = place.split(':')\n"
        "    try:\n"
        "        socket.create_connection((host, int(port)), 5).close()\n"
        "        print(place)\n"
        "    except OSError:\n"
        "        pass\n"
    )
    outside = ("docker", "run", "--rm", "--network", "barnabas_default", "--entrypoint", "python3")
    places = ("broker-1:9092", "broker-1:9091", "broker-1-replication:9091", "zookeeper:2181")
    reached = compose.engine.run(*outside, "barnabas", "-c", probe, *places)
    assert reached.split() == ["broker-1:9092"]


def test_command_in_a_brokers_container_needs_no_address(compose, topic):
    compose.barnabas(2, "produce", topic, text="hello\n")
    assert compose.barnabas(3, "consume", topic, "--from", "beginning", "--exit") == "hello\n"


def test_replicas_of_every_topic_are_on_every_rack(topic):
    with_transaction = transactional_producer(ALL, topic)
    with_transaction.begin_transaction()
    with_transaction.produce(topic, "one")
    with_transaction.commit_transaction(60)
    for name in (topic, "__transaction_state"):
        wait_until_in_sync(name)


def test_transactions_are_all_or_nothing(topic):
    writer = transactional_producer(ALL, topic)
    for number in range(20):
        writer.begin_transaction()
        kept = number % 2 == 0
        for value in values(f"{'kept' if kept else 'dropped'}-{number}", 10):
            writer.produce(topic, value)
        if kept:
            writer.commit_transaction(60)
        else:
            writer.flush(60)
            writer.abort_transaction(60)
    expected = [value for number in range(0, 20, 2) for value in values(f"kept-{number}", 10)]
    assert read(ALL, topic) == sorted(expected)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_broker_that_is_killed_loses_nothing(compose, topic, broker):
    produce(ALL, topic, values("before"))
    open_one = transactional_producer(ALL, topic)
    open_one.begin_transaction()
    for value in values("open"):
        open_one.produce(topic, value)
    container = compose.container(f"broker-{broker}")
    compose.engine.run("docker", "kill", "--signal", "KILL", container)
    try:
        open_one.commit_transaction(120)
        wait_for("others lead", SESSION_SECONDS, lambda: broker not in leaders(ALL, topic))
        produce(ALL, topic, values("while"))
    finally:
        compose.engine.run("docker", "start", container)
    compose.wait_until_healthy(broker)
    wait_until_in_sync(topic)
    assert read(ALL, topic) == sorted(values("before") + values("open") + values("while"))


def test_sigterm_is_a_controlled_stop(compose, topic):
    (broker, *_) = leaders(ALL, topic)
    container = compose.container(f"broker-{broker}")
    began = time.monotonic()
    compose("stop", f"broker-{broker}")
    assert time.monotonic() - began < GRACE_SECONDS / 2
    assert compose.engine.inspect(container, "{{.State.ExitCode}}") == "0"
    # The broker has handed over its partitions before it ended: no client waits for its session's
    # end.
    assert broker not in leaders(ALL, topic)
    produce(ALL, topic, values("while"))
    compose("start", f"broker-{broker}")
    wait_until_in_sync(topic)
    assert read(ALL, topic) == values("while")


def test_writes_continue_without_zookeeper_for_longer_than_a_session(compose, topic):
    # The producer has its id: brokers cannot get new blocks of ids without ZooKeeper.
    writer, written = producer(ALL), values("with")
    write(writer, topic, written)
    session = compose_config("broker-1").zookeeper_session_timeout_ms / 1000
    compose("stop", "zookeeper")
    try:
        end = time.monotonic() + 2 * session
        while time.monotonic() < end:
            batch = values(f"at-{len(written)}")
            write(writer, topic, batch)
            written += batch
    finally:
        compose("start", "zookeeper")
    # Only a controller can create a topic, and only with ZooKeeper.
    create_topic(ALL, f"{topic}-again")
    wait_until_in_sync(topic)
    assert read(ALL, topic) == sorted(written)


def test_data_survive_down_and_up(compose, topic):
    produce(ALL, topic, values("kept"))
    compose("down")
    compose.up()
    wait_until_in_sync(topic)
    assert read(ALL, topic) == values("kept")


def told_by_prometheus(what: str) -> dict[str, Any]:
    """Return an answer of its API; nothing while it starts."""
    try:
        with urlopen(f"http://localhost:9090/api/v1/{what}", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
    except OSError:
        return {}
    return found


def test_prometheus_scrapes_every_broker_and_evaluates_the_rules(compose):
    def rules() -> dict[str, str]:
        groups = told_by_prometheus("rules").get("groups", ())
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def targets() -> list[str]:
        return [each["health"] for each in told_by_prometheus("targets").get("activeTargets", ())]

    stored = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yaml").read_text())["groups"]
    well = {rule["alert"]: "ok" for group in stored for rule in group["rules"]}
    metrics = compose.of_profile("metrics")
    try:
        metrics("up", "--detach", "prometheus")
        wait_for("every broker is scraped", HEALTHY_SECONDS, lambda: targets() == ["up"] * 3)
        wait_for("every rule is evaluated", HEALTHY_SECONDS, lambda: rules() == well)
    finally:
        metrics("rm", "--stop", "--force", "prometheus")


# -- the profile `secure` --------------------------------------------------------------------------

SECURE = ("secure-1", "secure-2", "secure-3")
SECURE_SERVERS = "localhost:9192,localhost:9193,localhost:9194"
FILES = "/var/lib/barnabas-secure"


@pytest.fixture
def secure(compose: Compose) -> Iterator[Compose]:
    secure = compose.of_profile("secure")
    try:
        secure("up", "--detach", *SECURE)
        containers = [secure.container(service) for service in SECURE]
        secure.engine.wait_until_healthy(containers, HEALTHY_SECONDS)
        yield secure
    finally:
        secure("rm", "--stop", "--force", *SECURE)


def outcome(settings: dict[str, Any], topic: str) -> str:
    """Produce a record; return the name of the error, or an empty text."""
    errors: list[KafkaError | None] = []
    limits = {"message.timeout.ms": 10_000, "error_cb": errors.append, "log_level": 0}
    sender = Producer(settings | limits)
    sender.produce(topic, b"1", on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(60) == 0
    # The first error is the cause: a record then waits in vain for its timeout.
    return "" if errors[0] is None else errors[0].name()


def test_secure_brokers_let_users_in_with_their_rights_alone(
    secure: Compose, tmp_path: Path
) -> None:
    def barnabas(*words: str, text: str = "") -> str:
        admin = ("-b", "secure-1:9092", "--command-config", f"{FILES}/admin.properties")
        return secure("exec", "-T", "secure-1", "barnabas", *words, *admin, text=text)

    for topic in ("orders", "invoices"):
        barnabas("topics", "create", topic)
    barnabas("users", "set", "alice", "--password-file", "-", text="sesame")
    barnabas("acls", "add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    (ca := tmp_path / "ca.pem").write_text(
        secure("exec", "-T", "secure-2", "cat", f"{FILES}/ca.pem")
    )
    alice = ClientSettings(SECURE_SERVERS, str(ca), user="alice", password="sesame").librdkafka()
    wait_for("the rule holds", IN_SYNC_SECONDS, lambda: outcome(alice, "orders") == "")
    assert outcome(alice, "invoices") == "TOPIC_AUTHORIZATION_FAILED"
    assert outcome(alice | {"sasl.password": "wrong"}, "orders") == "_AUTHENTICATION"
    assert outcome(alice | {"security.protocol": "SSL"}, "orders") != ""
    described = barnabas("topics", "describe", "orders", "--json")
    assert all(sorted(row["isr"]) == [1, 2, 3] for row in json.loads(described)["partitions"])
    # Nothing is open, the nodes in ZooKeeper included.
    read = "import urllib.request as r; print(r.urlopen('http://localhost:9404/metrics').read().decode())"
    for service in SECURE:
        page = secure("exec", "-T", service, "python3", "-c", read)
        assert "# TYPE barnabas_server_exposures" in page
        assert "barnabas_server_exposures{" not in page
