"""The JSON answers of `acls`, `quotas`, `users` and `tokens`, held against their schemas."""

import asyncio
import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.security.acl.rules import AclOperation, PatternType, ResourceType
from barnabas.testing import Broker
from tests.support.answers import holds
from tests.support.data_path import running
from tests.support.named_users import KEYS, RULES, login

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({**RULES, "super.users": "User:ANONYMOUS;User:root"}) as broker:
        yield broker.bootstrap_servers


def test_rules_of_every_kind(servers: str) -> None:
    """Everything that a rule can be about is in the schema."""
    for option in ("--topic", "--group", "--transactional-id", "--cluster", "--delegation-token"):
        resource = [option] if option == "--cluster" else [option, "n"]
        added = holds(
            *(servers, "acls", "add", "--force", "--allow-principal", "User:alice"),
            *("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", *resource),
            *(word for each in AclOperation if each > 2 for word in ("--operation", each.label)),
        )
        assert len(added) == 2 * sum(each > 2 for each in AclOperation)
    holds(
        *(servers, "acls", "add", "--allow-principal", "User:carl", "--topic", "p"),
        *("--resource-pattern-type", "prefixed"),
    )
    listed = holds(servers, "acls", "list")
    assert {each["type"] for each in listed} == {
        each.label for each in ResourceType if each not in (0, 1, ResourceType.USER)
    }
    assert {each["pattern"] for each in listed} == {
        PatternType.LITERAL.label,
        PatternType.PREFIXED.label,
    }
    assert {each["permission"] for each in listed} == {"Allow", "Deny"}
    denied = holds(servers, "acls", "why", "User:bob", "Read", "Topic:n", "--host", "10.0.0.1")
    assert (denied["allowed"], denied["reason"]) == (False, "DenyRule")
    assert denied["rule"] in listed
    root = holds(servers, "acls", "why", "User:root", "Read", "Topic:n")
    assert (root["allowed"], root["reason"], root["rule"]) == (True, "SuperUser", None)
    removed = holds(
        *(servers, "acls", "remove", "--principal", "User:alice", "--principal", "User:bob"),
        *("--principal", "User:carl", "--yes"),
    )
    assert len(removed) == len(listed)
    assert holds(servers, "acls", "list") == []


def test_quotas(servers: str) -> None:
    of_all = {"user": "<default>", "client_id": "<default>", "ip": None}
    alice = {"user": "alice", "client_id": None, "ip": None}
    address = {"user": None, "client_id": None, "ip": "10.0.0.1"}
    done = holds(servers, "quotas", "set", "--user", "alice", "request_percentage=12.5")
    assert done == {"entity": alice, "set": {"request_percentage": 12.5}}
    everyone = ("--user-defaults", "--client-defaults")
    done = holds(servers, "quotas", "set", *everyone, "consumer_byte_rate=3")
    assert done == {"entity": of_all, "set": {"consumer_byte_rate": 3}}
    holds(servers, "quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    assert holds(servers, "quotas", "list") == [
        address | {"quota": "connection_creation_rate", "value": 5},
        of_all | {"quota": "consumer_byte_rate", "value": 3},
        alice | {"quota": "request_percentage", "value": 12.5},
    ]
    done = holds(servers, "quotas", "remove", "--user", "alice", "--yes")
    assert done == {"entity": alice, "removed": ["request_percentage"]}
    done = holds(servers, "quotas", "remove", "--user", "alice", "--yes")
    assert done == {"entity": alice, "removed": []}


def test_users(servers: str) -> None:
    done = holds(servers, "users", "set", "alice", "--password-file", "-", stdin=b"secret")
    assert done == {"user": "alice", "set": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    rows = [
        {"user": "alice", "mechanism": each, "iterations": 4096}
        for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    assert holds(servers, "users", "list") == rows
    done = holds(servers, "users", "delete", "alice", "-m", "SCRAM-SHA-256")
    assert done == {"user": "alice", "deleted": ["SCRAM-SHA-256"]}
    assert holds(servers, "users", "list", "alice") == rows[1:]


async def test_tokens(tmp_path: Path) -> None:
    keys = tmp_path / "client.properties"
    keys.write_text("".join(f"{key}={value}\n" for key, value in login("alice").items()))
    async with running(tmp_path / "data", KEYS) as broker:
        await asyncio.to_thread(
            tokens_of, broker.bootstrap_servers, ("--command-config", str(keys))
        )


def tokens_of(servers: str, login: tuple[str, str]) -> None:
    made = holds(servers, "tokens", "create", "--renewer", "User:bob", "--max-hours", "2", *login)
    assert len(b64decode(made.pop("hmac"))) == 64
    assert (made["owner"], made["renewers"]) == ("User:alice", ["User:bob"])
    assert made["latest_end_at_ms"] - made["issued_at_ms"] == 2 * HOUR_MS
    assert made["expires_at_ms"] == made["latest_end_at_ms"]
    assert holds(servers, "tokens", "describe", *login) == [made]
    renewed = holds(servers, "tokens", "renew", made["id"], "--hours", "1", *login)
    assert renewed["id"] == made["id"]
    assert 0 < renewed["expires_at_ms"] - made["issued_at_ms"] < 2 * HOUR_MS
    expired = holds(servers, "tokens", "expire", made["id"], *login)
    assert abs(expired["expires_at_ms"] - time.time() * 1000) < HOUR_MS
