"""`barnabas quotas` on Barnabas and on Apache Kafka."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.command_line import Cli

ALICE = {"user": "alice"}


def entities(cli: Cli, *options: str) -> list[dict[str, Any]]:
    """Return the quotas without the parts that their entities lack."""
    rows: list[dict[str, Any]] = cli.json("quotas", "list", *options)
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


@pytest.fixture(autouse=True)
def no_quotas(cli: Cli) -> Iterator[None]:
    yield
    options = {"user": "--user", "client_id": "--client", "ip": "--ip"}
    for row in entities(cli):
        named = [
            word
            for kind, option in options.items()
            if kind in row
            for word in (
                [f"{option}-defaults"] if row[kind] == "<default>" else [option, row[kind]]
            )
        ]
        cli("quotas", "remove", *named, row["quota"], "--yes")
    assert entities(cli) == []


def test_quotas_of_every_kind_of_entity(cli: Cli) -> None:
    cli("quotas", "set", "--user", "alice", "producer_byte_rate=1024", "request_percentage=12.5")
    cli("quotas", "set", "--user", "alice", "--client", "app 1/ä", "consumer_byte_rate=2e3")
    cli("quotas", "set", "--user-defaults", "--client-defaults", "consumer_byte_rate=3")
    cli("quotas", "set", "--client-defaults", "controller_mutation_rate=4")
    cli("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    cli("quotas", "set", "--ip-defaults", "connection_creation_rate=6")
    both = ALICE | {"client_id": "app 1/ä", "quota": "consumer_byte_rate", "value": 2000}
    alice = [
        ALICE | {"quota": "producer_byte_rate", "value": 1024},
        ALICE | {"quota": "request_percentage", "value": 12.5},
    ]
    every = [
        {"ip": "10.0.0.1", "quota": "connection_creation_rate", "value": 5},
        {"ip": "<default>", "quota": "connection_creation_rate", "value": 6},
        {"client_id": "<default>", "quota": "controller_mutation_rate", "value": 4},
        {
            "user": "<default>",
            "client_id": "<default>",
            "quota": "consumer_byte_rate",
            "value": 3,
        },
        *alice,
        both,
    ]
    assert entities(cli) == every
    assert entities(cli, "--user", "alice") == [*alice, both]
    assert entities(cli, "--user", "alice", "--strict") == alice
    assert entities(cli, "--client", "app 1/ä") == [both]
    assert entities(cli, "--ip-defaults") == [every[1]]
    assert entities(cli, "--user", "bob") == []
    printed = cli("quotas", "list", "--user", "alice", "--client", "app 1/ä").decode()
    assert printed == (
        "user\tclient_id\tip\tquota\tvalue\nalice\tapp 1/ä\t-\tconsumer_byte_rate\t2000\n"
    )


def test_quotas_are_changed_and_removed(cli: Cli) -> None:
    said = cli("quotas", "set", "--user", "alice", "producer_byte_rate=1", "consumer_byte_rate=2")
    assert said == b"Set quotas of user alice.\n"
    cli("quotas", "set", "--user", "alice", "producer_byte_rate=3")
    cli("quotas", "set", "--user", "alice", "--client", "x", "producer_byte_rate=4")
    said = cli("quotas", "remove", "--user", "alice", "consumer_byte_rate", "--yes")
    assert said == b"Removed consumer_byte_rate of user alice.\n"
    assert [row["value"] for row in entities(cli)] == [3, 4]
    code, _, errors = cli.run("quotas", "remove", "--user", "alice", stdin=b"n\n")
    assert (code, len(entities(cli))) == (130, 2)
    assert b"Remove producer_byte_rate of user alice?" in errors
    removed = cli.json("quotas", "remove", "--user", "alice", "--yes")
    entity = ALICE | {"client_id": None, "ip": None}
    assert removed == {"entity": entity, "removed": ["producer_byte_rate"]}
    assert [row["value"] for row in entities(cli)] == [4]
    assert cli("quotas", "remove", "--user", "alice", "--yes") == b"Nothing to remove.\n"
    code, _, errors = cli.run("quotas", "remove", "--user", "alice", "request_percentage", "--yes")
    assert (code, errors) == (1, b"barnabas: user alice has no quota request_percentage\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("set --user alice producer_byte_rat=1", "Invalid configuration key producer_byte_rat"),
        ("set --user alice connection_creation_rate=1", "connection_creation_rate"),
        ("set --ip 10.0.0.1 producer_byte_rate=1", "producer_byte_rate"),
        ("set --user alice producer_byte_rate=1.5", "producer_byte_rate"),
        ("set --ip not-an-address connection_creation_rate=1", "not-an-address"),
    ],
)
def test_what_a_broker_refuses_changes_nothing(cli: Cli, arguments: str, line: str) -> None:
    code, out, errors = cli.run("quotas", *arguments.split())
    assert (code, out) == (1, b"")
    assert errors.startswith(b"barnabas: INVALID_REQUEST: ")
    assert line in errors.decode()
    assert entities(cli) == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("set producer_byte_rate=1", "give one of --user, --user-defaults, --client"),
        ("set --user a", "Missing argument 'QUOTA=VALUE...'"),
        ("set --user a producer_byte_rate", "'producer_byte_rate' is not KEY=VALUE"),
        ("set --user a producer_byte_rate=fast", "producer_byte_rate=fast is not a number"),
        ("set --user a producer_byte_rate=0", "producer_byte_rate=0 is not a number greater"),
        ("set --user a producer_byte_rate=inf", "producer_byte_rate=inf is not a number"),
        ("set --user a producer_byte_rate=nan", "producer_byte_rate=nan is not a number"),
        ("set --user a --user-defaults x=1", "--user and --user-defaults exclude each other"),
        ("set --user= x=1", "--user needs a name (--user-defaults: all others)"),
        ("set --user a --ip 10.0.0.1 x=1", "give --ip alone"),
        ("remove --yes", "give one of --user"),
    ],
)
def test_wrong_arguments_are_told(cli: Cli, arguments: str, line: str) -> None:
    code, _, errors = cli.run("quotas", *arguments.split())
    assert code == 2
    assert line in errors.decode()
