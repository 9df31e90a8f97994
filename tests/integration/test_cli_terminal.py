"""The screens of the command line on a terminal of 80 columns, with long and evil names."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.command_line import Cli, on_a_terminal
from tests.support.newer_producer import NewerProducer

TOPIC = "orders-of-the-northern-warehouses-" + "x" * 60
GROUP = "readers of [the] orders " + "y" * 60
TRANSACTION = "transactional-id-" + "z" * 70
USER = "user-" + "u" * 70
KEYS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "transaction.state.log.num.partitions": "1",
}
EVIL = "evil\x1b[2J\x9b\n"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(KEYS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def names(cli: Cli) -> Iterator[None]:
    """Create something of everything that has a name, twice, so that there are tables."""
    both = [TOPIC, f"{TOPIC}-2"]
    cli("topics", "create", *both, "-p", "2", "--if-not-exists", "-c", "retention.ms=7d")
    producers = []
    for number, topic in enumerate(both):
        cli("groups", "reset-offsets", f"{GROUP}{number}", "-t", topic, "--to-earliest")
        cli("quotas", "set", "--user", f"{USER}{number}", "producer_byte_rate=9")
        rule = ("--allow-principal", f"User:{USER}{number}", "--operation", "Read")
        cli("acls", "add", *rule, "--topic", topic)
        cli(
            *("users", "set", f"{USER}{number}", "-m", "SCRAM-SHA-256", "--password-file", "-"),
            stdin=b"secret\n",
        )
        producer = NewerProducer(cli.servers, f"{TRANSACTION}{number}").init()
        producer.send(topic, 0, b"open")
        producers.append(producer)
    yield
    for producer in producers:
        producer.end(committed=False)


def test_no_screen_cuts_a_name(cli: Cli, names: None, tmp_path: Path) -> None:  # noqa: ARG001
    file = str(tmp_path / "offsets")
    plan = tmp_path / "plan"
    plan.write_bytes(cli("partitions", "plan", TOPIC, "--brokers", "0"))
    held_back = [f"{TRANSACTION}0", TOPIC]
    for command, shown in (
        (("topics", "list"), [TOPIC, f"{TOPIC}-2"]),
        (("topics", "describe", TOPIC), [TOPIC]),
        (("groups", "list"), [f"{GROUP}0", f"{GROUP}1"]),
        (("groups", "describe", f"{GROUP}0"), [f"{GROUP}0", *held_back]),
        (("groups", "describe", "--all"), [f"{GROUP}0", f"{GROUP}1", *held_back]),
        (
            ("groups", "reset-offsets", f"{GROUP}0", "--to-current", "--to-file", file),
            [f"{GROUP}0", TOPIC],
        ),
        (("transactions", "list"), [f"{TRANSACTION}0", f"{TRANSACTION}1"]),
        (("transactions", "describe", f"{TRANSACTION}0"), held_back),
        (("transactions", "why", TOPIC), [*held_back, f"{TOPIC}:0"]),
        (("transactions", "find-hanging"), []),
        (("users", "list"), [f"{USER}0", f"{USER}1", "SCRAM-SHA-256"]),
        (("quotas", "list"), [f"{USER}0", f"{USER}1", "producer_byte_rate"]),
        (("acls", "list"), [f"User:{USER}0", f"{TOPIC}-2"]),
        (("configs", "describe", "topic", TOPIC), ["retention.ms", "604800000"]),
        (
            ("configs", "describe", "topic", TOPIC, "--all"),
            ["leader.replication.throttled.replicas", str(2**63 - 1)],
        ),
        (
            ("configs", "describe", "broker", "0", "--all", "--verbose"),
            [KEYS["authorizer.class.name"], "password"],
        ),
        (("log-dirs", "describe"), ["online"]),
        (("log-dirs", "describe", TOPIC), [TOPIC]),
        (("partitions", "verify", str(plan)), [TOPIC, "done"]),
        (("partitions", "elect", TOPIC), [TOPIC]),
        (("partitions", "list"), []),
        (("brokers", "list"), [cli.servers]),
        (("brokers", "describe", "0"), [cli.servers]),
        (("cluster", "info"), [cli.servers, "transaction.version"]),
        (("cluster", "health"), ["The cluster is healthy."]),
        (("benchmark", "produce", "b" * 70, "-n", "100"), ["records_per_s"]),
    ):
        screen = on_a_terminal(cli.servers, *command)
        for name in shown:
            assert name in screen, (command, screen)
        assert "\N{HORIZONTAL ELLIPSIS}" not in screen, command


def test_terminal_obeys_no_record_and_no_name(cli: Cli) -> None:
    cli("topics", "create", "evil")
    cli("produce", "evil", "-D", "|", stdin=f"{EVIL}|second|".encode())
    cli("groups", "reset-offsets", EVIL, "-t", "evil", "--to-earliest")
    consume = ("consume", "evil", "-o", "beginning", "-e")
    assert on_a_terminal(cli.servers, *consume) == "evil\\x1b[2J\\x9b\\n\r\nsecond\r\n"
    assert cli(*consume) == f"{EVIL}\nsecond\n".encode()
    for command in (("groups", "list"), ("groups", "describe", EVIL)):
        screen = on_a_terminal(cli.servers, *command)
        assert "evil\\x1b[2J\\x9b\\n" in screen
        assert "evil\x1b" not in screen
    assert f"{EVIL}\t".encode() in cli("groups", "list")
    first, _ = on_a_terminal(cli.servers, *consume, "--json").splitlines()
    assert first.isascii()
    assert json.loads(first)["value"] == EVIL
    screen = on_a_terminal(cli.servers, "groups", "list", "--json")
    assert screen.isascii()
    assert EVIL in {each["group"] for each in json.loads(screen)}
