"""Foreign clients over SASL: each mechanism on a plain listener and on one with TLS; and
certificates.

Each client writes in transactions, one of them aborted, and reads in a group as read_committed.
The logins of a library are used at once. The broker has an authorizer, and only the principal of
the right credentials may do anything. Java and franz-go log in by delegation tokens too; the other
libraries do not send `tokenauth=true`, without which a token counts for nothing (KIP-48).
"""

import asyncio
import itertools
import math
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiokafka.abc
import confluent_kafka
import kafka.errors
import kafka.net.sasl.oauth
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from kafka import KafkaConsumer, KafkaProducer

from barnabas.broker.app import Broker
from barnabas.client.cluster import Cluster
from barnabas.client.security import connect_with
from barnabas.client.user_admin import UserAdmin
from barnabas.security.sasl.credentials import DelegationToken, ScramCredential, ScramMechanism
from barnabas.security.sasl.jaas import (
    OAUTHBEARER_LOGIN_MODULE,
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
)
from tests.integration.interop import franz_go
from tests.support.certificates import Stores
from tests.support.data_path import running
from tests.support.kafka import jvm
from tests.support.kafka.resident import Resident
from tests.support.waiting import IN_TIME_S, until
from tests.support.web_tokens import Issuer

pytestmark = pytest.mark.asyncio(loop_scope="module")

PASSWORD = "alice-secret"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_alice="{PASSWORD}" user_bob="bob-secret";'
)
JAVA_TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ISSUER = Issuer()
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


CERTIFICATE = ("SSL", "certificate")
WAYS = (*itertools.product(LISTENERS, MECHANISMS), CERTIFICATE)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@asynccontextmanager
async def secured(directory: Path, stores: Stores, **own: str) -> AsyncIterator[Broker]:
    keys = {
        "listeners": ",".join(f"{name}://localhost:0" for name in (*LISTENERS, "SSL")),
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.jaas.config": JAAS,
        "sasl.oauthbearer.jwks.endpoint.url": ISSUER.write(directory / "keys.json"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "delegation.token.secret.key": "the secret of the cluster",
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice;User:CN=alice",
        "connection.failed.authentication.delay.ms": "1",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **stores.identity(),
        **stores.trust(),
        **own,
    }
    async with running(directory / "log", properties=keys) as running_broker:
        await add_users(running_broker)
        yield running_broker


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory, stores: Stores) -> AsyncIterator[Broker]:
    async with secured(tmp_path_factory.mktemp("broker"), stores) as running_broker:
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
    """The way of one client into the broker, and the topic that is its own."""

    def __init__(
        self,
        broker: Broker,
        stores: Stores,
        listener: str,
        mechanism: str,
        token: DelegationToken | None = None,
    ) -> None:
        self.servers = f"localhost:{broker.ports[listener]}"
        self.listener = listener
        self.mechanism = mechanism
        self.topic = f"{listener}-{mechanism}"
        self.ca = stores.trust()["ssl.truststore.location"]
        self.issued = stores.authority.issue("alice", hosts=())
        self.certificate = stores.write("alice.pem", self.issued.pem)
        self.user, self.password, self.by_token = "alice", PASSWORD, token is not None
        if token is not None:
            self.topic += "-token"
            self.user, self.password = token.id, token.password.decode()

    @property
    def token(self) -> str:
        """A token of OAUTHBEARER, for the password that belongs to a user."""
        issuer = ISSUER if self.password == PASSWORD else Issuer()
        return issuer.token(self.user, aud="kafka")

    def kafka_python(self) -> dict[str, Any]:
        provider = KafkaPythonTokens()
        provider.token_of = lambda: self.token
        files = {
            "ssl_cafile": self.ca,
            "ssl_certfile": self.certificate,
            "ssl_keyfile": self.certificate,
        }
        return self._python(provider) | files

    def aiokafka(self) -> dict[str, Any]:
        provider = AiokafkaTokens()
        provider.token_of = lambda: self.token
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.certificate)
        return self._python(provider) | {"ssl_context": context}

    def _python(self, provider: Any) -> dict[str, Any]:
        common = {"bootstrap_servers": self.servers, "security_protocol": self.listener}
        if self.listener == "SSL":
            return common
        return common | {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
            "sasl_oauth_token_provider": provider,
        }

    def librdkafka(self) -> dict[str, Any]:
        keys: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.listener,
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.certificate,
        }
        if self.listener != "SSL":
            keys |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        if self.mechanism == "OAUTHBEARER":
            keys["oauth_cb"] = lambda _: (self.token, time.time() + 600)
        return keys

    def java(self) -> dict[str, str]:
        module, options = {
            "PLAIN": (PLAIN_LOGIN_MODULE, f'username="{self.user}" password="{self.password}"'),
            "OAUTHBEARER": (OAUTHBEARER_LOGIN_MODULE, ""),
        }.get(
            self.mechanism,
            (
                SCRAM_LOGIN_MODULE,
                f'username="{self.user}" password="{self.password}" '
                f'tokenauth="{str(self.by_token).lower()}"',
            ),
        )
        return {
            "security.protocol": self.listener,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self.issued.key_pem(),
            "ssl.keystore.certificate.chain": self.issued.chain_pem,
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": f"{module} required {options};",
        }

    def franz(self) -> dict[str, Any]:
        return {
            "protocol": self.listener,
            "mechanism": self.mechanism,
            "user": self.user,
            "password": self.password,
            "tokenAuth": self.by_token,
            "token": self.token,
            "authority": Path(self.ca).read_text(),
            "certificate": self.issued.chain_pem,
            "key": self.issued.key_pem(),
        }


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def turns(count: int, seconds: float) -> Iterator[int]:
    """Yield `count` numbers, and more until the seconds after the use of the first are over."""
    end = math.inf
    for number in itertools.count():
        if number >= count and time.monotonic() >= end:
            return
        yield number
        end = min(end, time.monotonic() + seconds)


# -- clients in Python ---------------------------------------------------------------------------


def _with_librdkafka(login: Login, count: int, seconds: float) -> list[str]:
    topic = login.topic
    producer = confluent_kafka.Producer(login.librdkafka() | {"transactional.id": topic})
    consumer = confluent_kafka.Consumer(
        login.librdkafka() | {"group.id": topic, "auto.offset.reset": "earliest"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    consumer.subscribe([topic])
    found: list[str] = []

    def poll() -> Iterable[bytes]:
        return [each.value() for each in consumer.consume(100, 0.05) if not each.error()]

    for number in turns(count, seconds):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.commit_transaction(30)
        _read(found, number + 1, poll)
    consumer.close()
    return found


def _with_kafka_python(login: Login, count: int, seconds: float) -> list[str]:
    topic, common = login.topic, login.kafka_python()
    producer = KafkaProducer(transactional_id=topic, **common)
    consumer = KafkaConsumer(
        group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed", **common
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"aborted").get(30)
    producer.abort_transaction()
    consumer.subscribe([topic])
    found: list[str] = []

    def poll() -> Iterable[bytes]:
        return [each.value for records in consumer.poll(100).values() for each in records]

    for number in turns(count, seconds):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number)
        producer.commit_transaction()
        _read(found, number + 1, poll)
    producer.close()
    consumer.close()
    return found


def _read(found: list[str], count: int, poll: Callable[[], Iterable[bytes]]) -> None:
    """Read until `found` has so many records."""

    def are_read() -> bool:
        found.extend(value.decode() for value in poll())
        return len(found) >= count

    until(are_read)


async def _with_aiokafka(login: Login, count: int, seconds: float) -> list[str]:
    topic, common = login.topic, login.aiokafka()
    producer = AIOKafkaProducer(transactional_id=topic, **common)
    consumer = AIOKafkaConsumer(
        group_id=topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        # The library never stops if its last commit finds that the session has ended.
        enable_auto_commit=False,
        **common,
    )
    found: list[str] = []
    async with producer, consumer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted")
        await producer.abort_transaction()
        consumer.subscribe([topic])
        for number in turns(count, seconds):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"%d" % number)
            async with asyncio.timeout(IN_TIME_S):
                while len(found) <= number:
                    found.append((await consumer.getone()).value.decode())
        await consumer.commit()
    return found


Use = Callable[[Login, int, float], Awaitable[list[str]]]


def in_thread(use: Callable[[Login, int, float], list[str]]) -> Use:
    return lambda *arguments: asyncio.to_thread(use, *arguments)


PYTHON: dict[str, Use] = {
    "librdkafka": in_thread(_with_librdkafka),
    "kafka-python": in_thread(_with_kafka_python),
    "aiokafka": _with_aiokafka,
}


async def use_all(library: str, logins: list[Login], count: int, seconds: float) -> None:
    """Use each login at once, in topics of the library, and check the records that are read."""
    for each in logins:
        each.topic = f"{library}-{each.topic}"
    used = (PYTHON[library](each, count, seconds) for each in logins)
    found = dict(zip([each.topic for each in logins], await asyncio.gather(*used), strict=True))
    assert found == {topic: numbers(max(count, len(read))) for topic, read in found.items()}


@pytest.mark.parametrize("library", PYTHON)
async def test_python_client_transacts_by_each_mechanism(
    broker: Broker, stores: Stores, library: str
) -> None:
    await use_all(library, [Login(broker, stores, *way) for way in WAYS], 3, 0)


@pytest.fixture(params=[f"{a} {b}" for a in LISTENERS for b in MECHANISMS])
def wrong(request: pytest.FixtureRequest, broker: Broker, stores: Stores) -> Iterator[Login]:
    """Return a login with a wrong password, and check that the broker refused it and no other."""
    login = Login(broker, stores, *request.param.split())
    login.password = "wrong"
    known = broker._metrics.requests.authentication
    failed, succeeded = known.failed.cell(login.listener), known.succeeded.cell(login.listener)
    before = failed.value, succeeded.value
    yield login
    assert failed.value > before[0]
    assert succeeded.value == before[1]


async def test_librdkafka_with_a_wrong_password_is_told(wrong: Login) -> None:
    told: list[Any] = []
    producer = confluent_kafka.Producer(wrong.librdkafka() | {"error_cb": told.append})
    while not any(each.code() == confluent_kafka.KafkaError._AUTHENTICATION for each in told):
        await asyncio.to_thread(producer.poll, 0.1)


async def test_kafka_python_with_a_wrong_password_is_refused(wrong: Login) -> None:
    with pytest.raises(kafka.errors.KafkaError, match="Unable to bootstrap"):
        await asyncio.to_thread(KafkaProducer, **wrong.kafka_python(), bootstrap_timeout_ms=500)


async def test_aiokafka_with_a_wrong_password_is_told(wrong: Login) -> None:
    producer = AIOKafkaProducer(**wrong.aiokafka())
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    with suppress(Exception):
        await producer.stop()


# -- clients in Java and Go ----------------------------------------------------------------------


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
    """Clients of another language, one for each login."""

    def __init__(self, stores: Stores, logins: list[Login]) -> None:
        self._stores = stores
        self._logins = logins

    async def by_java(self, process: Resident, count: int, seconds: int) -> None:
        url = Path(self._stores.write("token", self._logins[0].token)).as_uri()
        clients = []
        for login in self._logins:
            login.topic = f"java-{login.topic}"
            options = login.java()
            if login.mechanism == "OAUTHBEARER":
                options["sasl.oauthbearer.token.endpoint.url"] = url
                options["sasl.login.callback.handler.class"] = JAVA_TOKENS
            clients.append({"servers": login.servers, "topic": login.topic, "options": options})
        await self._call(process, clients, count, seconds, token_url=url)

    async def by_franz(self, process: Resident, count: int, seconds: int) -> None:
        clients = [
            {"servers": login.servers, "topic": f"franz-{login.topic}", **login.franz()}
            for login in self._logins
        ]
        await self._call(process, clients, count, seconds)

    async def _call(
        self, process: Resident, clients: list[Any], count: int, seconds: int, **more: str
    ) -> None:
        def call() -> list[list[str]]:
            read: list[list[str]] = process.call(
                "exchange", clients=clients, count=count, seconds=seconds, **more
            )
            return read

        topics = [each["topic"] for each in clients]
        found = dict(zip(topics, await asyncio.to_thread(call), strict=True))
        assert found == {topic: numbers(max(count, len(read))) for topic, read in found.items()}


async def delegation_token(broker: Broker, stores: Stores) -> DelegationToken:
    """Return a token of alice."""
    login = Login(broker, stores, "SASL_SSL", "PLAIN")
    async with Cluster(login.servers, connect=connect_with(login.java())) as cluster:
        return await UserAdmin(cluster).create_token()


@pytest_asyncio.fixture(loop_scope="module")
async def exchanges(broker: Broker, stores: Stores) -> Exchanges:
    token = await delegation_token(broker, stores)
    by_token = itertools.product(LISTENERS, [each.value for each in ScramMechanism])
    return Exchanges(
        stores,
        [Login(broker, stores, *way) for way in WAYS]
        + [Login(broker, stores, *way, token) for way in by_token],
    )


@pytest.mark.xdist_group("sasl-java")
async def test_java_transacts_by_each_mechanism(java: Resident, exchanges: Exchanges) -> None:
    await exchanges.by_java(java, 3, 0)


async def test_franz_go_transacts_by_each_mechanism(franz: Resident, exchanges: Exchanges) -> None:
    await exchanges.by_franz(franz, 3, 0)


# -- sessions that end while a client works (KIP-368) ------------------------------------------


SESSION_MS = 2500
"""Java renews a session after 85 to 95 % of its life, franz-go 1 s before its end.

Brokers refuse a second renewal within 1 s, as Kafka does.
"""
SECONDS = 3
"""The time for which clients work after their first record."""


@pytest_asyncio.fixture(loop_scope="module")
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


async def with_token(broker: Broker, stores: Stores) -> Exchanges:
    """Return exchanges by each mechanism, and by a delegation token."""
    token = await delegation_token(broker, stores)
    by_token = Login(broker, stores, "SASL_SSL", "SCRAM-SHA-512", token)
    return Exchanges(stores, [*logins(broker, stores), by_token])


@pytest.mark.xdist_group("sasl-java")
async def test_java_outlives_its_sessions(short: Broker, stores: Stores, java: Resident) -> None:
    await (await with_token(short, stores)).by_java(java, 1, SECONDS)
    judge_sessions(short, renewed=True)


async def test_franz_go_outlives_its_sessions(
    short: Broker, stores: Stores, franz: Resident
) -> None:
    await (await with_token(short, stores)).by_franz(franz, 1, SECONDS)
    judge_sessions(short, renewed=True)


@pytest.mark.parametrize("library", PYTHON)
async def test_python_client_outlives_its_sessions(
    short: Broker, stores: Stores, library: str
) -> None:
    """aiokafka connects anew when a session ends; the others renew it."""
    await use_all(library, logins(short, stores), 1, SECONDS)
    judge_sessions(short, renewed=library != "aiokafka")
