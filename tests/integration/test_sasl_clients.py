"""Foreign clients over SASL: each mechanism on a plain listener and on one with TLS."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiokafka.abc
import confluent_kafka
import kafka.errors
import kafka.net.sasl.oauth
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from kafka import KafkaConsumer, KafkaProducer

from barnabas.broker.app import Broker
from barnabas.security.sasl.credentials import ScramCredential, ScramMechanism
from tests.support.certificates import Stores
from tests.support.data_path import running
from tests.support.web_tokens import Issuer

VALUES = [bytes([number]) * 100 for number in range(20)]
PASSWORD = "alice-secret"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_alice="{PASSWORD}" user_bob="bob-secret";'
)
ISSUER = Issuer()
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


@pytest.fixture
async def broker(tmp_path: Path, stores: Stores) -> AsyncIterator[Broker]:
    keys = {
        "listeners": ",".join(f"{name}://localhost:0" for name in LISTENERS),
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.jaas.config": JAAS,
        "sasl.oauthbearer.jwks.endpoint.url": ISSUER.write(tmp_path / "keys.json"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "ssl.client.auth": "required",
        **stores.identity(),
        **stores.trust(),
    }
    async with running(tmp_path / "log", properties=keys) as running_broker:
        await add_users(running_broker)
        yield running_broker


async def add_users(broker: Broker) -> None:
    assert broker._core is not None
    for mechanism in ScramMechanism:
        password = PASSWORD.encode()
        credential = ScramCredential.of_password(mechanism, password, b"salt", 4096)
        await broker._core.scram_users.put("alice", credential)


class KafkaPythonTokens(kafka.net.sasl.oauth.AbstractTokenProvider):
    token_of: Callable[[], str]

    def token(self) -> str:
        return self.token_of()


class AiokafkaTokens(aiokafka.abc.AbstractTokenProvider):
    token_of: Callable[[], str]

    async def token(self) -> str:
        return self.token_of()


class Login:
    """The way of one client into the broker."""

    def __init__(self, broker: Broker, stores: Stores, listener: str, mechanism: str) -> None:
        self.servers = f"localhost:{broker.ports[listener]}"
        self.listener = listener
        self.mechanism = mechanism
        self.ca = stores.trust()["ssl.truststore.location"]
        self.context = ssl.create_default_context(cadata=stores.authority.pem)
        self.user, self.password = "alice", PASSWORD

    @property
    def token(self) -> str:
        """A token, for the password that belongs to a user."""
        issuer = ISSUER if self.password == PASSWORD else Issuer()
        return issuer.token(self.user, aud="kafka")

    def kafka_python(self) -> dict[str, Any]:
        provider = KafkaPythonTokens()
        provider.token_of = lambda: self.token
        return self._python() | {"ssl_cafile": self.ca, "sasl_oauth_token_provider": provider}

    def aiokafka(self) -> dict[str, Any]:
        provider = AiokafkaTokens()
        provider.token_of = lambda: self.token
        return self._python() | {
            "ssl_context": self.context,
            "sasl_oauth_token_provider": provider,
        }

    def _python(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.servers,
            "security_protocol": self.listener,
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def librdkafka(self) -> dict[str, Any]:
        oauth: dict[str, Any] = {}
        if self.mechanism == "OAUTHBEARER":
            oauth["oauth_cb"] = lambda _: (self.token, time.time() + 600)
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": self.listener,
            "ssl.ca.location": self.ca,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
        } | oauth


@pytest.fixture(params=[f"{a} {b}" for a in LISTENERS for b in MECHANISMS])
def login(request: pytest.FixtureRequest, broker: Broker, stores: Stores) -> Login:
    return Login(broker, stores, *request.param.split())


def principals(broker: Broker) -> set[str]:
    return {
        str(each.principal)
        for listener in broker._listeners.values()
        for each in listener._connections
    }


async def test_librdkafka_produces_and_consumes(broker: Broker, login: Login) -> None:
    found = await asyncio.to_thread(_use_librdkafka, broker, login)
    assert found == VALUES


def _use_librdkafka(broker: Broker, login: Login) -> list[bytes | None]:
    producer = confluent_kafka.Producer(login.librdkafka())
    for value in VALUES:
        producer.produce("orders", value, partition=0)
    assert producer.flush(30) == 0
    assert principals(broker) == {"User:alice"}
    consumer = confluent_kafka.Consumer(
        login.librdkafka() | {"group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    messages: list[Any] = []
    while len(messages) < len(VALUES):
        messages += consumer.consume(len(VALUES), 30)
    consumer.close()
    return [message.value() for message in messages]


async def test_librdkafka_with_a_wrong_password_is_told(broker: Broker, login: Login) -> None:
    login.password = "wrong"
    told: list[Any] = []
    producer = confluent_kafka.Producer(login.librdkafka() | {"error_cb": told.append})
    while not any(each.code() == confluent_kafka.KafkaError._AUTHENTICATION for each in told):
        await asyncio.to_thread(producer.poll, 0.1)
    assert "User:alice" not in principals(broker)


async def test_kafka_python_produces_and_consumes(login: Login) -> None:
    assert await asyncio.to_thread(_use_kafka_python, login) == VALUES


def _use_kafka_python(login: Login) -> list[bytes]:
    common = login.kafka_python()
    producer = KafkaProducer(**common)
    for value in VALUES:
        producer.send("orders", value, partition=0)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer("orders", auto_offset_reset="earliest", group_id=None, **common)
    found = [message.value for _, message in zip(VALUES, consumer, strict=False)]
    consumer.close()
    return found


async def test_kafka_python_with_a_wrong_password_is_refused(broker: Broker, login: Login) -> None:
    login.password = "wrong"
    with pytest.raises(kafka.errors.KafkaError, match="Unable to bootstrap"):
        await asyncio.to_thread(KafkaProducer, **login.kafka_python(), bootstrap_timeout_ms=500)
    assert broker._metrics.requests.authentication.failed.cell(login.listener).value > 0
    assert "User:alice" not in principals(broker)


async def test_aiokafka_produces_and_consumes(login: Login) -> None:
    common = login.aiokafka()
    async with AIOKafkaProducer(**common) as producer:
        for value in VALUES:
            await producer.send_and_wait("orders", value, partition=0)
    async with AIOKafkaConsumer("orders", auto_offset_reset="earliest", **common) as consumer:
        found = [(await consumer.getone()).value for _ in VALUES]
    assert found == VALUES


async def test_aiokafka_with_a_wrong_password_is_told(login: Login) -> None:
    login.password = "wrong"
    producer = AIOKafkaProducer(**login.aiokafka())
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    with suppress(Exception):
        await producer.stop()
