"""`barnabas acls` on Barnabas and on Apache Kafka."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.support.command_line import Cli
from tests.support.kafka.node import Kafka

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
}


@pytest.fixture(
    scope="module",
    params=["barnabas", pytest.param("kafka", marks=pytest.mark.xdist_group("acls-on-kafka"))],
)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "barnabas":
        with Broker(AUTHORIZER) as broker:
            yield broker.bootstrap_servers
    else:
        with Kafka(tmp_path_factory.mktemp("kafka"), properties=AUTHORIZER) as kafka:
            yield kafka.bootstrap_servers


@pytest.fixture(autouse=True)
def no_rules(cli: Cli) -> Iterator[None]:
    yield
    for row in cli.json("acls", "list"):
        cli("acls", "remove", "--principal", row["principal"], "--yes")
    assert cli.json("acls", "list") == []


def rules(rows: list[dict[str, str]]) -> set[tuple[str, ...]]:
    """Return rules without their types."""
    assert all(row["type"] for row in rows)
    return {tuple(value for key, value in row.items() if key != "type") for row in rows}


def test_rules_of_producers_and_consumers(cli: Cli) -> None:
    alice, bob = ("--allow-principal", "User:alice"), ("--allow-principal", "User:bob")
    cli("acls", "add", *alice, "--producer", "--topic", "t", "--transactional-id", "x")
    cli("acls", "add", *bob, "--consumer", "--topic", "t", "--group", "g")
    found = rules(cli.json("acls", "list"))
    allow = ("Allow", "t", "Literal")
    assert found == {
        *(("User:alice", "*", each, *allow) for each in ("Write", "Describe", "Create")),
        *(("User:alice", "*", each, "Allow", "x", "Literal") for each in ("Write", "Describe")),
        *(("User:bob", "*", each, *allow) for each in ("Read", "Describe")),
        ("User:bob", "*", "Read", "Allow", "g", "Literal"),
    }
    of_topic = rules(cli.json("acls", "list", "--topic", "t", "--principal", "User:bob"))
    assert of_topic == {("User:bob", "*", each, *allow) for each in ("Read", "Describe")}
    cli("acls", "remove", *bob, "--consumer", "--topic", "t", "--group", "g", "--yes")
    assert {row["principal"] for row in cli.json("acls", "list")} == {"User:alice"}


def test_prefixes_and_hosts(cli: Cli) -> None:
    cli(
        *("acls", "add", "--deny-principal", "User:carl", "--deny-host", "10.0.0.1"),
        *("--deny-host", "10.0.0.2", "--operation", "Read", "--operation", "write"),
        *("--topic", "pay", "--resource-pattern-type", "prefixed"),
    )
    expected = {
        ("User:carl", host, operation, "Deny", "pay", "Prefixed")
        for host in ("10.0.0.1", "10.0.0.2")
        for operation in ("Read", "Write")
    }
    assert rules(cli.json("acls", "list", "--topic", "payments")) == expected
    literal = ("--resource-pattern-type", "literal")
    assert cli.json("acls", "list", "--topic", "payments", *literal) == []
    removed = cli.json(
        *("acls", "remove", "--deny-principal", "User:carl", "--deny-host", "10.0.0.1"),
        *("--operation", "Read", "--topic", "pay", "--resource-pattern-type", "prefixed", "--yes"),
    )
    assert rules(removed) == {("User:carl", "10.0.0.1", "Read", "Deny", "pay", "Prefixed")}
    assert rules(cli.json("acls", "list")) == expected - rules(removed)


def test_why_names_the_rule_that_decides(cli: Cli) -> None:
    cli("acls", "add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t")
    cli(
        *("acls", "add", "--deny-principal", "User:*", "--deny-host", "10.0.0.9"),
        *("--topic", "*", "--operation", "All"),
    )

    def why(*arguments: str) -> tuple[Any, ...]:
        found = cli.json("acls", "why", *arguments)
        rule = found["rule"]
        return found["allowed"], found["reason"], rule and (rule["principal"], rule["name"])

    alice = ("User:alice", "t")
    assert why("User:alice", "Read", "Topic:t") == (True, "AllowRule", alice)
    assert why("User:alice", "describe", "topic:t") == (True, "AllowRule", alice)
    assert why("User:alice", "Write", "Topic:t") == (False, "DefaultDeny", None)
    denied = (False, "DenyRule", ("User:*", "*"))
    assert why("User:alice", "Read", "Topic:t", "--host", "10.0.0.9") == denied
    text = cli("acls", "why", "User:alice", "Read", "Topic:t").decode()
    assert text == "Allowed: ALLOW READ for User:alice from host * on LITERAL TOPIC t\n"
    none = cli("acls", "why", "User:bob", "ClusterAction", "Cluster").decode()
    root = cli("acls", "why", "User:root", "ClusterAction", "cluster").decode()
    if "the broker does not show" in none:
        # Kafka hides super.users, and the command says so.
        assert root == none
        return
    assert none == "Denied: none of the 0 rules of the resource allows it\n"
    assert root == "Allowed: User:root is a super user (super.users)\n"


def test_why_knows_allow_everyone(cli: Cli) -> None:
    keys = AUTHORIZER | {"allow.everyone.if.no.acl.found": "true"}
    with Broker(keys) as broker:
        cli = cli.at(broker.bootstrap_servers)
        found = cli.json("acls", "why", "User:bob", "Read", "Topic:free")
        assert (found["allowed"], found["reason"]) == (True, "DefaultAllow")


def test_removal_asks_and_shows_what_it_would_remove(cli: Cli) -> None:
    cli("acls", "add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t")
    code, _, errors = cli.run("acls", "remove", "--topic", "t", stdin=b"n\n")
    assert code == 130
    assert b"ALLOW READ for User:alice from host * on LITERAL TOPIC t" in errors
    assert b"Remove 1 rule(s)?" in errors
    assert len(cli.json("acls", "list")) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("add --topic t", "give --allow-principal or --deny-principal"),
        ("add --allow-principal alice --topic t", "did you mean User:alice?"),
        ("add --allow-principal User:a --producer --group g", "--producer needs --topic"),
        ("add --allow-principal User:a --consumer --topic t", "--consumer needs --topic and"),
        ("add --allow-principal User:a --producer --topic t --group g", "no rules of a group"),
        (
            "add --allow-principal User:a --operation Wrte --topic t",
            "'Wrte' is not one of All, Read",
        ),
        ("add --allow-principal User:a --operation Write --group g", "only supports operations"),
        ("add --allow-principal User:a --deny-host h --topic t", "--deny-host needs --deny-p"),
        ("add --allow-principal User:a --idempotent --topic t", "--idempotent needs --producer"),
        ("remove --yes", "name a resource or a principal"),
        ("remove --yes --allow-host h --topic t", "--allow-host needs --allow-principal"),
        ("why alice Read Topic:t", "did you mean User:alice?"),
        ("why User:a Read t", "'t' is not one of Topic, Group"),
        ("why User:a Read Topic", "'Topic' is not TYPE:NAME"),
        ("why User:a All Topic:t", "'All' is not one of Read"),
    ],
)
def test_wrong_arguments_are_told(cli: Cli, arguments: str, line: str) -> None:
    code, _, errors = cli.run("acls", *arguments.split())
    assert code == 2
    assert line in errors.decode()


def test_a_broker_without_an_authorizer_is_told(cli: Cli, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        code, _, errors = cli.at(broker.bootstrap_servers).run("acls", "list")
    assert (code, errors) == (
        1,
        b"barnabas: SECURITY_DISABLED: No Authorizer is configured. (set authorizer.class.name on "
        b"the brokers)\n",
    )
