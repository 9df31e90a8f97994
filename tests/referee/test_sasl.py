"""SASL beside Apache Kafka: our client logs in to it, and wrong credentials get its answers."""

import hashlib
import hmac
import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from barnabas.broker.app import Broker
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import AuthenticationError, BrokerUnreachable, Connection
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.producer import Producer
from barnabas.client.security import connect_with
from barnabas.client.user_admin import UserAdmin
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    create_topics,
    incremental_alter_configs,
    sasl_authenticate,
    sasl_handshake,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.security.sasl import scram
from barnabas.security.sasl.credentials import (
    MIN_ITERATIONS,
    DelegationToken,
    ScramCredential,
    ScramMechanism,
)
from barnabas.security.sasl.exchange import OffLoop
from tests.support.data_path import running
from tests.support.kafka.node import SMALL, Kafka
from tests.support.running_console import RunningConsole
from tests.support.waiting import eventually
from tests.support.web_server import web_server
from tests.support.web_tokens import Issuer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("referee-sasl")]

_COMMON = "org.apache.kafka.common.security"
PLAIN = f"{_COMMON}.plain.PlainLoginModule required"
BEARER = f"{_COMMON}.oauthbearer.OAuthBearerLoginModule required"
SCRAM = f"{_COMMON}.scram.ScramLoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ALICE = 'username="alice" password="alice-secret"'
SESSION_MS = 1300
"""Our client renews a session after 85 to 95 % of it; Kafka refuses a second renewal within 1 s."""
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} username="kafka" password="k" user_kafka="k" user_alice="alice-secret";'
    ),
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    "delegation.token.secret.key": "a secret of all brokers",
    "connections.max.reauth.ms": str(SESSION_MS),
}
ISSUER = Issuer()


def with_tokens(jwks: str) -> dict[str, str]:
    """Return the properties of a broker of either kind that takes tokens of OAUTHBEARER too."""
    return PROPERTIES | {
        "sasl.enabled.mechanisms": ",".join([*MECHANISMS, "OAUTHBEARER"]),
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": f"{BEARER};",
        "listener.name.plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": jwks,
        "listener.name.plaintext.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        # Without it, or an issuer that is expected, Kafka 4.4 does not start.
        "listener.name.plaintext.oauthbearer.sasl.oauthbearer.allow.unverified.issuer": "true",
    }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    users = [f"{each}=[name=alice,password=alice-secret]" for each in MECHANISMS[1:]]
    directory = tmp_path_factory.mktemp("kafka")
    jwks = ISSUER.write(directory / "keys.json")
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}"
    handler = "listener.name.plaintext.oauthbearer.sasl.server.callback.handler.class"
    properties = with_tokens(jwks) | {
        handler: f"{_COMMON}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    }
    with Kafka(directory, properties=properties, scram=users, heap=(*SMALL, allowed)) as node:
        yield node.bootstrap_servers


def keys(mechanism: str, account: str = ALICE) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} {account};",
    }


async def outlive_a_session(kafka: str, properties: dict[str, str]) -> None:
    """Produce until the session is renewed, and read everything."""
    async with Cluster(kafka, connect=connect_with(properties)) as cluster:
        topic = properties["sasl.mechanism"].lower()
        await Admin(cluster).create_topic(topic, partitions=1, replication_factor=1)
        sent = [b"first"]
        async with Producer(cluster) as producer:
            # Kafka's brokers learn of the topic later: the producer waits for that.
            await (await producer.send(topic, sent[0], partition=0))
            leader = await cluster.connection_to(await cluster.leader(topic, 0))
            renewed = leader._renewal
            while leader._renewal is renewed or leader._held is not None:
                sent.append(b"%d" % len(sent))
                await (await producer.send(topic, sent[-1], partition=0))
        assert leader.is_open
        consumer = Consumer(cluster)
        consumer.assign({TopicPartition(topic, 0): EARLIEST})
        found: list[bytes | None] = []
        while len(found) < len(sent):
            found += [each.value for each in await consumer.poll()]
        assert found == sent


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_producer_outlives_a_session_with_kafka(kafka: str, mechanism: str) -> None:
    await outlive_a_session(kafka, keys(mechanism))


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
async def test_console_logs_in_to_kafka(kafka: str, mechanism: str | None) -> None:
    """Without a mechanism of the settings the strongest is taken."""
    properties = {"security.protocol": "SASL_PLAINTEXT"}
    if mechanism is not None:
        properties["sasl.mechanism"] = mechanism
    with RunningConsole(kafka, properties=properties) as console:
        refused = console.post("/login", user="alice", password="another")
        assert refused.status == 401
        assert "The brokers refuse this user name or this password." in refused.words
        entered = console.post("/login", user="alice", password="alice-secret")
        assert entered.status == 303
        cookie = entered.headers["Set-Cookie"].partition(";")[0]
        seen = console.request("/brokers", headers={"Cookie": cookie})
        assert (seen.status, "Live brokers" in seen.words) == (200, True)


async def test_producer_with_tokens_of_an_endpoint_outlives_a_session_with_kafka(
    kafka: str, tmp_path: Path
) -> None:
    with web_server(tmp_path) as server:
        server.answer = lambda _: (
            200,
            json.dumps({"access_token": ISSUER.token("alice", aud="kafka")}).encode(),
        )
        await outlive_a_session(
            kafka,
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": server.url,
                "sasl.jaas.config": (f'{BEARER} clientId="alice" clientSecret="s" {server.trust};'),
            },
        )
        assert len(server.asked) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_kafka_refuses_a_wrong_password(kafka: str, mechanism: str) -> None:
    account = 'username="alice" password="wrong"'
    cluster = Cluster(kafka, connect=connect_with(keys(mechanism, account)), timeout=3600)
    with pytest.raises(AuthenticationError, match=r"(?i)invalid (username|credentials)"):
        await cluster.refresh(())
    await cluster.close()


# -- wrong credentials -----------------------------------------------------------------------------

Message = bytes | Callable[[list[bytes]], bytes]
"""A message of a client, or its function of the answers so far."""


class Login(NamedTuple):
    """A handshake and the messages after it; those of wrong credentials end with a refusal."""

    mechanism: str
    messages: tuple[Message, ...] = ()


def scram_login(
    password: str,
    user: str = "alice",
    *,
    mechanism: ScramMechanism = ScramMechanism.SHA_256,
    tamper: Callable[[bytes], bytes] = bytes,
    **extensions: str,
) -> tuple[Message, Message]:
    """Return the messages of a login by SCRAM, the final one tampered with."""

    def begin() -> Any:
        return scram.login(mechanism, user, password, "nonce", extensions)

    def final(answers: list[bytes]) -> bytes:
        exchange = begin()
        next(exchange)
        step = exchange.send(answers[-1])
        while isinstance(step, OffLoop):
            step = exchange.send(step.function())
        return tamper(step)

    return next(begin()), final


def bearer(token: Callable[[], str], first: bytes = b"n,,\1auth=Bearer %b\1\1") -> Login:
    """Return a login with a token that is made at the time of the login."""
    # A client acknowledges a refusal with the second message (RFC 7628).
    return Login("OAUTHBEARER", (lambda _: first % token().encode(), b"\1"))


def token(issuer: Issuer = ISSUER, **claims: Any) -> str:
    return issuer.token("alice", **{"aud": "kafka"} | claims)


def forged(header: dict[str, str], sign: Callable[[bytes], bytes], **claims: Any) -> str:
    """Return a good token with another header, other claims, and another signature."""
    now = time.time()
    own = {"sub": "alice", "aud": "kafka", "iat": now, "exp": now + 600, "scope": "produce"}
    text = b".".join(_base64url(json.dumps(each).encode()) for each in (header, own | claims))
    return (text + b"." + _base64url(sign(text))).decode()


def _base64url(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _by_public_key(text: bytes) -> bytes:
    pem = ISSUER.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return hmac.digest(pem, text, hashlib.sha256)


def _with_other_subject() -> str:
    header, _, signature = token().split(".")
    claims = forged({}, bytes, sub="kafka").split(".")[1]
    return f"{header}.{claims}.{signature}"


FIRST = b"n,,n=alice,r=nonce"
WRONG = {
    "bad password": Login("PLAIN", (b"\0alice\0wrong",)),
    "empty password": Login("PLAIN", (b"\0alice\0",)),
    "empty user": Login("PLAIN", (b"\0\0alice-secret",)),
    "unknown user": Login("PLAIN", (b"\0ghost\0alice-secret",)),
    "other user's password": Login("PLAIN", (b"\0kafka\0alice-secret",)),
    "authorization id": Login("PLAIN", (b"kafka\0alice\0alice-secret",)),
    "cut": Login("PLAIN", (b"\0alice",)),
    "too many parts": Login("PLAIN", (b"\0alice\0alice-secret\0x",)),
    "nothing": Login("PLAIN", (b"",)),
    "messages of another mechanism": Login("PLAIN", (FIRST,)),
    "SCRAM: wrong password": Login("SCRAM-SHA-256", scram_login("wrong")),
    "SCRAM: empty": Login("SCRAM-SHA-256", (b"",)),
    "SCRAM: message of PLAIN": Login("SCRAM-SHA-256", (b"\0alice\0alice-secret",)),
    "SCRAM: authorization id": Login("SCRAM-SHA-256", (b"n,a=kafka,n=alice,r=nonce",)),
    "SCRAM: channel binding": Login("SCRAM-SHA-256", (b"p=tls-unique,,n=alice,r=nonce",)),
    "SCRAM: cut": Login("SCRAM-SHA-256", (FIRST[:8],)),
    "SCRAM: proof of another mechanism": Login("SCRAM-SHA-512", scram_login("alice-secret")),
    "SCRAM: replayed": Login(
        "SCRAM-SHA-256",
        (FIRST, b"c=biws,r=nonceolder,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
    ),
    "SCRAM: own nonce alone": Login(
        "SCRAM-SHA-256",
        (FIRST, b"c=biws,r=nonce,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
    ),
    "SCRAM: proof cut": Login(
        "SCRAM-SHA-256", scram_login("alice-secret", tamper=lambda final: final[:-8])
    ),
    "OAUTHBEARER: expired": bearer(lambda: token(lasts_s=-100)),
    "OAUTHBEARER: not yet valid": bearer(lambda: token(lasts_s=9000, nbf=time.time() + 1000)),
    "OAUTHBEARER: wrong audience": bearer(lambda: token(aud="other")),
    "OAUTHBEARER: no audience": bearer(lambda: ISSUER.token("alice")),
    "OAUTHBEARER: no subject": bearer(lambda: token(sub="")),
    "OAUTHBEARER: another's key under the same id": bearer(lambda: token(Issuer())),
    "OAUTHBEARER: key that is not known": bearer(lambda: token(Issuer("other"))),
    "OAUTHBEARER: algorithm none": bearer(lambda: forged({"alg": "none"}, lambda _: b"")),
    "OAUTHBEARER: algorithm none with a signature": bearer(lambda: forged({"alg": "none"}, bytes)),
    "OAUTHBEARER: public key as a secret": bearer(
        lambda: forged({"alg": "HS256", "kid": ISSUER.key_id}, _by_public_key)
    ),
    "OAUTHBEARER: claims of another": bearer(_with_other_subject),
    "OAUTHBEARER: cut in the signature": bearer(lambda: token()[:-8]),
    "OAUTHBEARER: without signature": bearer(lambda: token().rpartition(".")[0] + "."),
    "OAUTHBEARER: cut before the signature": bearer(lambda: token().rpartition(".")[0]),
    "OAUTHBEARER: message cut": bearer(token, b"n,,\1auth=Bearer %b\1"),
    "OAUTHBEARER: authorization id": bearer(token, b"n,a=kafka,\1auth=Bearer %b\1\1"),
    "OAUTHBEARER: empty": Login("OAUTHBEARER", (b"",)),
    "OAUTHBEARER: message of PLAIN": Login("OAUTHBEARER", (b"\0alice\0alice-secret",)),
    "mechanism that is not enabled": Login("GSSAPI"),
    "mechanism in lower case": Login("plain"),
    "no mechanism": Login(""),
}


CUT_OFF = {"SCRAM: proof of another mechanism", "SCRAM: proof cut"}
"""Cases in which Kafka closes the connection without the answer that tells why."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def barnabas(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    directory = tmp_path_factory.mktemp("barnabas")
    own = with_tokens(ISSUER.write(directory / "keys.json"))
    properties = {key: own[key] for key in own if not key.startswith(("conn", "sasl.mech"))} | {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "connection.failed.authentication.delay.ms": "1",
    }
    async with running(directory / "log", properties=properties) as broker:
        for each in MECHANISMS[1:]:
            credential = ScramCredential.of_password(
                ScramMechanism(each),  # type: ignore[call-arg]
                b"alice-secret",
                b"salt",
                MIN_ITERATIONS,  # type: ignore[call-arg]
            )
            await broker._core.scram_users.put("alice", credential)
        yield broker


CHALLENGED, SERVED, CLOSED = (0, ""), (0, "served"), (-1, "closed")


async def answers_to(at: str, login: Login) -> list[tuple[int, str | None]]:
    """Return the errors of each answer; CLOSED where the connection ends without one.

    The last request creates a topic.
    """
    host, _, port = at.rpartition(":")
    connection = await Connection.open(host, int(port), timeout=30)
    found: list[tuple[int, str | None]] = []
    try:
        chosen = await connection.request(
            sasl_handshake.API, sasl_handshake.SaslHandshakeRequest(mechanism=login.mechanism)
        )
        found.append((chosen.error_code, ",".join(sorted(chosen.mechanisms))))
        answered: list[bytes] = []
        for message in login.messages:
            data = message if isinstance(message, bytes) else message(answered)
            request = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=data)
            answer = await connection.request(sasl_authenticate.API, request)
            found.append((answer.error_code, answer.error_message))
            answered.append(bytes(answer.auth_bytes))
            if answer.error_code:
                break
        planted = create_topics.CreatableTopic(
            name="planted", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        await connection.request(
            create_topics.API, create_topics.CreateTopicsRequest(topics=[planted], timeout_ms=9000)
        )
        found.append(SERVED)
    except BrokerUnreachable:
        found.append(CLOSED)
    finally:
        await connection.close()
    return found


@asynccontextmanager
async def unchanged(broker: Broker) -> AsyncIterator[None]:
    """Check that the broker gives the same answers before and after, and to alice alone."""
    connect = connect_with(keys("PLAIN"))
    async with Cluster(broker.bootstrap_servers, connect=connect) as cluster:
        users, latest = UserAdmin(cluster), {TopicPartition("kept", 0): LATEST}
        async with Producer(cluster) as producer:
            await (await producer.send("kept", b"kept", partition=0))

        async def state() -> Any:
            topics = [each.name for each in (await cluster.refresh()).topics]
            ends = await find_offsets(cluster, latest)
            return topics, ends, await users.describe_users(), await users.describe_tokens()

        before = await state()
        yield
        assert await state() == before
        open_ones = broker._listeners["PLAINTEXT"]._connections
        assert {str(each.principal) for each in open_ones} == {"User:alice"}


async def test_right_credentials_are_served(kafka: str, barnabas: Broker) -> None:
    """The wrong ones are refused for what is wrong in them."""
    for at in (kafka, barnabas.bootstrap_servers):
        right = [
            Login("PLAIN", (b"\0alice\0alice-secret",)),
            bearer(token)._replace(messages=bearer(token).messages[:1]),
            by_token((await tokens(at)).good),
            *(
                Login(each.value, scram_login("alice-secret", mechanism=each))
                for each in ScramMechanism
            ),
        ]
        for login in right:
            assert (await answers_to(at, login))[-1] == SERVED, login.mechanism


@pytest.mark.parametrize("case", WRONG)
async def test_wrong_credentials_get_kafkas_answers(
    kafka: str, barnabas: Broker, case: str
) -> None:
    theirs = await answers_to(kafka, WRONG[case])
    async with unchanged(barnabas):
        ours = await answers_to(barnabas.bootstrap_servers, WRONG[case])
    assert theirs[-1] == ours[-1] == CLOSED
    if case in CUT_OFF:
        assert ours.pop(-2)[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert ours == theirs


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
async def test_recorded_login_is_refused(kafka: str, barnabas: Broker, mechanism: str) -> None:
    """The same bytes again: only the nonce of the server differs."""

    async def record(at: str) -> Login:
        sent: list[bytes] = []

        def recorded(message: Message) -> Message:
            def send(answers: list[bytes]) -> bytes:
                sent.append(message if isinstance(message, bytes) else message(answers))
                return sent[-1]

            return send

        messages = scram_login("alice-secret", mechanism=ScramMechanism(mechanism))  # type: ignore[call-arg]
        good = await answers_to(at, Login(mechanism, tuple(map(recorded, messages))))
        assert good[1:] == [CHALLENGED, CHALLENGED, SERVED]
        return Login(mechanism, tuple(sent))

    theirs = await answers_to(kafka, await record(kafka))
    login = await record(barnabas.bootstrap_servers)
    async with unchanged(barnabas):
        ours = await answers_to(barnabas.bootstrap_servers, login)
    assert ours[-2][0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert ours == theirs


class Tokens(NamedTuple):
    """Delegation tokens of alice."""

    good: DelegationToken
    other: DelegationToken
    expired: DelegationToken
    ended: DelegationToken


def by_token(
    token: DelegationToken, hmac: bytes | None = None, *, tokenauth: str = "true"
) -> Login:
    """Return a login with a token, and its HMAC or another one."""
    password = b64encode(token.hmac if hmac is None else hmac).decode()
    return Login("SCRAM-SHA-256", scram_login(password, token.id, tokenauth=tokenauth))


WRONG_TOKENS: dict[str, Callable[[Tokens], Login]] = {
    "expired": lambda known: by_token(known.expired),
    "ended": lambda known: by_token(known.ended),
    "another's HMAC": lambda known: by_token(known.good, known.other.hmac),
    "wrong HMAC": lambda known: by_token(known.good, known.good.hmac[::-1]),
    "no HMAC": lambda known: by_token(known.good, b""),
    "as a user": lambda known: by_token(known.good, tokenauth="false"),
    "user's password": lambda _: Login(
        "SCRAM-SHA-256", scram_login("alice-secret", tokenauth="true")
    ),
    "by PLAIN": lambda known: Login(
        "PLAIN", (b"\0%b\0%b" % (known.good.id.encode(), known.good.password),)
    ),
}
UNKNOWN = {"ended", "as a user", "user's password"}
"""Cases in which Kafka knows no such user, and says so before the proof."""


async def tokens(at: str) -> Tokens:
    async with Cluster(at, connect=connect_with(keys("PLAIN"))) as cluster:
        admin = UserAdmin(cluster)
        made = [await admin.create_token(max_lifetime_ms=each) for each in (-1, -1, 1, -1)]
        known = Tokens(*made)

        async def told() -> set[str]:
            return {each.id for each in await admin.describe_tokens()}

        async def are_known() -> bool:
            return {each.id for each in made} <= await told()

        async def is_gone() -> bool:
            return known.ended.id not in await told()

        await eventually(are_known)
        await admin.expire_token(known.ended.hmac)
        await eventually(is_gone)
    return known


@pytest.mark.parametrize("case", WRONG_TOKENS)
async def test_wrong_delegation_tokens_get_kafkas_answers(
    kafka: str, barnabas: Broker, case: str
) -> None:
    theirs = await answers_to(kafka, WRONG_TOKENS[case](await tokens(kafka)))
    login = WRONG_TOKENS[case](await tokens(barnabas.bootstrap_servers))
    async with unchanged(barnabas):
        ours = await answers_to(barnabas.bootstrap_servers, login)
    assert theirs[-1] == ours[-1] == CLOSED
    assert ours[-2][0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    if case in UNKNOWN:
        assert ours.pop(1) == CHALLENGED
    if case == "expired":
        # Kafka lets the client in, and closes the connection at its first request.
        assert theirs.pop(-2) == CHALLENGED
        ours.pop(-2)
    assert ours == theirs


# -- keys that change ------------------------------------------------------------------------------

ALTERED = {
    "sasl.login.retry.backoff.ms": "7",
    "sasl.login.connect.timeout.ms": "7",
    "sasl.oauthbearer.token.endpoint.url": "https://x/",
    "sasl.oauthbearer.jwks.endpoint.url": "https://x/",
    "sasl.server.max.receive.size": "65536",
    "connections.max.reauth.ms": "1000",
    "connection.failed.authentication.delay.ms": "5",
    "ssl.keystore.location": "/x",
    "sasl.kerberos.min.time.before.relogin": "58000",
    "sasl.login.refresh.window.factor": "0.7",
    "listener.name.plaintext.connections.max.reauth.ms": "1000",
    "listener.name.plaintext.plain.connections.max.reauth.ms": "1000",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        PROPERTIES["listener.name.plaintext.plain.sasl.jaas.config"]
    ),
}
"""Keys of one broker, those without the prefix of a listener first: Kafka refuses these after it
has stored one with a prefix."""


async def altered(at: str, name: str) -> dict[str, tuple[int, str | None]]:
    """Set each key in a request of its own; return the errors."""
    host, _, port = at.rpartition(":")
    connection = await Connection.open(
        host, int(port), connect=connect_with(keys("PLAIN")), timeout=30
    )
    found = {}
    try:
        for key, text in ALTERED.items():
            config = incremental_alter_configs.AlterableConfig(
                name=key, config_operation=ConfigOperation.SET, value=text
            )
            resource = incremental_alter_configs.AlterConfigsResource(
                resource_type=ConfigResourceType.BROKER, resource_name=name, configs=[config]
            )
            request = incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[resource], validate_only=False
            )
            answer = await connection.request(incremental_alter_configs.API, request)
            found[key] = answer.responses[0].error_code, answer.responses[0].error_message
    finally:
        await connection.close()
    return found


async def test_the_same_keys_of_sasl_can_be_altered(
    barnabas: Broker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Sessions without an end: a renewal that comes late would end the connection.
    properties = {key: PROPERTIES[key] for key in PROPERTIES if not key.startswith("conn")}
    with Kafka(tmp_path_factory.mktemp("kafka"), properties=properties) as kafka:
        for of_kafka, of_barnabas in (("", ""), ("1", "0")):
            theirs = await altered(kafka.bootstrap_servers, of_kafka)
            ours = await altered(barnabas.bootstrap_servers, of_barnabas)
            assert ours == theirs
