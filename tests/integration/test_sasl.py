"""SASL on the wire: the bytes of a client, and the answers of a listener."""

import asyncio
import gc
import socket
import ssl
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.server import login_queue, sasl
from barnabas.broker.server.limits import budget
from barnabas.client.connection import AuthenticationError, Connection
from barnabas.client.security import connect_with
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.frame import SMALLEST_BUFFER
from barnabas.protocol.header import decode_response_header, encode_request_header
from barnabas.protocol.messages import (
    api_versions,
    describe_configs,
    incremental_alter_configs,
    init_producer_id,
    metadata,
    sasl_authenticate,
    sasl_handshake,
)
from barnabas.protocol.schema import Api
from barnabas.security.principal import ANONYMOUS
from barnabas.security.sasl.credentials import MIN_ITERATIONS, ScramCredential, ScramMechanism
from barnabas.security.sasl.jaas import PLAIN_LOGIN_MODULE
from tests.support.certificates import Stores
from tests.support.data_path import make_broker, running
from tests.support.waiting import eventually
from tests.support.web_server import web_server
from tests.support.web_tokens import Issuer

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice-secret" user_bob="bob-secret";'
)
KEYS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "1",
}
ALICE = b"\0alice\0alice-secret"
TWO_LISTENERS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "sasl.jaas.config": JAAS,
}


class Raw:
    """A client that sends what it is told to, and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def post(self, data: bytes) -> None:
        self.writer.write(len(data).to_bytes(4, "big") + data)

    async def take(self) -> bytes:
        """Return the next frame; IncompleteReadError if the broker closes the connection."""
        try:
            async with asyncio.timeout(10):
                size = int.from_bytes(await self.reader.readexactly(4), "big")
                return await self.reader.readexactly(size)
        except ConnectionError as error:
            raise asyncio.IncompleteReadError(b"", 4) from error

    async def ask(self, api: Api, request: Any, version: int) -> Any:
        self.post(encode_request_header(api.key, version, 7, "raw") + encode(request, version))
        frame = await self.take()
        _, offset = decode_response_header(api.key, version, frame)
        return decode(api.response, version, frame, offset)

    async def versions(self) -> Any:
        request = api_versions.ApiVersionsRequest(
            client_software_name="raw", client_software_version="1"
        )
        return await self.ask(api_versions.API, request, 3)

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        request = sasl_handshake.SaslHandshakeRequest(mechanism=mechanism)
        return await self.ask(sasl_handshake.API, request, version)

    async def authenticate(self, message: bytes, version: int = 2) -> Any:
        request = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=message)
        return await self.ask(sasl_authenticate.API, request, version)

    async def login(self, message: bytes = ALICE) -> Any:
        assert (await self.handshake()).error_code == 0
        return await self.authenticate(message)

    async def metadata(self) -> Any:
        return await self.ask(metadata.API, metadata.MetadataRequest(topics=None), 12)

    async def is_closed(self) -> bool:
        """Wait for the end; return whether it comes without an answer."""
        try:
            await self.take()
        except asyncio.IncompleteReadError:
            return True
        return False


@asynccontextmanager
async def raw(broker: Broker, listener: str = "") -> AsyncIterator[Raw]:
    port = broker.ports[listener] if listener else broker.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def broker_with(directory: Path, **more: str) -> AsyncIterator[Broker]:
    keys = KEYS | {name.replace("_", "."): text for name, text in more.items()}
    async with running(directory, properties=keys) as broker:
        yield broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker_with(tmp_path) as running_broker:
        yield running_broker


def count(broker: Broker, name: str) -> float:
    family = getattr(broker._metrics.requests.authentication, name)
    return float(family.cell("SASL_PLAINTEXT").value)


def principals(broker: Broker) -> list[str]:
    return [str(each.principal) for each in broker._listeners["SASL_PLAINTEXT"]._connections]


# -- success ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_plain_client_is_served_after_authentication(broker: Broker, version: int) -> None:
    async with raw(broker) as client:
        listed = {each.api_key for each in (await client.versions()).api_keys}
        assert {17, 36, 0, 1, 3} <= listed
        answer = await client.handshake()
        assert (answer.error_code, answer.mechanisms) == (0, ["PLAIN"])
        assert principals(broker) == [str(ANONYMOUS)]
        done = await client.authenticate(ALICE, version)
        assert (done.error_code, done.auth_bytes, done.session_lifetime_ms) == (0, b"", 0)
        assert principals(broker) == ["User:alice"]
        assert (await client.metadata()).brokers[0].node_id == 0
    assert count(broker, "succeeded") == 1
    assert count(broker, "failed") == 0


async def test_messages_after_handshake_v0_have_no_header(broker: Broker) -> None:
    async with raw(broker) as client:
        assert (await client.handshake(version=0)).error_code == 0
        client.post(ALICE)
        assert await client.take() == b""
        assert (await client.metadata()).brokers[0].node_id == 0


async def test_request_sent_with_the_last_message_is_answered(broker: Broker) -> None:
    async with raw(broker) as client:
        await client.handshake(version=0)
        client.post(ALICE)
        answer = asyncio.ensure_future(client.take())
        client.post(
            encode_request_header(3, 12, 1, None)
            + encode(metadata.MetadataRequest(topics=None), 12)
        )
        assert await answer == b""
        assert len(await client.take()) > 20


async def test_unknown_version_of_api_versions_leaves_a_second_try(broker: Broker) -> None:
    async with raw(broker) as client:
        client.post(encode_request_header(18, 99, 1, None))
        assert await client.take()
        assert (await client.versions()).error_code == 0
        assert (await client.login()).error_code == 0


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0bob-secret", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0alice-secret", "authorization id that is different from username"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"n,,n=alice,r=abc", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0" + b"x" * 20_000, "invalid credentials with SASL mechanism PLAIN"),
    ],
)
async def test_wrong_credentials_are_refused_and_the_connection_is_closed(
    broker: Broker, message: bytes, told: str
) -> None:
    async with raw(broker) as client:
        answer = await client.login(message)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert told in answer.error_message
        assert await client.is_closed()
    assert count(broker, "failed") == 1
    assert count(broker, "succeeded") == 0


async def test_wrong_password_without_header_closes_the_connection(broker: Broker) -> None:
    async with raw(broker) as client:
        await client.handshake(version=0)
        client.post(b"\0alice\0wrong")
        assert await client.is_closed()
    assert count(broker, "failed") == 1


async def test_other_mechanism_is_refused_with_those_that_are_enabled(broker: Broker) -> None:
    async with raw(broker) as client:
        answer = await client.handshake("SCRAM-SHA-256")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN"]
        assert await client.is_closed()


async def test_refusal_waits_for_the_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(sasl.asyncio, "sleep", record)  # type: ignore[attr-defined]
    async with broker_with(tmp_path, connection_failed_authentication_delay_ms="700") as broker:
        async with raw(broker) as client:
            assert (await client.login(b"\0alice\0wrong")).error_code != 0
        monkeypatch.undo()
    assert 0.7 in slept


async def test_steps_out_of_order_are_refused(broker: Broker) -> None:
    async with raw(broker) as client:
        answer = await client.authenticate(ALICE)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()
    async with raw(broker) as client:
        await client.handshake()
        assert (await client.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()
    async with raw(broker) as client:
        await client.versions()
        with pytest.raises(asyncio.IncompleteReadError):
            await client.versions()
    async with raw(broker) as client:
        await client.handshake()
        with pytest.raises(asyncio.IncompleteReadError):
            await client.versions()


async def test_no_other_request_is_served_before_authentication(broker: Broker) -> None:
    others = [key for key in range(-1, 100) if key not in (17, 18, 36)]
    for key in others:
        async with raw(broker) as client:
            client.post(key.to_bytes(2, "big", signed=True) + bytes(60))
            assert await client.is_closed()
    assert count(broker, "failed") == len(others)
    assert not broker._metrics.requests.requests.cell("Metadata", "0").value


async def test_request_after_failure_is_not_served(broker: Broker) -> None:
    async with raw(broker) as client:
        await client.handshake(version=0)
        client.post(b"\0alice\0wrong")
        client.post(ALICE)
        client.post(encode_request_header(3, 12, 1, None) + b"\0\0\0\0")
        assert await client.is_closed()
    assert count(broker, "succeeded") == 0


async def test_message_that_looks_like_a_transaction_lets_no_request_overtake(
    broker: Broker,
) -> None:
    """Requests about transactional ids may overlap, so raw messages must not pass for them."""
    request = init_producer_id.InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=1000
    )
    message = encode_request_header(22, 0, 1, None) + encode(request, 0)
    async with raw(broker) as client:
        await client.handshake(version=0)
        client.post(message)
        client.post(message.replace(b"t", b"u"))
        assert await client.is_closed()
    assert count(broker, "failed") == 1
    assert count(broker, "succeeded") == 0


@pytest.mark.parametrize("size", [524_289, -1, 2**31 - 1])
async def test_too_large_request_before_authentication_closes(broker: Broker, size: int) -> None:
    async with raw(broker) as client:
        client.writer.write(size.to_bytes(4, "big", signed=True) + b"\0\x11\0\1")
        assert await client.is_closed()


async def test_long_requests_before_authentication_share_a_little_memory(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them took 240 MB: a buffer of 256 KB counted nowhere."""
    monkeypatch.setattr(budget, "ROUND_MS", 100)
    connections = broker._listeners["SASL_PLAINTEXT"]._connections
    async with AsyncExitStack() as exits:
        crowd = [await exits.enter_async_context(raw(broker)) for _ in range(100)]
        for each in crowd:
            each.writer.write((500_000).to_bytes(4, "big") + bytes(400_000))
        # One may exceed the limit: otherwise all of them could wait for more.
        most = budget.STRANGERS_BYTES + 524_288 + len(crowd) * SMALLEST_BUFFER
        await eventually(lambda: sum(each._reader.capacity for each in connections) > most // 2)
        for message, code in ((ALICE, 0), (ALICE + bytes(100_000), 58)):
            async with raw(broker) as client:
                # The second one gets the memory of those that stand, after a second.
                assert (await client.login(message)).error_code == code
                assert sum(each._reader.capacity for each in connections) <= most
        assert len(connections) < len(crowd)


async def test_large_request_after_authentication_is_read(broker: Broker) -> None:
    async with raw(broker) as client:
        await client.login()
        client.post(
            encode_request_header(3, 12, 1, None)
            + encode(metadata.MetadataRequest(topics=[]), 12)
            + bytes(600_000)
        )
        assert await client.take()


async def test_silent_connection_is_closed(tmp_path: Path) -> None:
    async with (
        broker_with(tmp_path, connections_max_unauthenticated_ms="200") as broker,
        raw(broker) as served,
        raw(broker) as silent,
        raw(broker) as half,
    ):
        await served.login()
        await half.handshake()
        assert await silent.is_closed()
        assert await half.is_closed()
        assert (await served.metadata()).brokers
        assert count(broker, "failed") == 2


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
async def test_crowd_before_authentication_has_a_share_of_the_connections(
    tmp_path: Path, protocol: str
) -> None:
    """The oldest ones make way, so that a client logs in, and those who have stay."""
    stores = Stores(tmp_path)
    keys = KEYS | {
        "listeners": f"{protocol}://localhost:0",
        "security.inter.broker.protocol": protocol,
        "sasl.jaas.config": JAAS,
        "max.connections": "40",
        **stores.identity(),
    }
    del keys["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    client = {
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        **stores.trust(),
    }
    async with running(tmp_path / "log", properties=keys) as broker, AsyncExitStack() as stack:
        listener = broker._listeners[protocol]

        async def log_in() -> Connection:
            opened = await Connection.open(
                "localhost", broker.port, connect=connect_with(client), timeout=5
            )
            stack.push_async_callback(opened.close)
            return opened

        first = await log_in()
        crowd = []
        for _ in range(60):
            reader, writer = await asyncio.open_connection("localhost", broker.port)
            stack.callback(writer.close)
            crowd.append(reader)
        second = await log_in()
        # A quarter of 40, and the two that are known.
        await eventually(lambda: listener.connections <= 12)
        for known in (first, second):
            await known.request(metadata.API, metadata.MetadataRequest(topics=None))
        open_ones = [reader for reader in crowd if not reader.at_eof()]
        assert open_ones == crowd[-len(open_ones) :]


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
async def test_closed_connections_are_freed_without_the_collector(
    tmp_path: Path, protocol: str
) -> None:
    """A collection of 2,000 of them held the event loop for 80 ms."""
    stores = Stores(tmp_path)
    keys = TWO_LISTENERS | {
        "listener.security.protocol.map": f"CLIENTS:{protocol},BROKERS:PLAINTEXT",
        **stores.identity(),
    }
    client = {
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        **stores.trust(),
    }
    async with running(tmp_path / "log", properties=keys) as broker:
        port, connections = broker.ports["CLIENTS"], broker._listeners["CLIENTS"]._connections
        known = await Connection.open("localhost", port, connect=connect_with(client), timeout=5)
        await known.request(metadata.API, metadata.MetadataRequest(topics=None))
        _, stranger = await asyncio.open_connection("localhost", port)
        stranger.write(b"\x16\x03\x01" if protocol.endswith("SSL") else b"\0")
        await eventually(lambda: len(connections) == 2)
        left = [weakref.ref(each) for each in connections]
        left += [weakref.ref(each._transport) for each in connections if "SSL" in protocol]
        gc.disable()
        try:
            await known.close()
            stranger.close()
            await eventually(lambda: not any(each() for each in left))
        finally:
            gc.enable()


async def test_crowd_of_clients_closes_no_brokers_connection_before_its_authentication(
    tmp_path: Path,
) -> None:
    keys = TWO_LISTENERS | {"max.connections": "40"}
    async with running(tmp_path, properties=keys) as broker, AsyncExitStack() as stack:
        slow = await stack.enter_async_context(raw(broker, "BROKERS"))
        await slow.handshake()
        for name in ["CLIENTS"] * 30 + ["BROKERS"] * 9:
            await stack.enter_async_context(raw(broker, name))
        # A quarter of 40 on either side.
        await eventually(lambda: broker._listeners["CLIENTS"].connections == 10)
        assert broker._listeners["BROKERS"].connections == 10
        assert (await slow.authenticate(ALICE)).error_code == 0
        for _ in range(20):
            await stack.enter_async_context(raw(broker, "BROKERS"))
        await eventually(lambda: broker._listeners["BROKERS"].connections == 11)


async def test_password_is_in_no_log(
    broker: Broker, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with raw(broker) as client:
        await client.login(b"\0alice\0a-wrong-secret")
    assert count(broker, "failed") == 1
    captured = capsys.readouterr()
    assert "secret" not in captured.out + captured.err + caplog.text


async def test_client_of_tls_that_is_gone_before_its_answer_costs_no_connection(
    tmp_path: Path,
) -> None:
    """Without TLS's own mark of the end, OpenSSL refuses to encrypt the answer."""
    stores = Stores(tmp_path)
    keys = KEYS | {
        "listeners": "SASL_SSL://localhost:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": "300",
        "connections.max.unauthenticated.ms": "3600000",
        **stores.identity(),
    }
    del keys["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    context = ssl.create_default_context(cadata=stores.authority.pem)
    async with running(tmp_path / "log", properties=keys) as broker:
        listener = broker._listeners["SASL_SSL"]
        reader, writer = await asyncio.open_connection("localhost", broker.port, ssl=context)
        client = Raw(reader, writer)
        await client.handshake()
        request = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"wrong")
        client.post(encode_request_header(36, 1, 7, None) + encode(request, 1))
        failed = broker._metrics.requests.authentication.failed.cell("SASL_SSL")
        await eventually(lambda: failed.value)
        # The socket alone is closed, below TLS.
        writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await eventually(lambda: not listener.connections)
        writer.transport.abort()


# -- sessions --------------------------------------------------------------------------------------

SESSION = {"connections_max_reauth_ms": "3600000"}


async def test_session_is_renewed_on_the_open_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl, "MIN_REAUTH_S", 0)
    async with broker_with(tmp_path, **SESSION) as broker, raw(broker) as client:
        assert (await client.login()).session_lifetime_ms == 3_600_000
        assert (await client.metadata()).brokers
        assert (await client.login()).session_lifetime_ms == 3_600_000
        assert (await client.metadata()).brokers
        assert principals(broker) == ["User:alice"]
        assert count(broker, "succeeded_again") == 1
        assert count(broker, "succeeded") == 1


async def test_other_principal_cannot_take_over_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl, "MIN_REAUTH_S", 0)
    async with broker_with(tmp_path, **SESSION) as broker, raw(broker) as client:
        await client.login()
        answer = await client.login(b"\0bob\0bob-secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert await client.is_closed()
        assert count(broker, "failed_again") == 1


async def test_requests_between_the_steps_of_a_second_authentication_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl, "MIN_REAUTH_S", 0)
    async with broker_with(tmp_path, **SESSION) as broker, raw(broker) as client:
        await client.login()
        await client.handshake()
        with pytest.raises(asyncio.IncompleteReadError):
            await client.metadata()


async def test_second_authentication_comes_a_second_after_the_first_at_the_earliest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl, "MIN_REAUTH_S", 3600)
    async with broker_with(tmp_path, **SESSION) as broker, raw(broker) as client:
        await client.login()
        assert (await client.login()).error_code == 0
        assert (await client.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.metadata()).brokers


async def test_expired_session_is_closed_at_the_next_request(tmp_path: Path) -> None:
    async with (
        broker_with(tmp_path, connections_max_reauth_ms="1") as broker,
        raw(broker) as client,
        raw(broker) as renewed,
    ):
        expired = broker._metrics.requests.connections_expired.cell()
        assert (await client.login()).session_lifetime_ms == 1
        await renewed.login()
        ends = [
            each._session_ends
            for each in broker._listeners["SASL_PLAINTEXT"].sasl._authentications.values()
        ]
        clock = broker._platform.clock
        await eventually(lambda: clock.monotonic() > max(ends))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.metadata()
        assert expired.value == 1
        assert (await renewed.login()).error_code == 0


async def test_session_without_end_refuses_a_second_authentication(broker: Broker) -> None:
    async with raw(broker) as client:
        await client.login()
        assert (await client.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = await client.authenticate(ALICE)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message.endswith("received after successful authentication")
        assert (await client.metadata()).brokers


# -- start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sasl.enabled.mechanisms": None}, "offers GSSAPI, which is not supported"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": None}, "knows no user"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": 'a.B required user_a="secret'},
            "A string is not closed",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "a.B required;"},
            "login module has to be",
        ),
    ],
)
async def test_listener_that_nobody_could_use_does_not_start(
    tmp_path: Path, changed: dict[str, str | None], reason: str
) -> None:
    keys = {name: text for name, text in (KEYS | changed).items() if text is not None}
    with pytest.raises(ConfigError, match=reason) as caught:
        await make_broker(tmp_path, properties=keys).start()
    assert "secret" not in str(caught.value)


# -- tokens ----------------------------------------------------------------------------------------


@asynccontextmanager
async def with_tokens(directory: Path, issuer: Issuer, **more: str) -> AsyncIterator[Broker]:
    keys = {
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": issuer.write(directory / "keys.json"),
        "sasl_oauthbearer_expected_audience": "kafka",
        "sasl_oauthbearer_expected_issuer": "https://issuer",
    }
    async with broker_with(directory / "log", **keys | more) as running_broker:
        yield running_broker


def with_token(token: str) -> bytes:
    return b"n,,\x01auth=Bearer %b\x01\x01" % token.encode()


GOOD: dict[str, Any] = {"aud": "kafka", "iss": "https://issuer"}


async def login_with(client: Raw, token: str) -> Any:
    await client.handshake("OAUTHBEARER")
    return await client.authenticate(with_token(token))


async def test_session_ends_with_its_token(tmp_path: Path) -> None:
    issuer = Issuer()
    async with with_tokens(tmp_path, issuer) as broker, raw(broker) as client:
        done = await login_with(client, issuer.token("carol", **GOOD))
        assert done.error_code == 0
        assert 0 < done.session_lifetime_ms <= 600_000
        assert principals(broker) == ["User:carol"]
        assert (await client.metadata()).brokers
    async with (
        with_tokens(tmp_path, issuer, connections_max_reauth_ms="5000") as broker,
        raw(broker) as client,
    ):
        assert (await login_with(client, issuer.token("carol", **GOOD))).session_lifetime_ms == 5000


async def test_session_of_a_token_within_the_clock_skew_has_an_end(tmp_path: Path) -> None:
    """A client that is told 0 ms does not authenticate again, and is closed at its next request."""
    issuer = Issuer()
    async with with_tokens(tmp_path, issuer) as broker, raw(broker) as client:
        token = issuer.token("carol", **GOOD, iat=time.time() - 60, lasts_s=-5)
        done = await login_with(client, token)
        assert (done.error_code, done.session_lifetime_ms) == (0, 1)
        done = await login_with(client, issuer.token("carol", **GOOD))
        assert done.session_lifetime_ms > 1
        assert (await client.metadata()).brokers


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"},
        {"iss": "https://elsewhere"},
        {"lasts_s": -100},
        {"scope": ["a", "a"]},
        {"nbf": 4_000_000_000},
    ],
    ids=lambda claims: next(iter(claims)),
)
async def test_token_with_wrong_claims_is_refused(tmp_path: Path, claims: dict[str, Any]) -> None:
    issuer = Issuer()
    async with with_tokens(tmp_path, issuer) as broker, raw(broker) as client:
        answer = await login_with(client, issuer.token("carol", **GOOD | claims))
        assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
        refused = await client.authenticate(b"\x01")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.is_closed()
        assert count(broker, "failed") == 1


UNVERIFIED = "sasl.oauthbearer.allow.unverified"
EXPECTED = ("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer")


def without_expectations(directory: Path, **more: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": Issuer().write(directory / "keys.json"),
        **more,
    }


@pytest.mark.parametrize("claim", ["audience", "issuer"])
async def test_listener_that_may_take_no_unverified_token_does_not_start(
    tmp_path: Path, claim: str
) -> None:
    """As in Kafka 4.4, where false is the default."""
    keys = without_expectations(tmp_path, **{f"{UNVERIFIED}.{claim}": "false"})
    with pytest.raises(ConfigError, match=f"set .*expected.{claim}, or .*unverified.{claim}=true"):
        await make_broker(tmp_path, properties=keys).start()


def test_tokens_that_are_not_verified_are_announced_until_a_key_says_so(tmp_path: Path) -> None:
    """The next release takes the keys for false (docs/upgrade.md)."""
    keys = without_expectations(tmp_path)
    warned = BrokerConfig.from_properties(keys).warnings
    assert [key in text for text, key in zip(warned, EXPECTED, strict=True)] == [True, True]
    allowed = {f"{UNVERIFIED}.audience": "true", f"{UNVERIFIED}.issuer": "true"}
    expected = dict.fromkeys(EXPECTED, "kafka")
    prefix = "listener.name.sasl_plaintext.oauthbearer."
    of_listener = {f"{prefix}{name}": text for name, text in expected.items()}
    for more in (allowed, expected, of_listener):
        assert BrokerConfig.from_properties(keys | more).warnings == ()


@pytest.mark.parametrize(
    ("allowed", "taken"), [({}, [True, False]), ({"allow_unverified": "true"}, [True, True])]
)
async def test_audience_that_nobody_expects(
    tmp_path: Path, allowed: dict[str, str], taken: list[bool]
) -> None:
    issuer = Issuer()
    more = {f"sasl_oauthbearer_{name}_audience": text for name, text in allowed.items()}
    async with with_tokens(
        tmp_path, issuer, **{"sasl_oauthbearer_expected_audience": ""} | more
    ) as broker:
        codes = []
        for claims in ({}, {"aud": "other"}):
            async with raw(broker) as client:
                token = issuer.token("carol", iss=GOOD["iss"], **claims)
                codes.append((await login_with(client, token)).auth_bytes == b"")
        assert codes == taken


async def test_unsigned_token_is_refused(tmp_path: Path) -> None:
    issuer = Issuer()
    async with with_tokens(tmp_path, issuer) as broker, raw(broker) as client:
        _, claims, _ = issuer.token("carol", **GOOD).split(".")
        answer = await login_with(client, f"eyJhbGciOiJub25lIn0.{claims}.")
        assert answer.auth_bytes == b'{"status":"invalid_token"}'


async def test_token_of_a_new_key_has_the_key_set_fetched_again(tmp_path: Path) -> None:
    issuer, successor = Issuer(), Issuer("successor")
    async with (
        with_tokens(
            tmp_path, issuer, sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms="1"
        ) as broker,
        raw(broker) as first,
        raw(broker) as second,
    ):
        assert (await login_with(first, issuer.token("carol", **GOOD))).auth_bytes == b""
        successor.write(tmp_path / "keys.json")
        done = await login_with(second, successor.token("carol", **GOOD))
        assert (done.error_code, done.auth_bytes) == (0, b"")


async def test_key_set_comes_over_https_at_a_bounded_rate_and_the_last_good_one_stays(
    tmp_path: Path,
) -> None:
    issuer, stranger = Issuer(), Issuer("stranger")
    (tmp_path / "web").mkdir()
    with web_server(tmp_path / "web") as server:
        server.answer = lambda _: (200, issuer.key_set.encode())
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        keys = {
            "sasl_jaas_config": f"{module} {server.trust};",
            "sasl_oauthbearer_jwks_endpoint_url": server.url,
            "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": "200",
        }
        async with with_tokens(tmp_path, issuer, **keys) as broker:

            async def is_let_in(by: Issuer) -> bool:
                async with raw(broker) as client:
                    return not (await login_with(client, by.token("carol", **GOOD))).auth_bytes

            assert await is_let_in(issuer)
            assert server.asked[0].path == "/path?query"
            begun = time.monotonic()
            server.answer = lambda _: (500, b"")
            while time.monotonic() < begun + 0.7:
                assert not await is_let_in(stranger)
            fetches = len(server.asked) - 1
            assert 1 <= fetches <= (time.monotonic() - begun) / 0.1
            server.answer = lambda _: (200, b'{"keys": []}')
            assert not await is_let_in(stranger)
            assert await is_let_in(issuer)
            server.answer = lambda _: (200, stranger.key_set.encode())

            async def is_new() -> bool:
                return await is_let_in(stranger)

            await eventually(is_new)
            assert not await is_let_in(issuer)


async def test_key_set_of_a_server_that_is_not_trusted_is_not_used(tmp_path: Path) -> None:
    issuer = Issuer()
    (tmp_path / "web").mkdir()
    with web_server(tmp_path / "web") as server:
        server.answer = lambda _: (200, issuer.key_set.encode())
        async with (
            with_tokens(tmp_path, issuer, sasl_oauthbearer_jwks_endpoint_url=server.url) as broker,
            raw(broker) as client,
        ):
            answer = await login_with(client, issuer.token("carol", **GOOD))
            assert answer.auth_bytes == b'{"status":"invalid_token"}'
            assert not server.asked


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, "knows no key"),
        ({"url": "http://issuer/keys"}, "has to begin with https"),
        ({"url": "file:"}, "has to begin with https"),
    ],
)
async def test_listener_without_a_key_set_does_not_start(
    tmp_path: Path, changed: dict[str, str], reason: str
) -> None:
    keys = KEYS | {"sasl.enabled.mechanisms": "OAUTHBEARER"}
    keys |= {f"sasl.oauthbearer.jwks.endpoint.{name}": text for name, text in changed.items()}
    with pytest.raises(ConfigError, match=reason):
        await make_broker(tmp_path, properties=keys).start()


SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SCRAM_KEYS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": SCRAM_MODULE,
}


async def add_user(broker: Broker, mechanism: ScramMechanism) -> None:
    assert broker._core is not None
    password = b"alice-secret"
    credential = ScramCredential.of_password(mechanism, password, b"salt", MIN_ITERATIONS)
    await broker._core.scram_users.put("alice", credential)


async def first_answer(broker: Broker, mechanism: str, user: str) -> dict[str, str]:
    async with raw(broker) as client:
        assert (await client.handshake(mechanism)).error_code == 0
        answer = await client.authenticate(f"n,,n={user},r=abc".encode())
        assert answer.error_code == 0
        return dict(item.split("=", 1) for item in answer.auth_bytes.decode().split(","))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_unknown_user_of_scram_cannot_be_told_from_a_known_one(
    tmp_path: Path, mechanism: str
) -> None:
    async with running(tmp_path, properties=KEYS | SCRAM_KEYS) as broker:
        await add_user(broker, ScramMechanism(mechanism))  # type: ignore[call-arg]
        known = await first_answer(broker, mechanism, "alice")
        ghost, again, other = [
            await first_answer(broker, mechanism, name) for name in ("ghost", "ghost", "spirit")
        ]
    assert ghost.keys() == known.keys()
    assert ghost["s"] == again["s"] != other["s"]
    assert ghost["r"] != again["r"]
    assert ghost["i"] == known["i"]
    async with running(tmp_path, properties=KEYS | SCRAM_KEYS) as broker:
        assert (await first_answer(broker, mechanism, "ghost"))["s"] == ghost["s"]


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_users_of_scram_log_in_by_plain(tmp_path: Path, mechanism: ScramMechanism) -> None:
    async with running(tmp_path, properties=KEYS | SCRAM_KEYS) as broker:
        for message, served in ((ALICE, True), (ALICE + b"x", False), (b"\0bob\0x", False)):
            async with raw(broker) as client:
                assert (await client.login(message)).error_code == (
                    ErrorCode.SASL_AUTHENTICATION_FAILED
                )
            await add_user(broker, mechanism)
            async with raw(broker) as client:
                assert ((await client.login(message)).error_code == 0) is served
            assert broker._core is not None
            await broker._core.scram_users.delete("alice", mechanism)


async def test_user_who_is_deleted_cannot_log_in_again(tmp_path: Path) -> None:
    async with running(tmp_path, properties=KEYS | SCRAM_KEYS) as broker:
        connect = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }

        async def log_in() -> None:
            opened = await Connection.open(
                "127.0.0.1", broker.port, connect=connect_with(connect), timeout=5
            )
            await opened.close()

        with pytest.raises(AuthenticationError):
            await log_in()
        await add_user(broker, ScramMechanism.SHA_256)
        await log_in()
        assert broker._core is not None
        await broker._core.scram_users.delete("alice", ScramMechanism.SHA_256)
        with pytest.raises(AuthenticationError):
            await log_in()


# -- crowds ----------------------------------------------------------------------------------------


@asynccontextmanager
async def held(broker: Broker, queue: str = "logins of brokers") -> AsyncIterator[None]:
    """Keep the thread busy that does the work of logins; a lone listener is that of brokers."""
    release = threading.Event()
    busy = broker._platform.offload.submit(queue, release.wait)
    try:
        yield
    finally:
        release.set()
        await busy


@asynccontextmanager
async def with_users(directory: Path, **more: str) -> AsyncIterator[Broker]:
    """Run a broker on which alice logs in with a password that is checked by a slow hash."""
    keys = KEYS | SCRAM_KEYS | {name.replace("_", "."): text for name, text in more.items()}
    async with running(directory, properties=keys) as broker:
        await add_user(broker, ScramMechanism.SHA_256)
        yield broker


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("more", [{}, {"delegation_token_secret_key": "secret"}])
async def test_id_of_a_token_costs_no_work_before_authentication(
    tmp_path: Path, mechanism: str, more: dict[str, str]
) -> None:
    async with with_users(tmp_path, **more) as broker, held(broker), raw(broker) as client:
        assert (await client.handshake(mechanism)).error_code == 0
        answer = await client.authenticate(b"n,,n=an-id,r=abc,tokenauth=true")
        assert answer.auth_bytes.endswith(b",i=4096")


@pytest.mark.parametrize("version", [0, 1])
async def test_crowd_that_is_gone_keeps_no_login_waiting(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """400 connections that closed at once had kept all others waiting for seconds."""
    checked = []
    matches = ScramCredential.matches

    def check(credential: ScramCredential, password: bytes) -> bool:
        checked.append(password)
        return matches(credential, password)

    monkeypatch.setattr(ScramCredential, "matches", check)
    async with with_users(tmp_path) as broker:
        listener = broker._listeners["SASL_PLAINTEXT"]
        async with held(broker):
            for _ in range(50):
                async with raw(broker) as client:
                    await client.handshake(version=version)
                    if version == 0:
                        client.post(b"\0alice\0wrong")
                    else:
                        request = sasl_authenticate.SaslAuthenticateRequest(
                            auth_bytes=b"\0alice\0wrong"
                        )
                        header = encode_request_header(sasl_authenticate.API.key, 2, 7, "raw")
                        client.post(header + encode(request, 2))
            await eventually(lambda: listener.connections == 0)
            assert listener.sasl is not None
            assert len(listener.sasl.logins) == 0
        async with raw(broker) as client:
            assert (await client.login()).error_code == 0
    # Two mechanisms, and the login of alice.
    assert len(checked) <= 2 * (login_queue.AT_ONCE + 1)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_too_many_logins_lose_the_last_ones_of_the_crowd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_queue, "MAX_WAITING", 5)
    async with with_users(tmp_path) as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw(broker)) for _ in range(20)]
        for client in clients:
            await client.handshake()
        async with held(broker):
            logins = [asyncio.ensure_future(client.authenticate(ALICE)) for client in clients]
            await eventually(lambda: count(broker, "failed") == 15 - login_queue.AT_ONCE)
        answers = await asyncio.gather(*logins, return_exceptions=True)
    served = [each for each in answers if not isinstance(each, BaseException)]
    assert [each.error_code for each in served] == [0] * (5 + login_queue.AT_ONCE)
    # Clients try again after a connection is lost, and give up after a refusal.
    others = [each for each in answers if isinstance(each, BaseException)]
    assert {type(each) for each in others} == {asyncio.IncompleteReadError}


async def test_crowd_of_clients_keeps_no_broker_waiting(tmp_path: Path) -> None:
    async with running(tmp_path, properties=TWO_LISTENERS) as broker, held(broker, "logins"):
        async with raw(broker, "CLIENTS") as client, raw(broker, "BROKERS") as peer:
            waiting = asyncio.ensure_future(client.login())
            assert (await peer.login()).error_code == 0
            assert not waiting.done()
            waiting.cancel()


# -- keys that change ------------------------------------------------------------------------------

JAAS_KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
MECHANISMS_KEY = "listener.name.sasl_plaintext.sasl.enabled.mechanisms"


async def alter(client: Raw, name: str = "0", **changes: str) -> tuple[int, str | None]:
    """Set keys of the broker; return the error and its text."""
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=ConfigResourceType.BROKER,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=ConfigOperation.SET, value=text
                    )
                    for key, text in changes.items()
                ],
            )
        ],
        validate_only=False,
    )
    answer = await client.ask(incremental_alter_configs.API, request, 1)
    (outcome,) = answer.responses
    return outcome.error_code, outcome.error_message


def jaas(**users: str) -> str:
    pairs = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"{PLAIN_LOGIN_MODULE} required {pairs};"


async def test_users_change_without_a_restart_and_those_who_are_in_stay(tmp_path: Path) -> None:
    async with broker_with(tmp_path) as broker, raw(broker) as alice, raw(broker) as waiting:
        await alice.login()
        assert (await waiting.handshake()).error_code == 0
        assert await alter(alice, **{JAAS_KEY: jaas(carol="c")}) == (0, None)
        assert (await alice.metadata()).brokers
        # It has chosen a mechanism as it was.
        assert (await waiting.authenticate(ALICE)).error_code == 0
        for message, served in ((ALICE, False), (b"\0carol\0c", True)):
            async with raw(broker) as client:
                assert ((await client.login(message)).error_code == 0) is served
    async with broker_with(tmp_path) as broker, raw(broker) as carol:
        assert (await carol.login(b"\0carol\0c")).error_code == 0


async def test_mechanisms_of_a_listener_change_without_a_restart(tmp_path: Path) -> None:
    issuer = Issuer()
    keys = {
        "sasl_oauthbearer_jwks_endpoint_url": issuer.write(tmp_path / "keys.json"),
        "sasl_oauthbearer_expected_audience": "kafka",
    }
    async with broker_with(tmp_path / "log", **keys) as broker, raw(broker) as alice:
        await alice.login()
        plain = broker._listeners["SASL_PLAINTEXT"].sasl.mechanisms["PLAIN"]
        assert await alter(alice, **{MECHANISMS_KEY: "OAUTHBEARER,PLAIN"}) == (0, None)
        async with raw(broker) as client:
            done = await login_with(client, issuer.token("carol", **GOOD))
            assert (done.error_code, done.auth_bytes) == (0, b"")
        assert broker._listeners["SASL_PLAINTEXT"].sasl.mechanisms["PLAIN"] is plain
        assert await alter(alice, **{MECHANISMS_KEY: "OAUTHBEARER"}) == (0, None)
        async with raw(broker) as client:
            assert (await client.handshake()).mechanisms == ["OAUTHBEARER"]


@pytest.mark.parametrize(
    ("name", "key", "text", "told"),
    [
        ("0", JAAS_KEY, "a.B required;", "login module has to be"),
        ("0", JAAS_KEY, 'a.B required user_a="s3cr3t', "A string is not closed"),
        ("0", MECHANISMS_KEY, "GSSAPI", "offers GSSAPI, which is not supported"),
        ("0", MECHANISMS_KEY, "OAUTHBEARER", "knows no key"),
        ("0", MECHANISMS_KEY, "", "must not be empty"),
        ("0", "connections.max.reauth.ms", "1", "Cannot update these configs dynamically: ["),
        ("0", "sasl.login.retry.backoff.ms", "1", "Cannot update these configs dynamically: ["),
        ("0", "sasl.server.max.receive.size", "9999", "Cannot update these configs dynamically: ["),
        ("0", "sasl.kerberos.min.time.before.relogin", "x", "Not a number of type LONG"),
        ("0", "sasl.server.callback.handler.class", "x", "Unknown broker config name"),
        ("", "sasl.jaas.config", "x", "at default cluster level, broker id must be specified: ["),
        ("", MECHANISMS_KEY, "PLAIN", "at default cluster level, broker id must be specified: ["),
        ("", "sasl.kerberos.service.name", "k", "at default cluster level"),
    ],
)
async def test_change_that_kafka_refuses_or_that_would_lock_out_changes_nothing(
    broker: Broker, name: str, key: str, text: str, told: str
) -> None:
    async with raw(broker) as alice:
        await alice.login()
        code, message = await alter(alice, name, **{key: text})
        assert code == ErrorCode.INVALID_REQUEST
        assert told in str(message)
        assert "s3cr3t" not in str(message)
        async with raw(broker) as client:
            assert (await client.login()).error_code == 0
        assert not broker._dynamic.overrides
        assert not broker._dynamic.cluster_defaults


async def test_key_that_tools_set_and_that_has_no_effect_is_stored_and_described(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sasl.kerberos.min.time.before.relogin"
    async with raw(broker) as alice:
        await alice.login()
        assert await alter(alice, **{key: "58000"}) == (0, None)
        request = describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=ConfigResourceType.BROKER,
                    resource_name="0",
                    configuration_keys=[key],
                )
            ],
            include_documentation=True,
        )
        answer = await alice.ask(describe_configs.API, request, 4)
        (entry,) = answer.results[0].configs
        assert (entry.value, entry.read_only) == ("58000", False)
        assert "no effect" in entry.documentation
    assert "keys without effect are stored" in caplog.text
