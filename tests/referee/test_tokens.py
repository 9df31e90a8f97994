"""The requests for delegation tokens, by clients with a name, to Apache Kafka and to Barnabas."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.security.sasl.credentials import token_hmac
from barnabas.testing.broker import Broker
from tests.referee.brokers import KAFKAS, OURS, Address
from tests.referee.compare import unwanted
from tests.referee.scenario import Peer, Scenario
from tests.referee.scenarios import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from tests.support.kafka.node import Kafka
from tests.support.kafka.tools import DELEGATION_TOKENS, TOPICS, Tools
from tests.support.raw import Connection
from tests.support.waiting import until

SCENARIOS = [
    scenario
    for module in (
        create_delegation_token,
        renew_delegation_token,
        expire_delegation_token,
        describe_delegation_token,
    )
    for scenario in module.scenario
]
_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="kafka" password="k" user_kafka="k" user_alice="alice" user_bob="bob";'
)
TOKENS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "delegation.token.secret.key": "a secret of all brokers",
    "delegation.token.max.lifetime.ms": str(7 * create_delegation_token.DAY_MS),
}

pytestmark = pytest.mark.xdist_group("referee")


class Named(Peer):
    """A peer whose connections log in: `main` as alice, each other one as the user of its name."""

    def _connection(self, on: str) -> Connection:
        if on not in self._connections:
            user = "bob" if on == create_delegation_token.OTHER else "alice"
            self._connections[on] = log_in(*self._address, user)
        return self._connections[on]


def log_in(host: str, port: int, user: str) -> Connection:
    """Return a connection of a user, whose password is the name."""
    connection = Connection(host, port, client_id=user, timeout_s=20)
    connection.post(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert connection.take().error_code == 0
    connection.post(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode()), 2)
    answer = connection.take()
    assert answer.error_code == 0, answer
    return connection


def _kafka(directory: Path, **more: str) -> Kafka:
    return Kafka(
        directory,
        properties=KAFKAS
        | {
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.plaintext.plain.sasl.jaas.config": _USERS,
            **{
                f"listener.name.plaintext.scram-sha-{bits}.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                )
                for bits in (256, 512)
            },
        }
        | TOKENS
        | more,
    )


def _barnabas(**more: str) -> Broker:
    return Broker(
        OURS
        | {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _USERS,
        }
        | TOKENS
        | more
    )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with _kafka(tmp_path_factory.mktemp("kafka")) as node:
        yield Address("127.0.0.1", node.port)


@pytest.fixture(scope="module")
def barnabas() -> Iterator[Address]:
    with _barnabas() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        yield Address(host, int(port))


def play(scenario: Scenario, broker: Address) -> Peer:
    with Named(*broker, scenario.api, scenario.version, scenario.slug) as peer:
        scenario.play(peer)
    return peer


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_barnabas_answers_as_kafka(scenario: Scenario, kafka: Address, barnabas: Address) -> None:
    theirs, ours = play(scenario, kafka), play(scenario, barnabas)
    transcripts = theirs.transcript, ours.transcript
    assert not (wrong := list(unwanted(scenario.title, scenario.version, *transcripts))), wrong


def test_brokers_make_the_same_hmac_of_an_id(kafka: Address, barnabas: Address) -> None:
    for broker in (kafka, barnabas):
        with log_in(*broker, "alice") as connection:
            connection.post(create_delegation_token.creation(), 3)
            token = connection.take()
        secret = TOKENS["delegation.token.secret.key"]
        assert token.hmac == token_hmac(token.token_id, secret)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("broker", ["kafka", "barnabas"])
def test_kafkas_tools_make_tokens_and_log_in_with_them(
    broker: str, mechanism: str, tools: Tools, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    host, port = request.getfixturevalue(broker)
    ours = tools.at(f"{host}:{port}")

    def config(name: str, mechanism: str, module: str, account: str) -> tuple[str, str]:
        file = tmp_path / name
        jaas = f"org.apache.kafka.common.security.{module} required {account};"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={jaas}\n"
        )
        return "--command-config", str(file)

    account = 'username="alice" password="alice"'
    alice = config("alice", "PLAIN", "plain.PlainLoginModule", account)

    def of_tokens(*arguments: str) -> str:
        return ours(DELEGATION_TOKENS, *alice, *arguments)

    made = of_tokens(
        *("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    )
    found = re.search(r"^(\S{22})\s+(\S{88})\s+User:alice\s+User:alice\s+\[User:bob\]", made, re.M)
    assert found is not None, made
    token, hmac = found.groups()
    until(lambda: token in of_tokens("--describe", "--owner-principal", "User:alice"))
    account = f'username="{token}" password="{hmac}" tokenauth="true"'
    by_token = config("token", mechanism, "scram.ScramLoginModule", account)
    topic = f"by-token-{mechanism.lower()}"
    ours(TOPICS, *by_token, "--create", "--topic", topic)
    until(lambda: topic in ours(TOPICS, *by_token, "--list"))
    assert "Completed renew" in of_tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed expire" in of_tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    until(lambda: token not in of_tokens("--describe", "--owner-principal", "User:alice"))
    refused = tools.run(TOPICS, "--bootstrap-server", f"{host}:{port}", *by_token, "--list")
    assert refused.code != 0
    assert "SaslAuthenticationException" in refused.errors + refused.text
