"""SASL of the client, against a broker of a few lines that can lie."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.connection import AuthenticationError, BrokerUnreachable, Connection
from barnabas.client.security import connect_with
from barnabas.config.key import ConfigError
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.header import decode_request_header, encode_response_header
from barnabas.protocol.messages import api_versions, metadata, sasl_authenticate, sasl_handshake
from barnabas.security.sasl.credentials import ScramCredential, ScramMechanism, StandIns
from barnabas.security.sasl.exchange import AuthenticationFailed, Challenge
from barnabas.security.sasl.scram import ScramServer
from tests.support.waiting import eventually

APIS = {
    each.API.key: each.API for each in (api_versions, metadata, sasl_authenticate, sasl_handshake)
}
SHA_256 = ScramMechanism.SHA_256
SECRET = "alice-secret"
CREDENTIAL = ScramCredential.of_password(SHA_256, SECRET.encode(), b"salt", 4096)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


class Broker:
    """A broker that offers one mechanism."""

    def __init__(self, mechanism: str = "SCRAM-SHA-256") -> None:
        self.mechanism = mechanism
        self.lifetime_ms = 0
        self.lies = False
        self.refuses = False
        self.messages: list[bytes] = []
        """The messages of SaslAuthenticate."""
        self.asked: list[str] = []
        """The requests in their order, a Metadata request by its topic."""
        self.answers_metadata = asyncio.Event()
        self.answers_metadata.set()
        self._scram = ScramServer(SHA_256, lambda _: CREDENTIAL, StandIns(b"s"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                (key, version, correlation_id, _), offset = decode_request_header(frame)
                api = APIS[key]
                request = decode(api.request, version, frame, offset)
                if api is metadata.API:
                    self.asked.append(request.topics[0].name)
                    await self.answers_metadata.wait()
                else:
                    self.asked.append(api.name)
                body = encode_response_header(key, version, correlation_id)
                body += encode(self._answer(request), version)
                writer.write(len(body).to_bytes(4) + body)
        writer.close()

    def _answer(self, request: Any) -> Any:
        if isinstance(request, sasl_handshake.SaslHandshakeRequest):
            self._exchange: Any = None
            code = 0 if request.mechanism == self.mechanism else 33
            return sasl_handshake.SaslHandshakeResponse(
                error_code=code, mechanisms=[self.mechanism]
            )
        if isinstance(request, sasl_authenticate.SaslAuthenticateRequest):
            return self._authenticate(request.auth_bytes)
        if isinstance(request, metadata.MetadataRequest):
            return metadata.MetadataResponse(brokers=[], topics=[], controller_id=-1)
        rows = [
            api_versions.ApiVersion(
                api_key=key, min_version=api.versions[0], max_version=api.versions[-1]
            )
            for key, api in APIS.items()
        ]
        return api_versions.ApiVersionsResponse(api_keys=rows)

    def _authenticate(self, message: bytes) -> sasl_authenticate.SaslAuthenticateResponse:
        self.messages.append(message)
        answer = sasl_authenticate.SaslAuthenticateResponse
        if self.refuses:
            return answer(error_code=58, error_message="not you")
        if self.mechanism != "SCRAM-SHA-256":
            return answer(auth_bytes=b"", session_lifetime_ms=self.lifetime_ms)
        try:
            if self._exchange is None:
                self._exchange = self._scram.authenticate(message, "server-nonce", 0)
                step = next(self._exchange)
                assert isinstance(step, Challenge)
                return answer(auth_bytes=step.data)
            self._exchange.send(message)
        except AuthenticationFailed as error:
            return answer(error_code=58, error_message=error.answer(self.mechanism))
        except StopIteration as done:
            last = bytes(done.value.answer)
            if self.lies:
                last = last[:2] + (b"A" if last[2:3] != b"A" else b"B") + last[3:]
            return answer(auth_bytes=last, session_lifetime_ms=self.lifetime_ms)
        raise AssertionError


def scram(password: str = SECRET) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{SCRAM} username="alice" password="{password}";',
    }


@asynccontextmanager
async def connected(broker: Broker, properties: dict[str, str]) -> AsyncIterator[Connection]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        connection = await Connection.open(host, port, connect=connect_with(properties), timeout=5)
        try:
            yield connection
        finally:
            await connection.close()
    finally:
        server.close()


async def ask(connection: Connection, topic: str) -> None:
    row = metadata.MetadataRequestTopic(name=topic)
    await connection.request(metadata.API, metadata.MetadataRequest(topics=[row]), timeout=10)


async def test_login_comes_after_versions_and_before_requests() -> None:
    broker = Broker()
    async with connected(broker, scram()) as connection:
        await ask(connection, "t")
    login = ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]
    assert broker.asked == ["ApiVersions", *login, "ApiVersions", "t"]


async def test_librdkafka_keys_log_in_by_plain() -> None:
    broker = Broker("PLAIN")
    properties = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": SECRET,
    }
    async with connected(broker, properties):
        assert broker.messages == [b"\0alice\0alice-secret"]


async def test_delegation_token_is_announced() -> None:
    broker = Broker()
    broker.refuses = True
    jaas = f'{SCRAM} username="id" password="hmac" tokenauth="true";'
    with pytest.raises(AuthenticationError):
        async with connected(broker, scram() | {"sasl.jaas.config": jaas}):
            pass
    assert broker.messages[0].endswith(b",tokenauth=true")


async def test_wrong_password_is_refused_with_the_brokers_text() -> None:
    with pytest.raises(AuthenticationError, match="due to invalid credentials") as caught:
        async with connected(Broker(), scram("wrong-secret")):
            pass
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not caught.value.code.retriable
    assert "wrong-secret" not in repr(caught.value)


async def test_mechanism_that_the_broker_lacks_is_named_beside_those_it_has() -> None:
    with pytest.raises(AuthenticationError, match="SCRAM-SHA-256, but: PLAIN") as caught:
        async with connected(Broker("PLAIN"), scram()):
            pass
    assert caught.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM


async def test_broker_that_cannot_prove_itself_gets_no_request() -> None:
    broker = Broker()
    broker.lies = True
    with pytest.raises(AuthenticationError, match="Invalid server signature"):
        async with connected(broker, scram()):
            pass
    assert broker.asked[-1] == "SaslAuthenticate"


async def test_requests_of_a_new_login_keep_their_order() -> None:
    """One waits for its response when the session is about to end, three come during the login."""
    broker = Broker()
    broker.lifetime_ms = 50
    async with connected(broker, scram()) as connection:
        await eventually(lambda: connection._held is not None)
        # The first request logs in again; the timer would come again before the test is done.
        broker.lifetime_ms = 0
        asking = [asyncio.create_task(ask(connection, f"t{n}")) for n in range(3)]
        await asyncio.gather(*asking)
        await ask(connection, "t3")
    login = ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]
    assert broker.asked[5:] == [*login, "t0", "t1", "t2", "t3"]


async def test_response_awaited_at_a_new_login_arrives() -> None:
    broker = Broker()
    broker.lifetime_ms = 50
    async with connected(broker, scram()) as connection:
        broker.answers_metadata.clear()
        first = asyncio.create_task(ask(connection, "first"))
        await eventually(lambda: connection._held is not None)
        broker.lifetime_ms = 0
        second = asyncio.create_task(ask(connection, "second"))
        await eventually(lambda: connection._held.requests)
        broker.answers_metadata.set()
        await asyncio.gather(first, second)
    names = [name for name in broker.asked if name != "ApiVersions"]
    assert names[3:] == ["first", *names[:3], "second"]


async def test_failed_renewal_loses_the_connection_and_the_requests_behind_it() -> None:
    broker = Broker()
    broker.lifetime_ms = 50
    async with connected(broker, scram()) as connection:
        broker.refuses = True
        await eventually(lambda: connection._held is not None)
        with pytest.raises(BrokerUnreachable, match=r"could not be renewed.*not you"):
            await ask(connection, "t")
        assert not connection.is_open
    assert "t" not in broker.asked


async def test_token_of_a_file_is_read_at_each_login(tmp_path: Path) -> None:
    broker = Broker("OAUTHBEARER")
    file = tmp_path / "token"
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        "sasl.jaas.config": f'{BEARER} extension_cluster="one";',
    }
    for token in ("a.b.c", "d.e.f"):
        file.write_text(f"{token}\n")
        async with connected(broker, properties):
            pass
    assert broker.messages == [
        f"n,,\x01auth=Bearer {token}\x01cluster=one\x01\x01".encode()
        for token in ("a.b.c", "d.e.f")
    ]
    for text in ("", "a b"):
        file.write_text(text)
        with pytest.raises(AuthenticationError, match="has no token"):
            async with connected(broker, properties):
                pass
    file.unlink()
    with pytest.raises(AuthenticationError, match="No such file"):
        async with connected(broker, properties):
            pass


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"security.protocol": "SASL"}, "String must be one of: PLAINTEXT"),
        ({"sasl.mechanism": "GSSAPI"}, "Supported are PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "PLAIN"}, "PLAIN takes the login module .*PlainLoginModule"),
        ({"sasl.jaas.config": f'{SCRAM} username="s3cr3t";'}, "has no username or password"),
        ({"sasl.jaas.config": f'{SCRAM} password="s3cr3t'}, "A string is not closed"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{BEARER};"}, "file:///PATH"),
    ],
)
def test_keys_that_cannot_log_in_are_refused_without_their_secrets(
    properties: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        connect_with(scram() | properties)
    assert not re.search("s3cr3t|alice-secret", repr(caught.value))


def test_account_is_asked_for_if_no_key_has_one() -> None:
    properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError, match=r"Set sasl.jaas.config, or sasl.username"):
        connect_with(properties)
