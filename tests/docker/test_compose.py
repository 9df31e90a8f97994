"""docker-compose.yml unchanged: three brokers by one command, and their failures."""

import re
import time
from collections.abc import Iterator

import pytest

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
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("docker"),
]

BROKERS = {1: "localhost:9092", 2: "localhost:9093", 3: "localhost:9094"}
ALL = ",".join(BROKERS.values())
GRACE_SECONDS = 60
HEALTHY_SECONDS = 120
IN_SYNC_SECONDS = 60
SESSION_SECONDS = 30
"""Enough for the end of a session and an election on a busy machine."""


class Compose:
    """The services, run by one of the two generations of Compose."""

    def __init__(self, engine: Engine, command: tuple[str, ...]) -> None:
        self.engine = engine
        self._command = (*command, "--file", str(ROOT / "docker-compose.yml"))

    def __call__(self, *words: str, text: str = "") -> str:
        return self.engine.run(*self._command, *words, text=text)

    def container(self, service: str) -> str:
        return self("ps", "--all", "--quiet", service).strip()

    def up(self) -> None:
        """Run the documented command; return when every broker is healthy."""
        self("up", "--detach")
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
    compose = Compose(engine, command)
    try:
        compose.up()
        yield compose
    finally:
        compose("down", "--volumes")


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
