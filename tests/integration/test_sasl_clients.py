"""Foreign clients over SASL: each mechanism on a plain listener and on one with TLS.

Java and franz-go run in one process each, all logins at once, and go in by a certificate too.
"""

import asyncio
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
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
from barnabas.security.sasl.jaas import (
    OAUTHBEARER_LOGIN_MODULE,
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
)
from tests.integration.interop import franz_go
from tests.support.certificates import Issued, Stores
from tests.support.data_path import running
from tests.support.kafka import jvm
from tests.support.kafka.resident import Resident
from tests.support.web_tokens import Issuer

VALUES = [bytes([number]) * 100 for number in range(20)]
PASSWORD = "alice-secret"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_alice="{PASSWORD}" user_bob="bob-secret";'
)
JAVA_TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ISSUER = Issuer()
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


@asynccontextmanager
async def secured(tmp_path: Path, stores: Stores, **own: str) -> AsyncIterator[Broker]:
    keys = {
        "listeners": ",".join(f"{name}://localhost:0" for name in (*LISTENERS, "SSL")),
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.jaas.config": JAAS,
        "sasl.oauthbearer.jwks.endpoint.url": ISSUER.write(tmp_path / "keys.json"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "ssl.client.auth": "required",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **stores.identity(),
        **stores.trust(),
        **own,
    }
    async with running(tmp_path / "log", properties=keys) as running_broker:
        await add_users(running_broker)
        yield running_broker


@pytest.fixture
async def broker(tmp_path: Path, stores: Stores) -> AsyncIterator[Broker]:
    async with secured(tmp_path, stores) as running_broker:
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

    def java(self, issued: Issued) -> dict[str, str]:
        module, options = {
            "PLAIN": (PLAIN_LOGIN_MODULE, f'username="{self.user}" password="{self.password}"'),
            "OAUTHBEARER": (OAUTHBEARER_LOGIN_MODULE, ""),
        }.get(
            self.mechanism,
            (SCRAM_LOGIN_MODULE, f'username="{self.user}" password="{self.password}"'),
        )
        return {
            "security.protocol": self.listener,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": issued.key_pem(),
            "ssl.keystore.certificate.chain": issued.chain_pem,
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": f"{module} required {options};",
        }

    def franz(self, issued: Issued) -> dict[str, str]:
        return {
            "protocol": self.listener,
            "mechanism": self.mechanism,
            "user": self.user,
            "password": self.password,
            "token": self.token,
            "authority": Path(self.ca).read_text(),
            "certificate": issued.chain_pem,
            "key": issued.key_pem(),
        }


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


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    with jvm.start(tmp_path_factory.mktemp("java") / "errors") as process:
        yield process


@pytest.fixture(scope="module")
def franz(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    if (reason := franz_go.why_not()) is not None:
        pytest.skip(reason)
    program = [str(franz_go.program()), "exchange"]
    with Resident(program, tmp_path_factory.mktemp("franz") / "errors") as process:
        yield process


class Exchanges:
    """Clients of another language, one for each login; each has a topic of its own."""

    def __init__(self, stores: Stores, logins: list[Login]) -> None:
        self._stores = stores
        self._issued = stores.authority.issue("alice", hosts=())
        self._logins = {f"{each.listener}-{each.mechanism}": each for each in logins}

    async def by_java(self, process: Resident, count: int, seconds: int) -> dict[str, list[str]]:
        url = Path(self._stores.write("token", next(iter(self._logins.values())).token)).as_uri()
        clients = []
        for topic, login in self._logins.items():
            options = login.java(self._issued)
            if login.mechanism == "OAUTHBEARER":
                options["sasl.oauthbearer.token.endpoint.url"] = url
                options["sasl.login.callback.handler.class"] = JAVA_TOKENS
            clients.append({"servers": login.servers, "topic": topic, "options": options})
        return await self._call(process, clients, count, seconds, token_url=url)

    async def by_franz(self, process: Resident, count: int, seconds: int) -> dict[str, list[str]]:
        clients = [
            {"servers": login.servers, "topic": topic, **login.franz(self._issued)}
            for topic, login in self._logins.items()
        ]
        return await self._call(process, clients, count, seconds)

    async def _call(
        self, process: Resident, clients: list[Any], count: int, seconds: int, **more: str
    ) -> dict[str, list[str]]:
        def call() -> list[list[str]]:
            read: list[list[str]] = process.call(
                "exchange", clients=clients, count=count, seconds=seconds, **more
            )
            return read

        return dict(zip(self._logins, await asyncio.to_thread(call), strict=True))


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@pytest.fixture
def exchanges(broker: Broker, stores: Stores) -> Exchanges:
    ways = [(listener, each) for listener in LISTENERS for each in MECHANISMS]
    return Exchanges(
        stores, [Login(broker, stores, *way) for way in (*ways, ("SSL", "certificate"))]
    )


@pytest.mark.xdist_group("sasl-java")
async def test_java_transacts_by_each_mechanism(java: Resident, exchanges: Exchanges) -> None:
    found = await exchanges.by_java(java, 3, 0)
    assert found == dict.fromkeys(found, numbers(3))


async def test_franz_go_transacts_by_each_mechanism(franz: Resident, exchanges: Exchanges) -> None:
    found = await exchanges.by_franz(franz, 3, 0)
    assert found == dict.fromkeys(found, numbers(3))


# -- sessions that end while a client works (KIP-368) ------------------------------------------


SESSION_MS = 2500
"""Java renews a session after 85 to 95 % of its life, franz-go 1 s before its end.

Brokers refuse a second renewal within 1 s, as Kafka does.
"""
SECONDS = 3
"""The time for which clients work after their first record."""


@pytest.fixture
async def short(tmp_path: Path, stores: Stores) -> AsyncIterator[Broker]:
    own = {"connections.max.reauth.ms": str(SESSION_MS)}
    async with secured(tmp_path, stores, **own) as running_broker:
        yield running_broker


def logins(broker: Broker, stores: Stores) -> list[Login]:
    return [Login(broker, stores, "SASL_SSL", each) for each in MECHANISMS]


def judge_sessions(broker: Broker, *, renewed: bool) -> None:
    """Check that clients renewed their sessions on open connections, or came again instead."""
    known = broker._metrics.requests
    assert known.authentication.failed.cell("SASL_SSL").value == 0
    assert known.authentication.failed_again.cell("SASL_SSL").value == 0
    again = known.authentication.succeeded_again.cell("SASL_SSL").value
    expired = known.connections_expired.cell().value
    assert again > 0 if renewed else (again == 0 and expired > 0)


@pytest.mark.xdist_group("sasl-java")
async def test_java_outlives_its_sessions(short: Broker, stores: Stores, java: Resident) -> None:
    found = await Exchanges(stores, logins(short, stores)).by_java(java, 1, SECONDS)
    assert found == {each: numbers(len(read)) for each, read in found.items()}
    judge_sessions(short, renewed=True)


async def test_franz_go_outlives_its_sessions(
    short: Broker, stores: Stores, franz: Resident
) -> None:
    found = await Exchanges(stores, logins(short, stores)).by_franz(franz, 1, SECONDS)
    assert found == {each: numbers(len(read)) for each, read in found.items()}
    judge_sessions(short, renewed=True)


def _transact_with_librdkafka(login: Login) -> list[str]:
    topic = login.mechanism
    producer = confluent_kafka.Producer(login.librdkafka() | {"transactional.id": topic})
    producer.init_transactions(30)
    consumer = confluent_kafka.Consumer(
        login.librdkafka() | {"group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[str] = []
    sent, end = 0, math.inf
    while time.monotonic() < end:
        producer.begin_transaction()
        producer.produce(topic, b"%d" % sent)
        producer.commit_transaction(30)
        sent += 1
        while len(found) < sent:
            messages = consumer.consume(100, 0.05)
            found += [each.value().decode() for each in messages if not each.error()]
        end = min(end, time.monotonic() + SECONDS)
    consumer.close()
    return found


def _write_with_kafka_python(login: Login) -> list[str]:
    topic = login.mechanism
    common = login.kafka_python()
    producer = KafkaProducer(**common)
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **common)
    found: list[str] = []
    sent, end = 0, math.inf
    while time.monotonic() < end:
        producer.send(topic, b"%d" % sent).get(30)
        sent += 1
        while len(found) < sent:
            polled = consumer.poll(100).values()
            found += [record.value.decode() for records in polled for record in records]
        end = min(end, time.monotonic() + SECONDS)
    producer.close()
    consumer.close()
    return found


@pytest.mark.parametrize("use", [_transact_with_librdkafka, _write_with_kafka_python])
async def test_python_client_outlives_its_sessions(
    short: Broker, stores: Stores, use: Callable[[Login], list[str]]
) -> None:
    used = (asyncio.to_thread(use, each) for each in logins(short, stores))
    for found in await asyncio.gather(*used):
        assert found == numbers(len(found))
    judge_sessions(short, renewed=True)


async def _transact_with_aiokafka(login: Login) -> list[str]:
    topic, common = login.mechanism, login.aiokafka()
    producer = AIOKafkaProducer(transactional_id=topic, **common)
    consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **common)
    found: list[str] = []
    async with producer, consumer:
        sent, end = 0, math.inf
        while time.monotonic() < end:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"%d" % sent)
            sent += 1
            while len(found) < sent:
                found.append((await consumer.getone()).value.decode())
            end = min(end, time.monotonic() + SECONDS)
    return found


async def test_aiokafka_comes_again_when_its_sessions_end(short: Broker, stores: Stores) -> None:
    for found in await asyncio.gather(*map(_transact_with_aiokafka, logins(short, stores))):
        assert found == numbers(len(found))
    judge_sessions(short, renewed=False)
