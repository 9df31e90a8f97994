"""Listeners with TLS: real handshakes, in the test's own event loop."""

import asyncio
import os
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import Producer as RdProducer
from kafka import KafkaConsumer, KafkaProducer

from barnabas.broker import maintenance
from barnabas.broker.app import Broker
from barnabas.broker.loop.slices import TURN_S
from barnabas.broker.server import tls
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import AuthenticationError, BrokerUnreachable, Connection
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer
from barnabas.client.security import connect_with
from barnabas.config.key import ConfigError
from barnabas.protocol.codec import encode
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages import api_versions, fetch, metadata
from barnabas.protocol.schema import Api
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.brokers.process import BrokerProcess
from tests.support.certificates import Authority, Issued, Stores
from tests.support.command_line import run
from tests.support.data_path import make_broker, running
from tests.support.machine import bound
from tests.support.ports import free_port
from tests.support.tls_records import RecordClient
from tests.support.waiting import eventually, until

VALUES = [bytes([number]) * 1000 for number in range(200)]


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def keys_of(properties: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "_"): text for name, text in properties.items()}


def broker_keys(stores: Stores, **more: str) -> dict[str, str]:
    return {"listeners": "SSL://localhost:0", "security_inter_broker_protocol": "SSL"} | (
        keys_of(stores.identity() | stores.trust()) | more
    )


@pytest.fixture
async def broker(tmp_path: Path, stores: Stores) -> AsyncIterator[Broker]:
    async with running(tmp_path / "log", **broker_keys(stores)) as running_broker:
        yield running_broker


def client_keys(stores: Stores, **more: str) -> dict[str, str]:
    return {"security.protocol": "SSL", **stores.trust(), **more}


async def open_to(broker: Broker, properties: dict[str, str]) -> Connection:
    return await Connection.open(
        "localhost", broker.port, connect=connect_with(properties), timeout=5
    )


def failures(broker: Broker) -> float:
    return float(broker._metrics.requests.authentication.failed.cell("SSL").value)


async def produce(broker: Broker, properties: dict[str, str]) -> None:
    async with Cluster(broker.bootstrap_servers, connect=connect_with(properties)) as cluster:
        async with Producer(cluster) as producer:
            for value in VALUES:
                await producer.send("orders", value, partition=0)


async def consume(broker: Broker, properties: dict[str, str]) -> list[bytes | None]:
    async with Cluster(broker.bootstrap_servers, connect=connect_with(properties)) as cluster:
        await cluster.topic("orders", create=True)
        consumer = Consumer(cluster)
        consumer.assign({TopicPartition("orders", 0): EARLIEST})
        found: list[bytes | None] = []
        while len(found) < len(VALUES):
            found += [message.value for message in await consumer.poll()]
        return found


async def test_own_client_produces_and_consumes(broker: Broker, stores: Stores) -> None:
    await produce(broker, client_keys(stores))
    assert await consume(broker, client_keys(stores)) == VALUES


async def test_large_answers_reach_a_slow_client_whole(broker: Broker, stores: Stores) -> None:
    """16 MB in one answer: many turns of the outbox, and a full socket."""
    properties = client_keys(stores)
    values = [os.urandom(900_000) for _ in range(18)]
    async with Cluster(broker.bootstrap_servers, connect=connect_with(properties)) as cluster:
        async with Producer(cluster) as producer:
            for value in values:
                await producer.send("large", value, partition=0)
        consumer = Consumer(
            cluster, FetchSettings(max_bytes=32 << 20, partition_max_bytes=32 << 20)
        )
        consumer.assign({TopicPartition("large", 0): EARLIEST})
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [message.value for message in await consumer.poll()]
    assert found == values


async def test_librdkafka_produces_and_consumes(broker: Broker, stores: Stores) -> None:
    await asyncio.to_thread(_use_librdkafka, broker.bootstrap_servers, stores)


def _use_librdkafka(servers: str, stores: Stores) -> None:
    common = {
        "bootstrap.servers": servers,
        "security.protocol": "SSL",
        "ssl.ca.location": stores.trust()["ssl.truststore.location"],
    }
    producer = RdProducer(common)
    for value in VALUES:
        producer.produce("orders", value, partition=0)
    assert producer.flush(30) == 0
    consumer = RdConsumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    messages: list[Any] = []
    while len(messages) < len(VALUES):
        messages += consumer.consume(len(VALUES), 30)
    consumer.close()
    assert [message.value() for message in messages] == VALUES


async def test_kafka_python_produces_and_consumes(broker: Broker, stores: Stores) -> None:
    await asyncio.to_thread(_use_kafka_python, broker.bootstrap_servers, stores)


def _use_kafka_python(servers: str, stores: Stores) -> None:
    common: dict[str, Any] = {
        "bootstrap_servers": servers,
        "security_protocol": "SSL",
        "ssl_cafile": stores.trust()["ssl.truststore.location"],
    }
    producer = KafkaProducer(**common)
    for value in VALUES:
        producer.send("orders", value, partition=0)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer("orders", auto_offset_reset="earliest", group_id=None, **common)
    found = [message.value for _, message in zip(VALUES, consumer, strict=False)]
    consumer.close()
    assert found == VALUES


async def test_aiokafka_produces_and_consumes(broker: Broker, stores: Stores) -> None:
    context = ssl.create_default_context(cadata=stores.authority.pem)
    common: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_context": context,
    }
    async with AIOKafkaProducer(**common) as producer:
        for value in VALUES:
            await producer.send_and_wait("orders", value, partition=0)
    async with AIOKafkaConsumer("orders", auto_offset_reset="earliest", **common) as consumer:
        found = [(await consumer.getone()).value for _ in VALUES]
    assert found == VALUES


async def test_command_takes_the_keys_of_a_file(broker: Broker, stores: Stores) -> None:
    keys = client_keys(stores) | {"acks": "all"}
    text = "".join(f"{name}={value}\n" for name, value in keys.items())
    path = stores.write("client.properties", text)
    done = await asyncio.to_thread(
        run,
        "topics",
        "create",
        "orders",
        "--command-config",
        path,
        servers=broker.bootstrap_servers,
    )
    assert done.returncode == 0, done.stderr
    refused = await asyncio.to_thread(
        run,
        *(
            "topics",
            "list",
            "--command-config",
            stores.write("no.properties", "security.protocol=TLS"),
        ),
        servers=broker.bootstrap_servers,
    )
    assert b"String must be one of: PLAINTEXT, SSL" in refused.stderr


# -- refused ---------------------------------------------------------------------------------------


async def refused(broker: Broker, properties: dict[str, str], reason: str) -> None:
    before = failures(broker)
    with pytest.raises(BrokerUnreachable, match=reason):
        await open_to(broker, properties)
    await eventually(lambda: failures(broker) == before + 1)


async def test_client_that_trusts_another_authority(broker: Broker, stores: Stores) -> None:
    other = stores.write("other.pem", Authority("other").pem)
    keys = client_keys(stores) | {"ssl.truststore.location": other}
    await refused(broker, keys, "certificate verify failed")


async def test_client_that_speaks_plaintext(broker: Broker) -> None:
    before = failures(broker)
    with pytest.raises(BrokerUnreachable):
        await Connection.open("localhost", broker.port, timeout=5)
    await eventually(lambda: failures(broker) == before + 1)


async def test_client_that_speaks_tls_to_a_plain_listener(tmp_path: Path, stores: Stores) -> None:
    async with running(tmp_path / "log") as broker:
        with pytest.raises(BrokerUnreachable):
            await open_to(broker, client_keys(stores))
        async with Cluster(f"127.0.0.1:{broker.port}"):
            pass


@pytest.mark.parametrize(
    ("issued", "reason"),
    [
        ({"begins": timedelta(days=-2), "days": 1}, "certificate has expired"),
        ({"begins": timedelta(days=1)}, "not yet valid"),
        ({"hosts": ("elsewhere",)}, "Hostname mismatch"),
    ],
)
async def test_certificate_that_clients_refuse(
    tmp_path: Path, stores: Stores, issued: dict[str, Any], reason: str
) -> None:
    keys = broker_keys(stores)
    stores.identity(stores.authority.issue(**issued))
    async with running(tmp_path / "log", **keys) as broker:
        await refused(broker, client_keys(stores), reason)


@pytest.mark.parametrize(
    "wrong", ["none", "another authority's", "own", "expired", "not valid yet", "revoked"]
)
async def test_client_certificate_that_the_broker_refuses(
    tmp_path: Path, stores: Stores, wrong: str
) -> None:
    good, revoked = stores.authority.issue("alice"), stores.authority.issue("alice")
    keys = broker_keys(
        stores,
        ssl_client_auth="required",
        ssl_crl_location=stores.write("crl.pem", stores.authority.revocation_list(revoked)),
    )
    stranger = Authority("ca")
    issued = {
        "another authority's": stranger.issue("alice"),
        # Its issuer has the name of the authority, and another key.
        "own": Issued(stranger.key, stranger.certificate, stranger.certificate),
        "expired": stores.authority.issue("alice", begins=timedelta(days=-2), days=1),
        "not valid yet": stores.authority.issue("alice", begins=timedelta(days=1)),
        "revoked": revoked,
    }
    async with running(tmp_path / "log", **keys) as broker:
        mine = client_keys(stores, **stores.identity(good, name="alice"))
        connection = await open_to(broker, mine)
        await connection.close()
        own = stores.identity(issued[wrong], name="wrong") if wrong != "none" else {}
        await refused(broker, client_keys(stores, **own), ".")
        assert not broker._listeners["SSL"].connections


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_client_of_tls_1_1(broker: Broker, stores: Stores) -> None:
    context = ssl.create_default_context(cadata=stores.authority.pem)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    before = failures(broker)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("localhost", broker.port, ssl=context)
    await eventually(lambda: failures(broker) == before + 1)


async def test_half_handshake_is_cut(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, stores: Stores
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.2)
    connection = await open_to(broker, client_keys(stores))
    reader, writer = await asyncio.open_connection("localhost", broker.port)
    writer.write(b"\x16\x03\x01\x02\x00\x01")
    assert await asyncio.wait_for(_rest(reader), 10) == b""
    writer.close()
    assert failures(broker) == 1
    # The deadline of the connection that shook hands in time has passed before.
    assert connection.is_open
    await connection.close()


async def test_handshake_of_a_held_connection_has_its_time_after_admission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: Stores
) -> None:
    keys = broker_keys(stores, ssl_client_auth="required", max_connections="1")
    # A client with a name does not make way.
    mine = client_keys(stores) | stores.identity(stores.authority.issue("alice"), name="alice")
    async with running(tmp_path / "log", **keys) as broker:
        first = await open_to(broker, mine)
        with monkeypatch.context() as short:
            short.setattr(tls, "HANDSHAKE_S", 0.05)
            held = asyncio.ensure_future(open_to(broker, mine))
            await eventually(lambda: broker._listeners["SSL"].newcomers)
            loop = asyncio.get_running_loop()
            since = loop.time()
            await eventually(lambda: loop.time() > since + 0.1)
        assert failures(broker) == 0
        await first.close()
        second = await held
        await second.close()
        assert failures(broker) == 0


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


# -- certificates of clients -----------------------------------------------------------------------


def principals(broker: Broker, listener: str = "SSL") -> set[str]:
    return {str(each.principal) for each in broker._listeners[listener]._connections}


@pytest.mark.parametrize(
    ("rules", "principal"),
    [("DEFAULT", "User:CN=Alice"), ("RULE:^CN=(.*)$/$1/L", "User:alice")],
)
async def test_principal_is_mapped_from_the_certificate(
    tmp_path: Path, stores: Stores, rules: str, principal: str
) -> None:
    keys = broker_keys(stores, ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    alice = stores.identity(stores.authority.issue("Alice"), name="alice")
    async with running(tmp_path / "log", **keys) as broker:
        await refused(broker, client_keys(stores), "certificate.required|closed|lost|reset")
        connection = await open_to(broker, client_keys(stores) | alice)
        assert principals(broker) == {principal}
        await connection.close()


async def test_principal_without_certificate_is_anonymous(tmp_path: Path, stores: Stores) -> None:
    keys = broker_keys(stores, ssl_client_auth="requested")
    async with running(tmp_path / "log", **keys) as broker:
        connection = await open_to(broker, client_keys(stores))
        assert principals(broker) == {"User:ANONYMOUS"}
        await connection.close()


async def test_certificate_to_which_no_rule_applies_is_refused(
    tmp_path: Path, stores: Stores
) -> None:
    keys = broker_keys(
        stores, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=bob$/bob/"
    )
    alice = stores.identity(stores.authority.issue("Alice"), name="alice")
    async with running(tmp_path / "log", **keys) as broker:
        await refused(broker, client_keys(stores) | alice, "lost|closed|reset")


# -- beside SASL (KIP-684) -------------------------------------------------------------------------


def sasl_keys(stores: Stores, client_auth: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listeners": "SASL_SSL://localhost:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f'{module} required user_bob="secret";',
        "listener.name.sasl_ssl.ssl.client.auth": client_auth,
        **stores.identity(),
        **stores.trust(),
    }


def login_keys(stores: Stores, password: str = "secret") -> dict[str, str]:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "bob", "sasl.password": password}
    return client_keys(stores) | {"security.protocol": "SASL_SSL"} | login


async def test_client_without_certificate_does_not_get_as_far_as_sasl(
    tmp_path: Path, stores: Stores
) -> None:
    keys = sasl_keys(stores, "required")
    async with running(tmp_path / "log", properties=keys) as broker:
        authentication = broker._metrics.requests.authentication
        with pytest.raises(BrokerUnreachable, match=r"certificate.required|closed|lost|reset"):
            await open_to(broker, login_keys(stores))
        await eventually(lambda: authentication.failed.cell("SASL_SSL").value == 1)
        assert authentication.succeeded.cell("SASL_SSL").value == 0


@pytest.mark.parametrize("client_auth", ["required", "requested"])
async def test_client_with_certificate_logs_in_by_sasl_and_is_who_sasl_says(
    tmp_path: Path, stores: Stores, client_auth: str
) -> None:
    alice = stores.identity(stores.authority.issue("Alice"), name="alice")
    keys = sasl_keys(stores, client_auth)
    async with running(tmp_path / "log", properties=keys) as broker:
        # The certificate is no login: SASL still has to succeed.
        with pytest.raises(AuthenticationError):
            await open_to(broker, login_keys(stores, "wrong") | alice)
        connection = await open_to(broker, login_keys(stores) | alice)
        await eventually(lambda: principals(broker, "SASL_SSL") == {"User:bob"})
        await connection.close()


async def test_certificate_alone_is_no_login_where_sasl_is_wanted(
    tmp_path: Path, stores: Stores
) -> None:
    alice = stores.identity(stores.authority.issue("Alice"), name="alice")
    keys = sasl_keys(stores, "required")
    async with running(tmp_path / "log", properties=keys) as broker:
        connection = await open_to(broker, client_keys(stores) | alice)
        assert principals(broker, "SASL_SSL") == {"User:ANONYMOUS"}
        with pytest.raises(BrokerUnreachable):
            await connection.request(metadata.API, metadata.MetadataRequest(topics=None))
        await eventually(lambda: not broker._listeners["SASL_SSL"].connections)


# -- start and reload ------------------------------------------------------------------------------


async def test_listener_without_keystore_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a key store"):
        await make_broker(
            tmp_path, listeners="SSL://localhost:0", security_inter_broker_protocol="SSL"
        ).start()


async def test_keys_of_a_listener_come_before_the_general_ones(
    tmp_path: Path, stores: Stores
) -> None:
    own = stores.identity(stores.authority.issue("of-the-listener"), name="listener")
    keys = broker_keys(stores) | keys_of({f"listener.name.ssl.{k}": v for k, v in own.items()})
    async with running(tmp_path / "log", **keys) as broker:
        assert await presented(broker, stores) == "of-the-listener"


async def presented(broker: Broker, stores: Stores) -> str:
    """Return the common name of the certificate that new connections see."""
    context = ssl.create_default_context(cadata=stores.authority.pem)
    _, writer = await asyncio.open_connection("localhost", broker.port, ssl=context)
    name = writer.get_extra_info("peercert")["subject"][0][0][1]
    writer.close()
    return str(name)


async def test_changed_file_is_used_by_new_connections(
    tmp_path: Path, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "CERTIFICATES_MS", 20)
    keys = broker_keys(stores, ssl_allow_dn_changes="true")
    async with running(tmp_path / "log", **keys) as broker:
        old = await open_to(broker, client_keys(stores))
        stores.identity(stores.authority.issue("second"))

        async def replaced() -> bool:
            return await presented(broker, stores) == "second"

        await eventually(replaced)
        assert old.is_open
        await old.close()


def test_sighup_loads_certificates_at_once(tmp_path: Path, stores: Stores) -> None:
    port = free_port()
    keys = keys_of(stores.identity()) | {"ssl_allow_dn_changes": "true"}
    with BrokerProcess(tmp_path / "log", further=[f"SSL://localhost:{port}"], **keys) as process:
        # The file has not changed: no other task loads it.
        process.signal(signal.SIGHUP)
        until(lambda: process.errors().count("certificate loaded") == 1, process.errors)
        stores.identity(stores.authority.issue("second"))
        process.signal(signal.SIGHUP)
        until(lambda: process.errors().count("certificate loaded") >= 2, process.errors)
        context = ssl.create_default_context(cadata=stores.authority.pem)
        with (
            socket.create_connection(("localhost", port)) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as secured,
        ):
            assert secured.getpeercert()["subject"] == ((("commonName", "second"),),)
        assert process.terminate() == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("nothing", "one private key in PEM is needed"),
        (Authority().issue("other").pem, "DistinguishedName does not match"),
        (Authority().issue(hosts=("elsewhere",)).pem, "SubjectAltNames do not match"),
    ],
    ids=["text", "name", "hosts"],
)
async def test_bad_pair_is_refused_and_the_old_one_serves_on(
    broker: Broker,
    stores: Stores,
    content: str,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stores.write("own.pem", content)
    broker.reload_certificates()
    await eventually(lambda: "certificate refused" in caplog.text)
    assert reason in caplog.text
    assert await presented(broker, stores) == "localhost"


async def test_altered_keystore_is_tried_before_it_is_stored(
    broker: Broker, stores: Stores
) -> None:
    async with Cluster(
        broker.bootstrap_servers, connect=connect_with(client_keys(stores))
    ) as cluster:
        admin = Admin(cluster)
        key = "listener.name.ssl.ssl.keystore.location"
        with pytest.raises(KafkaError, match="/none cannot be read"):
            await alter(admin, {key: "/none"})
        issued = stores.authority.issue("second")
        new = stores.identity(issued, name="second")["ssl.keystore.location"]
        with pytest.raises(KafkaError, match="DistinguishedName does not match"):
            await alter(admin, {key: new})
        with pytest.raises(KafkaError, match="only per-listener using the listener prefix"):
            await alter(admin, {"ssl.keystore.location": new})
        with pytest.raises(KafkaError, match="at default cluster level"):
            await alter(admin, {key: new}, broker="")
        new = stores.identity(stores.authority.issue(days=99), name="third")[
            "ssl.keystore.location"
        ]
        before = broker._listeners["SSL"].tls.certificates.certificate
        await alter(admin, {key: new})
        await eventually(lambda: broker._listeners["SSL"].tls.certificates.certificate != before)


async def test_bad_file_behind_the_same_location_is_refused_each_time(
    broker: Broker, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's usual rotation: the file has changed, and the same value is set again."""
    keystore = {
        f"listener.name.ssl.{name}": value
        for name, value in stores.identity(name="rotated").items()
    }
    async with Cluster(
        broker.bootstrap_servers, connect=connect_with(client_keys(stores))
    ) as cluster:
        admin, used = Admin(cluster), broker._listeners["SSL"].tls.certificates
        first = used.certificate
        await alter(admin, keystore)
        await eventually(lambda: used.certificate is not first)
        stores.write("rotated.pem", "nothing")
        with pytest.raises(KafkaError, match="one private key in PEM is needed"):
            await alter(admin, keystore)
        broker.reload_certificates(unchanged_too=False)
        await eventually(lambda: "certificate refused" in caplog.text)
        with pytest.raises(KafkaError, match="one private key in PEM is needed"):
            await alter(admin, keystore)

        before = used.certificate
        stores.identity(name="rotated")
        await alter(admin, keystore)
        async with asyncio.timeout(maintenance.CERTIFICATES_MS / 2000):
            await eventually(lambda: used.certificate is not before)


async def alter(admin: Admin, values: dict[str, str], broker: str = "0") -> None:
    changes = [(key, ConfigOperation.SET, value) for key, value in values.items()]
    await admin.alter_configs(ConfigResourceType.BROKER, broker, changes)


async def test_expiring_certificate_is_warned_of_at_the_start_and_measured(
    tmp_path: Path, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    keys = broker_keys(stores)
    issued = stores.authority.issue(days=10)
    stores.identity(issued)
    async with running(tmp_path / "log", **keys) as broker:
        await eventually(lambda: "certificate expires soon" in caplog.text)
        family = next(
            each for each in broker.registry.snapshot() if "certificate_expiry" in each.name
        )
        assert [value for _, value in family.samples] == [
            issued.certificate.not_valid_after_utc.timestamp()
        ]


async def test_expiring_certificate_is_warned_of_when_it_is_loaded(
    broker: Broker, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    stores.identity(stores.authority.issue(days=10))
    broker.reload_certificates()
    await eventually(lambda: "certificate expires soon" in caplog.text)


async def test_rotation_under_a_running_producer_loses_no_record(
    broker: Broker, stores: Stores
) -> None:
    async with Cluster(
        broker.bootstrap_servers, connect=connect_with(client_keys(stores))
    ) as cluster:
        async with Producer(cluster) as producer:
            for number, value in enumerate(VALUES):
                await producer.send("orders", value, partition=0)
                if number % 20 == 0:
                    before = broker._listeners["SSL"].tls.certificates.certificate
                    stores.identity(stores.authority.issue(days=100 + number))
                    broker.reload_certificates()
                    await eventually(
                        lambda before=before: (
                            broker._listeners["SSL"].tls.certificates.certificate != before
                        )
                    )
                    # The next metadata request needs a new connection.
                    await cluster.close()
    assert await consume(broker, client_keys(stores)) == VALUES


# -- bounds ----------------------------------------------------------------------------------------


def request_of(api: Api, request: object, version: int, correlation_id: int = 1) -> bytes:
    body = encode_request_header(api.key, version, correlation_id, "test")
    body += encode(request, version)
    return len(body).to_bytes(4, "big") + body


async def test_peer_that_does_not_read_costs_little_memory(broker: Broker, stores: Stores) -> None:
    properties = client_keys(stores)
    async with Cluster(broker.bootstrap_servers, connect=connect_with(properties)) as cluster:
        async with Producer(cluster) as producer:
            for _ in range(18):
                await producer.send("large", os.urandom(900_000), partition=0)
    context = ssl.create_default_context(cadata=stores.authority.pem)
    reader, writer = await asyncio.open_connection(
        "localhost", broker.port, ssl=context, limit=1024
    )
    reading: Any = writer.transport
    reading.pause_reading()
    partition = fetch.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=32 << 20, log_start_offset=-1
    )
    topic = fetch.FetchTopic(topic="large", partitions=[partition])
    request = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=32 << 20, topics=[topic], session_epoch=-1
    )
    before = set(broker._listeners["SSL"]._connections)
    writer.write(request_of(fetch.API, request, 11))

    def answering() -> bool:
        return any(each._out._paused for each in broker._listeners["SSL"]._connections)

    await eventually(answering)
    (connection,) = (each for each in broker._listeners["SSL"]._connections if each._out.blocked)
    assert before
    assert 0 < connection._transport.get_write_buffer_size() <= 192 * 1024
    reading.resume_reading()
    size = int.from_bytes(await reader.readexactly(4), "big")
    assert size > 16_000_000
    left = size
    while left:
        left -= len(await reader.read(min(left, 1 << 20)))
    writer.close()


async def test_flood_of_key_updates_is_cut_before_it_holds_the_loop(
    broker: Broker, stores: Stores, tmp_path: Path
) -> None:
    """A megabyte of them took OpenSSL 0.8 s, with as many bytes of replies."""
    client = RecordClient(stores.authority.pem, tmp_path, ssl.TLSVersion.TLSv1_3)
    reader, writer = await asyncio.open_connection("localhost", broker.port)
    writer.write(client.shake_hands())
    while not client.done:
        writer.write(client.shake_hands(await reader.read(1 << 16)))
    await eventually(lambda: broker._listeners["SSL"].connections)
    flood = b"".join(client.key_update() for _ in range(40_000))
    await writer.drain()
    longest, loop = 0.0, asyncio.get_running_loop()

    def tick(before: float) -> None:
        nonlocal longest
        now = time.thread_time()
        longest = max(longest, now - before)
        ticking[0] = loop.call_later(0.001, tick, time.thread_time())

    ticking = [loop.call_soon(tick, time.thread_time())]
    writer.write(flood)
    await eventually(lambda: not broker._listeners["SSL"].connections)
    ticking[0].cancel()
    writer.transport.abort()
    assert longest < bound(0.05)


async def test_crowd_of_requests_at_once_is_answered_in_order(
    broker: Broker, stores: Stores
) -> None:
    """Reading pauses in the middle of received records, and continues with them."""
    context = ssl.create_default_context(cadata=stores.authority.pem)
    reader, writer = await asyncio.open_connection("localhost", broker.port, ssl=context)
    request = api_versions.ApiVersionsRequest()
    count = 5000
    writer.writelines([request_of(api_versions.API, request, 0, number) for number in range(count)])
    for number in range(count):
        size = int.from_bytes(await reader.readexactly(4), "big")
        assert int.from_bytes((await reader.readexactly(size))[:4], "big") == number
    writer.close()


async def test_handshakes_of_a_crowd_share_the_loop_with_others(
    broker: Broker, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes most of the time that new work has in one iteration of the loop."""
    loop, shake_hands = asyncio.get_running_loop(), ssl.SSLObject.do_handshake
    taken = [0]

    def slow(side: ssl.SSLObject) -> None:
        if side.server_side:
            taken[-1] += 1
            time.sleep(TURN_S * 0.8)
        shake_hands(side)

    def tick() -> None:
        taken.append(0)
        if len(crowd) < 20:
            loop.call_soon(tick)

    monkeypatch.setattr(ssl.SSLObject, "do_handshake", slow)
    crowd: list[Connection] = []
    tick()
    crowd += await asyncio.gather(*(open_to(broker, client_keys(stores)) for _ in range(20)))
    assert sum(taken) >= 20
    assert max(taken) <= 2
    for each in crowd:
        await each.close()
