"""Secrets are in their files alone: everything that a run writes is searched for them."""

import asyncio
import base64
import gc
import logging
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from confluent_kafka.admin import ScramCredentialInfo as Info
from confluent_kafka.admin import ScramMechanism as RdMechanism
from confluent_kafka.admin import UserScramCredentialUpsertion as Upsertion
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from barnabas.broker.cluster import znodes
from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.security import connect_with
from barnabas.config.broker import AUTHORIZERS
from barnabas.protocol.messages import create_delegation_token
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.security.authority import Authority
from barnabas.security.sasl.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE
from tests.support import zookeeper
from tests.support.command_line import Served, environment, run
from tests.support.data_path import running
from tests.support.ports import free_port
from tests.support.process_texts import texts_of
from tests.support.waiting import until
from tests.support.web_tokens import Issuer

DEADLINE = 20.0
ISSUER = Issuer()
LISTENER = "listener.name.clients."
USERS = ("admin", "scram", "changed")


class Secrets:
    """Random secrets by name, and the search for them."""

    def __init__(self) -> None:
        self._secrets: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> str:
        """Return a secret, which is made at its first use."""
        if name not in self._secrets:
            self._secrets[name] = secrets.token_hex(12).encode()
        return self._secrets[name].decode()

    def add(self, name: str, secret: str) -> str:
        self._secrets[name] = secret.encode()
        return secret

    def found_in(self, content: bytes) -> list[str]:
        """Return the names of the secrets that a content has, also in base64."""
        return [
            name
            for name, secret in self._secrets.items()
            if any(form in content for form in (secret, base64.b64encode(secret)))
        ]


@pytest.fixture
def hidden() -> Secrets:
    return Secrets()


@pytest.fixture
def directory(tmp_path: Path, hidden: Secrets) -> Path:
    """Return a directory with the files of secrets: the only ones that may have them."""
    files = tmp_path / "secret-files"
    files.mkdir()
    authority = Authority.new("ca")
    (files / "ca.pem").write_bytes(authority.pem)
    own = authority.issue("broker", ("localhost", "127.0.0.1"))
    clear, encrypted = files / "clear.pem", files / "broker.pem"
    clear.write_bytes(own)
    hidden.add("private key", "".join(own.decode().split("-----")[2].split())[:40])
    command = ["openssl", "pkcs8", "-topk8", "-in", str(clear), "-passout", "stdin"]
    key = subprocess.run(
        command, input=hidden["key password"].encode(), capture_output=True, check=True
    ).stdout
    encrypted.write_bytes(key + own[own.index(b"-----BEGIN CERT") :])
    (files / "token").write_text(hidden["token of the metrics"])
    return files


def properties(directory: Path, hidden: Secrets, metrics: str) -> dict[str, str]:
    users = " ".join(f'user_{name}="{hidden[f"password of {name}"]}"' for name in USERS)
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "listeners": "CLIENTS://localhost:0",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{LISTENER}plain.sasl.jaas.config": f"{jaas} {users};",
        "sasl.oauthbearer.jwks.endpoint.url": ISSUER.write(directory / "keys.json"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.key.password": hidden["key password"],
        "password.encoder.secret": hidden["secret of the encoder"],
        "delegation.token.secret.key": hidden["secret of delegation tokens"],
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": "User:admin",
        "metrics.listener": metrics,
        "metrics.listener.token.file": str(directory / "token"),
    }


class Clients:
    """Clients that come in, and clients that do not."""

    def __init__(self, servers: str, directory: Path, hidden: Secrets) -> None:
        self.common = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(directory / "ca.pem"),
        }
        self._hidden = hidden

    def settings(self, user: str, mechanism: str, password: str = "") -> dict[str, Any]:
        return self.common | {
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or self._hidden[f"password of {user}"],
        }

    def tries(self, settings: Mapping[str, Any]) -> bool:
        """Return whether a client comes in."""
        consumer = confluent_kafka.Consumer(
            {**settings, "group.id": "g", "logger": _silent(), "log_level": 0}
        )
        try:
            consumer.list_topics(timeout=3)
        except confluent_kafka.KafkaException:
            return False
        finally:
            consumer.close()
        return True

    def by_token(self, token: str) -> dict[str, Any]:
        def give(_: str) -> tuple[str, float]:
            return token, time.time() + 600

        return self.common | {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": give}

    def use_all(self) -> None:
        """Log in by each mechanism, with right and with wrong secrets."""
        self.store_secrets()
        self._log_in()

    def store_secrets(self) -> None:
        """Set passwords of a user and of a key, and create a token, which logs in."""
        hidden = self._hidden
        admin = AdminClient(self.settings("admin", "PLAIN"))
        changes = [
            Upsertion("scram", Info(mechanism, 4096), hidden["password of scram"].encode())
            for mechanism in (RdMechanism.SCRAM_SHA_256, RdMechanism.SCRAM_SHA_512)
        ]
        for change in changes:
            admin.alter_user_scram_credentials([change])["scram"].result(DEADLINE)
        assert alters(admin, "ssl.key.password", hidden["key password"])
        for key in ("ssl.keystore.password", "ssl.keystore.key", "ssl.key.password"):
            assert not alters(admin, key, hidden[f"refused {key}"])
        asyncio.run(self._use_delegation_token())

    async def _use_delegation_token(self) -> None:
        servers = self.common["bootstrap.servers"]
        new = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
        connect = connect_with(self.settings("scram", "SCRAM-SHA-256"))
        async with Cluster(servers, connect=connect) as cluster:
            token = await cluster.ask(create_delegation_token.API, new)
        assert token.error_code == 0
        hmac = self._hidden.add("delegation token", base64.b64encode(token.hmac).decode())
        self._hidden.add("HMAC in hexadecimal", token.hmac.hex())
        account = f'username="{token.token_id}" password="{hmac}" tokenauth="true"'
        keys = {"sasl.mechanism": "SCRAM-SHA-512"}
        keys["sasl.jaas.config"] = f"{SCRAM_LOGIN_MODULE} required {account};"
        async with Cluster(servers, connect=connect_with(self.common | keys)) as cluster:
            await cluster.refresh(())

    def _log_in(self) -> None:
        hidden = self._hidden
        right, wrong = [self.settings("admin", "PLAIN")], []
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            right.append(self.settings("scram", mechanism))
            wrong.append(self.settings("scram", mechanism, hidden[f"wrong for {mechanism}"]))
        wrong.append(self.settings("admin", "PLAIN", hidden["wrong for PLAIN"]))
        wrong.append(self.settings("unknown", "PLAIN", hidden["password of unknown"]))
        right.append(self.by_token(hidden.add("token", ISSUER.token("admin", aud="kafka"))))
        for name, token in {
            "forged token": Issuer().token("admin", aud="kafka"),
            "expired token": ISSUER.token("admin", aud="kafka", lasts_s=-60),
            "token of other audience": ISSUER.token("admin", aud="other"),
        }.items():
            wrong.append(self.by_token(hidden.add(name, token)))
        with ThreadPoolExecutor(len(right) + len(wrong)) as threads:
            came_in = list(threads.map(self.tries, right + wrong))
        assert came_in == [True] * len(right) + [False] * len(wrong)


def alters(admin: AdminClient, key: str, value: str) -> bool:
    """Return whether a broker takes a value."""
    change = ConfigEntry(LISTENER + key, value, incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[change])
    (done,) = admin.incremental_alter_configs([broker]).values()
    return done.exception(DEADLINE) is None


def _silent() -> Any:
    logger = logging.getLogger("silent")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def client_file(directory: Path, clients: Clients, name: str, **changes: str) -> str:
    """Write the settings of the administrator's client, for --command-config."""
    path = directory / f"{name}.properties"
    keys = clients.settings("admin", "PLAIN") | changes
    path.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    return str(path)


def commands(directory: Path, clients: Clients, hidden: Secrets) -> Iterator[bytes]:
    """Run commands that succeed and commands that fail; yield what they print."""
    config = partial(client_file, directory, clients)

    broken = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" '
    broken += f'password="{hidden["password of a broken line"]}'
    files = [
        config("right"),
        config("wrong", **{"sasl.password": hidden["wrong for a command"]}),
        config("broken", **{"sasl.jaas.config": broken}),
        config("key", **{"ssl.keystore.key": hidden["broken key"], "ssl.keystore.type": "PEM",
                         "ssl.keystore.certificate.chain": hidden["broken chain"],
                         "ssl.key.password": hidden["password of a broken key"]}),
    ]  # fmt: skip
    tasks = [
        ("configs", "describe", "broker", "0", "--all", "--json"),
        ("acls", "why", "User:scram", "Read", "Topic:t"),
    ]
    for file in files:
        # Wrong files fail in every command alike.
        for command in (*(tasks if file == files[0] else ()), ("topics", "list")):
            done = run(
                *(*command, "--command-config", file, "--timeout", "2"),
                servers=clients.common["bootstrap.servers"],
                BARNABAS_TRACEBACK="1",
            )
            assert done.returncode == (0 if file == files[0] else 1)
            yield done.stdout + done.stderr


def commands_with_secrets(directory: Path, clients: Clients, hidden: Secrets) -> Iterator[bytes]:
    """Run the commands that take a password or make a token; yield what they print."""
    admin = "--command-config", client_file(directory, clients, "right")

    def done(*words: str, stdin: str = "") -> bytes:
        servers = clients.common["bootstrap.servers"]
        done = run(*words, *admin, servers=servers, stdin=stdin.encode(), BARNABAS_TRACEBACK="1")
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    password = hidden["password of a command's user"]
    yield done("users", "set", "by-command", "--password-file", "-", stdin=password)
    file = directory / "token.properties"
    yield done("tokens", "create", "--output", str(file))
    found = re.search(r'username="(\S+)" password="(\S+)"', file.read_text())
    assert found is not None
    hidden.add("token of a command", found[2])
    yield done("tokens", "describe", "--json")
    yield done("tokens", "renew", found[1])


def verification(config: str, servers: str, history: Path) -> Iterator[tuple[str, bytes]]:
    """Run `barnabas verify eos`; yield what it prints and writes, and what its process shows."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "barnabas", "verify", "eos", "--duration", "1"),
            *("--replication-factor", "1", "--history", str(history)),
            *("--bootstrap-server", servers, "--command-config", config),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        until(lambda: history.exists() and history.stat().st_size, within_s=DEADLINE)
        yield from texts_of(process.pid)
    finally:
        out, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    yield "verify eos", out + errors
    yield "history", history.read_bytes()


def break_key_store(served: Served, directory: Path, log: Path) -> None:
    """Let the broker read key stores that it must refuse, and its own one again."""
    own, clear = directory / "broker.pem", (directory / "clear.pem").read_bytes()
    good = own.read_bytes()
    cut, garbled = clear[: clear.index(b"-----END")], clear.replace(b"\n", b"\n#")
    for text in (cut, garbled, good.replace(b"ENCRYPTED PRIVATE", b"RSA PRIVATE")):
        own.write_bytes(text)
        refused = log.read_text().count("certificate refused")
        served.process.send_signal(signal.SIGHUP)
        until(lambda n=refused: log.read_text().count("certificate refused") > n)  # type: ignore[misc]
    own.write_bytes(good)


def contents(directory: Path) -> Iterator[tuple[str, bytes]]:
    for path in directory.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes()


def endpoint(metrics: str, token: str) -> Iterator[tuple[str, bytes]]:
    headers = {"Authorization": f"Bearer {token}"}
    with urlopen(Request(f"http://{metrics}/metrics", headers=headers), timeout=5) as answer:
        yield "metrics", answer.read()
    for path in ("metrics", "readyz", "syncz", "healthz", "nothing"):
        try:
            with urlopen(f"http://{metrics}/{path}", timeout=5) as answer:
                yield path, answer.read()
        except HTTPError as error:
            yield path, error.read() + str(error.headers).encode()


def test_a_run_writes_no_secret(tmp_path: Path, directory: Path, hidden: Secrets) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    keys = properties(directory, hidden, metrics)
    config = directory / "server.properties"
    config.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    data, log = tmp_path / "data", tmp_path / "log"
    served = Served(
        *("--config", str(config), "-d", str(data), "--log-level", "trace"),
        under=("sh", "-c", f'exec "$0" "$@" 2>{log}'),
    )
    seen: list[tuple[str, bytes]] = []
    try:
        clients = Clients(served.servers, directory, hidden)
        clients.use_all()
        own = client_file(directory, clients, "verify")
        with ThreadPoolExecutor(1) as thread:
            verified = thread.submit(list, verification(own, served.servers, tmp_path / "history"))
            for each in (commands, commands_with_secrets):
                seen += (("command", text) for text in each(directory, clients, hidden))
            seen += verified.result()
        admin = AdminClient(clients.settings("admin", "PLAIN"))
        resource = ConfigResource(ResourceType.BROKER, "0")
        for described in admin.describe_configs([resource]).values():
            entries = described.result(DEADLINE)
            shown = {name: entry.value for name, entry in entries.items()}
            assert shown.keys() >= {"ssl.key.password", LISTENER + "ssl.key.password"}
            seen.append(("DescribeConfigs", repr(shown).encode()))
        seen += endpoint(metrics, hidden["token of the metrics"])
        seen += texts_of(served.process.pid)
        break_key_store(served, directory, log)
    finally:
        code, out, _ = served.stop()
    errors = log.read_text()
    assert code == 0
    seen += [("output", out.encode()), ("log", errors.encode()), *contents(data)]
    # The search looks where clients and configurations were.
    assert errors.count("authentication failed") > 1
    assert any(b"scram" in content for _, content in contents(data))
    assert found_in(seen, hidden) == []


BETWEEN = "listener.name.brokers."


@pytest.mark.skipif(not zookeeper.installed(), reason="needs a ZooKeeper server")
def test_strangers_find_no_secret_in_zookeeper(
    tmp_path: Path, directory: Path, hidden: Secrets
) -> None:
    server, chroot = zookeeper.shared_server(), zookeeper.chroot_of("secrets")
    digest = f"brokers:{hidden['digest']}"
    (directory / "digest").write_text(digest)
    password = hidden["password of broker"]
    account = f'username="broker" password="{password}" user_broker="{password}"'
    keys = properties(directory, hidden, "127.0.0.1:0") | {
        "listeners": "CLIENTS://localhost:0,BROKERS://localhost:0",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{BETWEEN}plain.sasl.jaas.config": f"{PLAIN_LOGIN_MODULE} required {account};",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "super.users": "User:admin;User:broker",
        "zookeeper.connect": server.connect + chroot,
        "zookeeper.digest.file": str(directory / "digest"),
        "zookeeper.set.acl": "true",
    }
    del keys["metrics.listener"], keys["metrics.listener.token.file"]
    config = directory / "server.properties"
    config.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    brokers: list[Served] = []
    try:
        for number in range(2):
            own = ("--set", f"broker.id={number}", "-d", str(tmp_path / str(number)))
            brokers.append(Served("--config", str(config), *own))
        clients = Clients(brokers[0].servers, directory, hidden)
        clients.store_secrets()
        admin = AdminClient(clients.settings("admin", "PLAIN"))
        for done in admin.create_topics([NewTopic("orders", 2, 2)]).values():
            done.result(DEADLINE)
        with (
            server.looking(chroot, auth_data=[("digest", digest)]) as known,
            server.looking(chroot) as stranger,
        ):
            paths = list(zookeeper.every_path(known))
            everything = {path: known.get(path)[0] for path in paths}
            shown = dict(readable(stranger, paths))
    finally:
        stopped = [broker.stop() for broker in brokers]
    secret_paths = everything.keys() - shown.keys()
    assert {re.sub("[^/]{22}$", "ID", path) for path in secret_paths} == {
        *("/config/brokers", "/config/brokers/0", "/config/users", "/config/users/scram"),
        *("/delegation_token/tokens", "/delegation_token/tokens/ID", "/scram_stand_ins"),
    }
    # Not even the secret nodes have passwords in the clear. The hashes in them are secrets too.
    logs = [("log", errors.encode()) for _, _, errors in stopped]
    assert found_in((*everything.items(), *logs), hidden) == []
    for path in ("/config/brokers/0", "/config/users/scram"):
        for key, value in znodes.decode_config(everything[path]).items():
            hidden.add(f"{key} of {path}", value)
    assert len(shown) > 20
    assert found_in((*shown.items(), *logs), hidden) == []


def readable(client: KazooClient, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        with suppress(NoAuthError):
            yield path, client.get(path)[0]


def found_in(seen: Iterable[tuple[str, bytes]], hidden: Secrets) -> list[tuple[str, list[str]]]:
    """Return where secrets are, and their names."""
    return [(where, names) for where, content in seen if (names := hidden.found_in(content))]


def test_a_start_that_fails_writes_no_secret(
    tmp_path: Path, directory: Path, hidden: Secrets
) -> None:
    keys = properties(directory, hidden, "127.0.0.1:0")
    jaas = keys[f"{LISTENER}plain.sasl.jaas.config"]
    wrong = {
        "ssl.key.password": hidden["wrong key password"],
        f"{LISTENER}plain.sasl.jaas.config": jaas[:-1] + f" x{hidden['no value']}",
        "ssl.keystore.key": hidden["key beside a file"],
        "sasl.jaas.config": hidden["no module"],
        "super.users": "alice",
    }
    for key, text in wrong.items():
        config = directory / "server.properties"
        changed = keys | {key: text}
        if key == "sasl.jaas.config":
            del changed[f"{LISTENER}plain.sasl.jaas.config"]
        config.write_text("".join(f"{each}={value}\n" for each, value in changed.items()))
        done = run("serve", "--config", str(config), "-d", str(tmp_path / "data"))
        assert done.returncode == 1, key
        assert hidden.found_in(done.stdout + done.stderr) == [], key


async def test_no_object_of_ours_shows_a_secret(
    tmp_path: Path, directory: Path, hidden: Secrets
) -> None:
    keys = properties(directory, hidden, "127.0.0.1:0")
    async with running(tmp_path / "data", properties=keys) as broker:
        login = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(directory / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": hidden["password of admin"],
        }
        connect = connect_with(login)
        assert connect is not None
        host, port = broker.bootstrap_servers.split(":")
        connection = await connect(lambda: Connection("c"), host, int(port))
        assert shown_by_objects(hidden) == []
        assert connection is not None


def shown_by_objects(hidden: Secrets) -> list[tuple[str, list[str]]]:
    """Return the classes of Barnabas whose instances show secrets."""
    found = []
    for each in gc.get_objects():
        kind = type(each)
        if str(kind.__module__).startswith("barnabas.") and (
            names := hidden.found_in(repr(each).encode())
        ):
            found.append((f"{kind.__module__}.{kind.__name__}", names))
    return found
