"""SASL beside Apache Kafka: our client logs in to it, and wrong credentials get its answers."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.broker.app import Broker
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import AuthenticationError, BrokerUnreachable, Connection
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer
from barnabas.client.security import connect_with
from barnabas.protocol.config_resources import ConfigOperation, ResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    incremental_alter_configs,
    metadata,
    sasl_authenticate,
    sasl_handshake,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.security.sasl import scram
from barnabas.security.sasl.credentials import MIN_ITERATIONS, ScramCredential, ScramMechanism
from barnabas.security.sasl.exchange import OffLoop
from tests.support.data_path import running
from tests.support.kafka.node import SMALL, Kafka
from tests.support.web_server import web_server
from tests.support.web_tokens import Issuer

_COMMON = "org.apache.kafka.common.security"
PLAIN = f"{_COMMON}.plain.PlainLoginModule required"
BEARER = f"{_COMMON}.oauthbearer.OAuthBearerLoginModule required"
SCRAM = f"{_COMMON}.scram.ScramLoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ALICE = 'username="alice" password="alice-secret"'
SESSION_MS = 1000
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} username="kafka" password="k" user_kafka="k" user_alice="alice-secret";'
    ),
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    "connections.max.reauth.ms": str(SESSION_MS),
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    users = [f"{each}=[name=alice,password=alice-secret]" for each in MECHANISMS[1:]]
    directory = tmp_path_factory.mktemp("kafka")
    with Kafka(directory, properties=PROPERTIES, scram=users) as node:
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
        leader = await cluster.connection_to(await cluster.leader(topic, 0))
        sent: list[bytes] = []
        async with Producer(cluster) as producer:
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


async def test_producer_with_tokens_of_an_endpoint_outlives_a_session_with_kafka(
    tmp_path: Path,
) -> None:
    issuer = Issuer()
    jwks = issuer.write(tmp_path / "keys.json")
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}"
    prefix = "listener.name.plaintext.oauthbearer."
    properties = PROPERTIES | {
        "sasl.enabled.mechanisms": ",".join([*MECHANISMS, "OAUTHBEARER"]),
        f"{prefix}sasl.jaas.config": f"{BEARER};",
        f"{prefix}sasl.server.callback.handler.class": (
            f"{_COMMON}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{prefix}sasl.oauthbearer.jwks.endpoint.url": jwks,
        f"{prefix}sasl.oauthbearer.expected.audience": "kafka",
    }
    (tmp_path / "web").mkdir()
    with (
        web_server(tmp_path / "web") as server,
        Kafka(tmp_path / "kafka", properties=properties, heap=(*SMALL, allowed)) as kafka,
    ):
        server.answer = lambda _: (
            200,
            json.dumps({"access_token": issuer.token("alice", aud="kafka")}).encode(),
        )
        await outlive_a_session(
            kafka.bootstrap_servers,
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


class Wrong(NamedTuple):
    """A handshake and messages of which the last one is refused."""

    mechanism: str
    messages: tuple[Message, ...] = ()


def proof(password: str, *, tamper: Callable[[bytes], bytes] = bytes) -> Message:
    """Return the final message of SCRAM for alice, made with a password and then tampered with."""

    def final(answers: list[bytes]) -> bytes:
        exchange = scram.login(ScramMechanism.SHA_256, "alice", password, "nonce")
        next(exchange)
        step = exchange.send(answers[-1])
        while isinstance(step, OffLoop):
            step = exchange.send(step.function())
        return tamper(step)

    return final


FIRST = b"n,,n=alice,r=nonce"
WRONG = {
    "bad password": Wrong("PLAIN", (b"\0alice\0wrong",)),
    "empty password": Wrong("PLAIN", (b"\0alice\0",)),
    "empty user": Wrong("PLAIN", (b"\0\0alice-secret",)),
    "unknown user": Wrong("PLAIN", (b"\0ghost\0alice-secret",)),
    "other user's password": Wrong("PLAIN", (b"\0kafka\0alice-secret",)),
    "authorization id": Wrong("PLAIN", (b"kafka\0alice\0alice-secret",)),
    "cut": Wrong("PLAIN", (b"\0alice",)),
    "too many parts": Wrong("PLAIN", (b"\0alice\0alice-secret\0x",)),
    "nothing": Wrong("PLAIN", (b"",)),
    "messages of another mechanism": Wrong("PLAIN", (FIRST,)),
    "SCRAM: wrong password": Wrong("SCRAM-SHA-256", (FIRST, proof("wrong"))),
    "SCRAM: empty": Wrong("SCRAM-SHA-256", (b"",)),
    "SCRAM: message of PLAIN": Wrong("SCRAM-SHA-256", (b"\0alice\0alice-secret",)),
    "SCRAM: authorization id": Wrong("SCRAM-SHA-256", (b"n,a=kafka,n=alice,r=nonce",)),
    "SCRAM: channel binding": Wrong("SCRAM-SHA-256", (b"p=tls-unique,,n=alice,r=nonce",)),
    "SCRAM: cut": Wrong("SCRAM-SHA-256", (FIRST[:8],)),
    "SCRAM: proof of another mechanism": Wrong("SCRAM-SHA-512", (FIRST, proof("alice-secret"))),
    "SCRAM: replayed": Wrong(
        "SCRAM-SHA-256",
        (FIRST, b"c=biws,r=nonceolder,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
    ),
    "SCRAM: own nonce alone": Wrong(
        "SCRAM-SHA-256",
        (FIRST, b"c=biws,r=nonce,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
    ),
    "SCRAM: proof cut": Wrong(
        "SCRAM-SHA-256", (FIRST, proof("alice-secret", tamper=lambda final: final[:-8]))
    ),
    "mechanism that is not enabled": Wrong("GSSAPI"),
    "mechanism in lower case": Wrong("plain"),
    "no mechanism": Wrong(""),
}


CUT_OFF = {"SCRAM: proof of another mechanism", "SCRAM: proof cut"}
"""Cases in which Kafka closes the connection without the answer that tells why."""


@pytest.fixture
async def barnabas(tmp_path: Path) -> AsyncIterator[Broker]:
    own = {key: text for key, text in PROPERTIES.items() if key.startswith("listener.name")}
    properties = own | {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": "1",
    }
    async with running(tmp_path, properties=properties) as broker:
        for each in MECHANISMS[1:]:
            credential = ScramCredential.of_password(
                ScramMechanism(each), b"alice-secret", b"salt", MIN_ITERATIONS
            )
            await broker._core.scram_users.put("alice", credential)
        yield broker


async def answers_to(at: str, wrong: Wrong) -> list[tuple[int, str | None]]:
    """Return the errors of each answer; CLOSED where the connection ends without one."""
    host, _, port = at.rpartition(":")
    connection = await Connection.open(host, int(port), timeout=30)
    found: list[tuple[int, str | None]] = []
    try:
        chosen = await connection.request(
            sasl_handshake.API, sasl_handshake.SaslHandshakeRequest(mechanism=wrong.mechanism)
        )
        found.append((chosen.error_code, ",".join(sorted(chosen.mechanisms))))
        answered: list[bytes] = []
        for message in wrong.messages:
            data = message if isinstance(message, bytes) else message(answered)
            request = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=data)
            answer = await connection.request(sasl_authenticate.API, request)
            found.append((answer.error_code, answer.error_message))
            answered.append(bytes(answer.auth_bytes))
        await connection.request(metadata.API, metadata.MetadataRequest(topics=None))
        found.append((0, "served"))
    except BrokerUnreachable:
        found.append((-1, "closed"))
    finally:
        await connection.close()
    return found


@pytest.mark.parametrize("case", WRONG)
async def test_wrong_credentials_get_kafkas_answers(
    kafka: str, barnabas: Broker, case: str
) -> None:
    theirs = await answers_to(kafka, WRONG[case])
    ours = await answers_to(barnabas.bootstrap_servers, WRONG[case])
    assert theirs[-1] == ours[-1] == (-1, "closed")
    if case in CUT_OFF:
        assert ours.pop(-2)[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
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
                resource_type=ResourceType.BROKER, resource_name=name, configs=[config]
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
    with Kafka(tmp_path_factory.mktemp("kafka"), properties=PROPERTIES) as kafka:
        for of_kafka, of_barnabas in (("", ""), ("1", "0")):
            theirs = await altered(kafka.bootstrap_servers, of_kafka)
            ours = await altered(barnabas.bootstrap_servers, of_barnabas)
            assert ours == theirs
