"""`barnabas users` and `barnabas tokens`."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.security import connect_with
from barnabas.config.properties import parse_properties
from barnabas.security.sasl.credentials import ScramMechanism
from tests.support.command_line import run
from tests.support.data_path import running
from tests.support.named_users import KEYS, RULES, login

PASSWORD = "p@ss, w=rd \N{SNOWMAN}"
Run = Callable[..., Any]


async def command(*words: str, servers: str = "", password: str = "") -> tuple[int, str, str]:
    done: subprocess.CompletedProcess[bytes] = await asyncio.to_thread(
        run, *words, servers=servers, stdin=password.encode()
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def scram(user: str, password: str, mechanism: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def config(path: Path, keys: dict[str, str]) -> tuple[str, str]:
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return "--command-config", str(path)


async def test_first_user_exists_before_the_broker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    offline = ("users", "--data", str(data))
    code, text, errors = await command(
        *offline, "set", "admin", "--password-file", "-", password=f"{PASSWORD}\n"
    )
    assert code == 0, errors
    assert PASSWORD not in text + errors
    code, text, _ = await command(*offline, "list", "--json")
    assert json.loads(text) == [
        {"user": "admin", "mechanism": each.value, "iterations": 4096} for each in ScramMechanism
    ]
    async with running(data, KEYS | RULES) as broker:
        for each in ScramMechanism:
            connect = connect_with(scram("admin", PASSWORD, each.value))
            async with Cluster(broker.bootstrap_servers, connect=connect):
                pass
        own = config(tmp_path / "admin", login("admin"))
        at = broker.bootstrap_servers
        # The broker has the directory now.
        code, _, errors = await command(*offline, "list")
        assert (code, "in use" in errors) == (1, True)
        code, _, errors = await command(
            *("users", "set", "bob", "-m", "SCRAM-SHA-256", "--iterations", "8192"),
            *("--password-file", "-", *own),
            servers=at,
            password="one",
        )
        assert code == 0, errors
        _, text, _ = await command("users", "list", "bob", "--json", *own, servers=at)
        row = {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 8192}
        assert json.loads(text) == [row]
        async with Cluster(at, connect=connect_with(scram("bob", "one", "SCRAM-SHA-256"))):
            pass
        assert (await command("users", "delete", "bob", *own, servers=at))[0] == 0
        code, _, errors = await command("users", "delete", "bob", *own, servers=at)
        assert (code, errors) == (1, "barnabas: no such user: bob\n")
        code, _, errors = await command("users", "list", "bob", *own, servers=at)
        assert (code, errors) == (1, "barnabas: no such user: bob\n")
    assert (await command(*offline, "delete", "admin", "-m", "SCRAM-SHA-512"))[0] == 0
    _, text, _ = await command(*offline, "list", "--json")
    assert [each["mechanism"] for each in json.loads(text)] == ["SCRAM-SHA-256"]


async def test_password_is_neither_empty_nor_an_argument(tmp_path: Path) -> None:
    offline = ("users", "--data", str(tmp_path / "data"))
    code, _, errors = await command(*offline, "set", "admin", "--password-file", "-")
    assert (code, errors) == (1, "barnabas: the password is empty\n")
    assert (await command(*offline, "set", "admin", "secret"))[0] == 2
    assert (await command(*offline, "set", "admin", "--iterations", "4095"))[0] == 2


async def test_token_is_created_renewed_shown_and_expired(tmp_path: Path) -> None:
    async with running(tmp_path / "data", KEYS) as broker:
        at = broker.bootstrap_servers
        alice = config(tmp_path / "alice", login("alice"))
        bob = config(tmp_path / "bob", login("bob"))
        output = tmp_path / "token.properties"

        async def rows(*words: str) -> Any:
            code, text, errors = await command("tokens", *words, "--json", servers=at)
            assert code == 0, errors
            return json.loads(text)

        made = await rows(
            *("create", "--renewer", "User:bob", "--max-hours", "5", *alice),
            *("--output", str(output)),
        )
        assert made["owner"] == made["requester"] == "User:alice"
        assert made["renewers"] == ["User:bob"]
        assert output.stat().st_mode & 0o777 == 0o600
        keys = {"security.protocol": "SASL_PLAINTEXT"} | parse_properties(output.read_text())
        async with Cluster(at, connect=connect_with(keys)):
            pass
        token = made["id"]
        renewed = await rows("renew", token, "--hours", "2", *bob)
        assert renewed["expires_at_ms"] < made["expires_at_ms"] == made["latest_end_at_ms"]
        (shown,) = await rows("describe", "--owner", "User:alice", *bob)
        assert made.pop("hmac") is None
        assert shown == made | {"expires_at_ms": renewed["expires_at_ms"]}
        other = await rows("create", *alice)
        assert len(other["hmac"]) == 88
        await rows("expire", token, *bob)
        assert [each["id"] for each in await rows("describe", *alice)] == [other["id"]]
        code, _, errors = await command("tokens", "renew", token, *alice, servers=at)
        assert (code, "no such token" in errors) == (1, True)
        code, _, errors = await command("tokens", "create", "--owner", "bob", *alice, servers=at)
        assert (code, "did you mean User:bob?" in errors) == (2, True)
